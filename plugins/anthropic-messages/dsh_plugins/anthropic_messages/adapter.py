"""The adapter: provider routes of messages servers.

What comes in: the configured servers and frozen requests. What goes out: one stream for each
attempt. Addresses, keys and connections are `dsh.llm.http`'s business. Nothing is sent anywhere but
to the configured server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, final

from typing_extensions import override

from dsh.llm import http
from dsh_plugins.anthropic_messages.body import BodyEncoder
from dsh_plugins.anthropic_messages.reply import ReplyDecoder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dsh.hooks.live import ChunkStream, LlmRequest
    from dsh.kernel import Clock
    from dsh.seams.environ import Credentials, Environ
    from dsh_plugins.anthropic_messages.servers import Server

__all__ = ["MessagesAdapter"]


@final
class MessagesAdapter(http.ServerAdapter):
    """Serves every configured provider route."""

    #: Thinking goes back with the signature that came with it, and only with that.
    reads_replay_state: ClassVar[bool] = True

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
        target = self.target(request.provider)
        profile, secret = self._servers[request.provider].profile, target.secret
        headers = {"anthropic-version": profile.api_version, **profile.headers}
        if secret is not None and profile.auth == "bearer":
            headers["Authorization"] = f"Bearer {secret.reveal()}"
        elif secret is not None:
            headers["x-api-key"] = secret.reveal()
        body = self._encoders[request.provider].body(request)
        return self.post(target, body, headers=headers, decoder=ReplyDecoder)
