"""JSON-RPC over a link: requests with their answers, whatever order and rubbish they come in.

What comes in: requests of ours with a deadline, and messages of the server. What goes out: results,
or an McpError for each way not to get one. A request that is cancelled or late is taken back with
`notifications/cancelled`, and its answer is ignored if it comes all the same. What the server asks
of us is answered: `ping`, and that we do nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import trio
from attrs import field, mutable

from dsh.tools import visible
from dsh_plugins.mcp.failures import McpError, NotRunning, ProtocolBroken, Refused, TookTooLong

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dsh.hooks import JsonObject, JsonValue
    from dsh_plugins.mcp.link import Link

__all__ = ["Peer"]

METHOD_NOT_FOUND: Final = -32601
WORDS_MAX: Final = 2_000
#: Characters of a name that the server made up, where it is repeated.
SHOWN: Final = 100


@mutable(slots=True, eq=False)
class _Slot:
    """One request that waits for its answer."""

    progress: Callable[[str], None] | None
    done: trio.Event = field(factory=trio.Event)
    result: JsonObject | None = None
    error: McpError | None = None

    def fail(self, error: McpError) -> None:
        if not self.done.is_set():
            self.error = error
            self.done.set()


@final
class Peer:
    """Our side of one connection. `notice` gets the server's notifications, method and params."""

    def __init__(self, server: str, notice: Callable[[str, JsonObject], None]) -> None:
        self._server: Final = server
        self._notice: Final = notice
        self._waiting: Final[dict[int, _Slot]] = {}
        self._last = 0
        self.link: Link | None = None
        #: Whether an answer can still come.
        self.alive = True

    async def request(
        self,
        method: str,
        params: Mapping[str, object],
        seconds: float,
        *,
        progress: Callable[[str], None] | None = None,
    ) -> JsonObject:
        """Ask, and wait for the result for at most `seconds`. Raises McpError."""
        link = self._open_link()
        self._last += 1
        number, slot = self._last, _Slot(progress)
        if progress is not None:
            params = {**params, "_meta": {"progressToken": number}}
        self._waiting[number] = slot
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        try:
            with trio.move_on_after(seconds):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_sent, link, message, slot)
                    await slot.done.wait()
                    nursery.cancel_scope.cancel()
        finally:
            # An initialize must not be taken back; whoever gives up on it closes the link.
            if self._waiting.pop(number, None) is not None and method != "initialize":
                self.notify("notifications/cancelled", {"requestId": number})
        if slot.error is not None:
            raise slot.error
        if slot.result is None:
            raise TookTooLong(
                f"MCP server {self._server!r} did not answer {method!r} within {seconds:g} s"
            )
        return slot.result

    def notify(self, method: str, params: Mapping[str, object] | None = None) -> None:
        """Tell the server something that has no answer."""
        message: dict[str, object] = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            message["params"] = params
        if self.link is not None:
            self.link.post(message)

    def receive(self, message: JsonValue) -> bool:
        """Take what the server sent. False: it is no message of the protocol."""
        if (
            isinstance(message, list) and message
        ):  # a batch, in an older version; none holds another
            taken = [not isinstance(one, list) and self.receive(one) for one in message]
            return all(taken)
        if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
            return False
        method, number = message.get("method"), message.get("id")
        params = message.get("params")
        given: JsonObject = params if isinstance(params, dict) else {}
        if isinstance(method, str):
            if isinstance(number, int | str):
                self._answer(visible(method[:SHOWN]), number)
            else:
                self._notified(method, given)
            return True
        if "result" not in message and "error" not in message:
            return False
        if type(number) is int:  # `true` is no number
            self._settle(number, message)
        return True  # an answer to nothing: late, or to a request that was taken back

    def fail(self, error: Callable[[], McpError]) -> None:
        """No answer will come any more: every waiting request gets an error of its own."""
        self.alive = False
        while self._waiting:
            _, slot = self._waiting.popitem()
            slot.fail(error())

    def fail_one(self, number: int, error: McpError) -> bool:
        """One answer cannot be had. False: nobody waits for it."""
        slot = self._waiting.pop(number, None)
        if slot is None:
            return False
        slot.fail(error)
        return True

    def _open_link(self) -> Link:
        if self.link is None or not self.alive:
            raise NotRunning(f"MCP server {self._server!r} is not connected; nothing was sent")
        return self.link

    def _answer(self, method: str, number: int | str) -> None:
        reply: dict[str, object] = {"jsonrpc": "2.0", "id": number}
        if method == "ping":
            reply["result"] = {}
        else:
            words = f"this client does not do {method!r}"
            reply["error"] = {"code": METHOD_NOT_FOUND, "message": words}
        if self.link is not None:
            self.link.post(reply)

    def _notified(self, method: str, params: JsonObject) -> None:
        if method != "notifications/progress":
            self._notice(method, params)
            return
        token, words = params.get("progressToken"), params.get("message")
        slot = self._waiting.get(token) if type(token) is int else None
        if slot is not None and slot.progress is not None and isinstance(words, str):
            slot.progress(visible(words[:WORDS_MAX]) + "\n")

    def _settle(self, number: int, message: JsonObject) -> None:
        slot = self._waiting.pop(number, None)
        if slot is None or slot.done.is_set():
            return
        result, error = message.get("result"), message.get("error")
        if isinstance(error, dict):
            words, code = error.get("message"), error.get("code")
            said = visible(words[:WORDS_MAX]) if isinstance(words, str) and words else "no words"
            slot.fail(Refused(f"MCP server {self._server!r} refused: {said} ({code})"))
        elif isinstance(result, dict):
            slot.result = result
            slot.done.set()
        else:
            slot.fail(ProtocolBroken(f"MCP server {self._server!r} answered without a result"))


async def _sent(link: Link, message: Mapping[str, object], slot: _Slot) -> None:
    try:
        await link.send(message)
    except McpError as error:  # a nursery would wrap it
        slot.fail(error)
