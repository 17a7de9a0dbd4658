"""What was already tried in the open step, folded from the log.

What comes in: `step/start` and `llm/retry` events. What goes out: for each provider and policy how
many retries the step had, under which id. Pure; kept by the session, so that a plugin that is
loaded anew in the middle of a step goes on counting where it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from attrs import field

from dsh.catalog import llm, step
from dsh.hooks import frozen
from dsh.session import Projection

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dsh.wire import StoredEvent

__all__ = ["LEDGER", "Chain", "Ledger"]


@frozen(slots=True)
class Chain:
    """The retries of one provider under one policy in one step."""

    retry_id: str
    count: int


@frozen(slots=True)
class Ledger:
    """The retries of the newest step. `chains` goes by provider and policy key."""

    turn: int = 0
    step: int = 0
    chains: Mapping[tuple[str, str], Chain] = field(factory=dict[tuple[str, str], Chain])

    def chain(self, turn: int, step_number: int, provider: str, key: str) -> Chain | None:
        """The chain so far, or None for the first failure of its kind in this step."""
        if (self.turn, self.step) != (turn, step_number):
            return None
        return self.chains.get((provider, key))


def _apply(state: Ledger, event: StoredEvent) -> Ledger:
    match event.data:
        case step.Start(turn=turn, step=number):
            return Ledger(turn, number)
        case llm.Retry() as retry:
            same = (state.turn, state.step) == (retry.turn, retry.step)
            chains = dict(state.chains) if same else {}
            chains[retry.provider, retry.policy_key] = Chain(retry.retry_id, retry.retry)
            return Ledger(retry.turn, retry.step, chains)
        case _:
            return state


LEDGER: Final[Projection[Ledger]] = Projection(
    key="llm-retry", init=Ledger, apply=_apply, events=(llm.RETRY, step.START)
)
