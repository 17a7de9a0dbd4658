"""The plugin `token-meter`: counts what model calls cost and how large the next one will be.

What comes in: questions about live sessions. What goes out: the service `token-meter`. Each
session is folded from its log when it is first asked about, and kept up to date from then on; it
is forgotten with the session. Nothing is logged and nothing is listened to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final
from weakref import WeakKeyDictionary

from typing_extensions import override

from dsh import Context, plugin
from dsh.seams.token_meter import TOKEN_METER, TokenMeter
from dsh_plugins.token_meter.estimate import message_tokens, text_tokens
from dsh_plugins.token_meter.fold import SessionFold

if TYPE_CHECKING:
    from dsh.catalog.records import Message
    from dsh.seams.token_meter import Measurement, NodePrice, UsageReport
    from dsh.session import Session

__all__ = ["token_meter"]


@final
class FoldingMeter(TokenMeter):
    """A meter that keeps one fold for each session."""

    def __init__(self) -> None:
        self._folds: Final[WeakKeyDictionary[Session, SessionFold]] = WeakKeyDictionary()

    def _fold(self, session: Session) -> SessionFold:
        fold = self._folds.get(session)
        if fold is None:
            fold = self._folds[session] = SessionFold()
        fold.advance(session)
        return fold

    @override
    def measure(self, session: Session) -> Measurement:
        return self._fold(session).measurement()

    @override
    def prices(self, session: Session) -> tuple[NodePrice, ...]:
        return self._fold(session).prices()

    @override
    def usage(self, session: Session) -> UsageReport:
        return self._fold(session).report()

    @override
    def estimate(self, message: Message) -> int:
        return message_tokens(message)

    @override
    def estimate_text(self, text: str) -> int:
        return text_tokens(text)


@plugin(name="token-meter", provides=(TOKEN_METER,))
async def token_meter(ctx: Context) -> None:
    """Provide the meter."""
    ctx.provide(TOKEN_METER, FoldingMeter())
