"""The seam behind which a loop may differ from another: what one turn does with its input.

What comes in: an open turn, with input that waits. What goes out: steps, in whatever order a
program likes. Opening and closing, claims, cancellation, the vote at the boundary, waking and
resting are the driver's, the same for every program; its agents are created, resumed and ended like
any others. Nothing here runs anything.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from dsh.hooks import frozen
from dsh.kernel import ServiceKey

if TYPE_CHECKING:
    from dsh.catalog import records
    from dsh.catalog.config import AgentLoopConfig
    from dsh.hooks import live
    from dsh.kernel import Context

__all__ = ["LOOPS", "Loops", "OpenTurn", "StepDone", "TurnProgram"]


@frozen(kw_only=True, slots=True)
class StepDone:
    """What a step came to.

    `owes`: tools ran, and the model has not seen their results. `cut`: the reply was cut by the
    output cap. `text`: the reply's text, or "".
    """

    owes: bool
    cut: bool
    text: str


class OpenTurn(ABC):
    """A turn while its program runs."""

    @property
    @abstractmethod
    def agent(self) -> live.Agent:
        """Whose turn it is."""

    @property
    @abstractmethod
    def signal(self) -> live.TurnSignal:
        """The turn's; the same at every extension point."""

    @property
    @abstractmethod
    def number(self) -> int:
        """The number of the turn."""

    @property
    @abstractmethod
    def steps(self) -> int:
        """How many steps were opened so far."""

    @property
    @abstractmethod
    def waiting(self) -> bool:
        """Whether there is input that the next step would claim or has still to admit."""

    @abstractmethod
    async def step(self, *messages: records.UserMessage) -> StepDone | None:
        """Claim what waits, propose it with `messages` after it, and run the step to its end.

        The whole way of every step: assembly, `agent/pre-step`, request and retries, the reply,
        its tool calls, `step/end`. None: there is no step, and the turn is over: it was rejected,
        or there was nothing to say (no input, no messages, nothing owed). Then return. Raises
        what the step failed with, after it was closed, and the loop's own exception when the turn
        was cancelled; let that pass. Interruptible at every wait.
        """


#: What a turn does with its input: return when nothing is left to do about it. Called again, in
#: the same turn, when input came meanwhile or somebody votes to keep going.
TurnProgram: TypeAlias = Callable[[OpenTurn], Awaitable[None]]


class Loops(ABC):
    """Makes a loop of a program. Service `LOOPS`."""

    @abstractmethod
    async def serve(self, ctx: Context, config: AgentLoopConfig, program: TurnProgram) -> None:
        """Serve the agents of this house with `program`, until the plugin of `ctx` unloads.

        For the `apply` of a plugin that stands in the row `agent-loop`. Unloading ends every
        agent, each closing its turn and its log. Raises ServiceConflict while another loop
        serves, ConfigError for declared agents that contradict each other.
        """


LOOPS: Final[ServiceKey[Loops]] = ServiceKey("loops")
