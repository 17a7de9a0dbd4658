"""The adapter: provider routes of chat-completions servers.

What comes in: the configured servers and frozen requests. What goes out: one stream for each
attempt. Addresses, keys and connections are `dsh.llm.http`'s business. Nothing is sent anywhere but
to the configured server.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, final

from typing_extensions import override

from dsh.llm import http
from dsh_plugins.openai_chat.history import BodyEncoder
from dsh_plugins.openai_chat.reply import ReplyDecoder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dsh.hooks.live import ChunkStream, LlmRequest
    from dsh.kernel import Clock
    from dsh.seams.environ import Credentials, Environ
    from dsh_plugins.openai_chat.families import Server

__all__ = ["ChatAdapter"]


@final
class ChatAdapter(http.ServerAdapter):
    """Serves every configured provider route."""

    def __init__(
        self,
        servers: Mapping[str, Server],
        environ: Environ,
        credentials: Credentials,
        clock: Clock,
    ) -> None:
        routes = {name: server.route for name, server in servers.items()}
        super().__init__(routes, environ, credentials, clock)
        self._servers: Final = servers
        self._encoders: Final = {name: BodyEncoder(server) for name, server in servers.items()}

    @override
    def stream(self, request: LlmRequest) -> ChunkStream:
        target, server = self.target(request.provider), self._servers[request.provider]
        headers = dict(server.profile.headers)
        if target.secret is not None:
            headers["Authorization"] = f"Bearer {target.secret.reveal()}"
        return self.post(
            target,
            self._encoders[request.provider].body(request),
            headers=headers,
            decoder=partial(ReplyDecoder, done_required=server.habits.done_required),
        )
