"""One turn: the program's steps, the vote at the boundary, and one closing, whatever happens.

What comes in: an opened turn with its claimed messages, and the loop's program. What goes out: a
closed one, and whether it closed normally. Its outcome starts as `aborted{disposed}`; only the
straight path replaces it, so no way of failing can look like success. It never wakes, parks or
converges.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from dsh import catalog as ev
from dsh.agent import OpenTurn, StepDone, new_message_id
from dsh.catalog import records
from dsh.errors import AgentError, InvariantError
from dsh.hooks import frozen, live
from dsh.loop.admission import Proposal
from dsh.loop.machine import Move, Phase, StepResult
from dsh.loop.outcome import Outcome, judged, onward
from dsh.loop.step import Step

if TYPE_CHECKING:
    from dsh.agent import ActivitySignal
    from dsh.kernel import Answered
    from dsh.loop.kit import Kit

__all__ = ["Opening", "Turn", "until_nothing_is_owed"]

_log: Final = logging.getLogger("dsh.loop")


@frozen(eq=False)
class Opening:
    """A turn that is open in the log: what it claimed, or why claiming failed."""

    claimed: tuple[records.UserMessage, ...]
    failure: Exception | None


class Turn(OpenTurn):
    """One of these per `turn/start`: the frame in which a program runs its steps."""

    def __init__(self, kit: Kit, signal: ActivitySignal, opening: Opening) -> None:
        self._kit = kit
        self._signal = signal
        self._opening = opening
        self._waiting = opening.claimed  # claimed and not (yet) admitted
        self._step = 0  # the step that is open, 0 between steps
        self._result: StepResult | None = None
        self._blocked: records.BlockedTurnEnd | None = None
        self._cut = False

    @property
    @override
    def agent(self) -> live.Agent:
        return self._kit.agent

    @property
    @override
    def signal(self) -> live.TurnSignal:
        return self._signal

    @property
    @override
    def number(self) -> int:
        return self._kit.course.turn

    @property
    @override
    def steps(self) -> int:
        return self._kit.course.step

    @property
    @override
    def waiting(self) -> bool:
        return bool(self._waiting) or self._steered()

    def _over(self) -> bool:
        """Whether nothing is left but to close."""
        return self._kit.course.phase is Phase.CLOSING

    async def run(self) -> Outcome:
        """Run it to its end and close it.

        Raises only what is no error (cancellation from outside the signal, KeyboardInterrupt); the
        turn is closed then, too. InvariantError, with nothing changed, if no driver opened it.
        """
        if self._kit.course.phase is not Phase.PROPOSING:
            raise InvariantError(
                f"a turn of agent {self._kit.agent.id!r} was run while it is "
                f"{self._kit.course.phase.value}; only its driver opens turns"
            )
        outcome = Outcome()
        try:
            outcome = await self._straight()
        except BaseException as raised:  # noqa: BLE001 - judged, and raised on if it must be
            outcome = judged(raised, self._signal)
            rest = onward(raised)
            if rest is not None:
                raise rest from None
        finally:
            self._close(outcome)
        return outcome

    async def _straight(self) -> Outcome:
        if self._opening.failure is not None:
            raise self._opening.failure
        while not self._over():
            before = self.steps
            await self._kit.services.program(self)
            self._signal.raise_if_set()
            if self._over():
                break
            if self.steps == before:
                raise AgentError(
                    f"the turn program of agent {self._kit.agent.id!r} returned without a step; "
                    "await `turn.step()` until what waits is done"
                )
            if not self._steered():
                await self._vote()
        if self._blocked is not None:
            return Outcome(self._blocked)
        return Outcome(self._reason(), normal=self._result is not None)

    @override
    async def step(self, *messages: records.UserMessage) -> StepDone | None:
        course = self._kit.course
        self._signal.raise_if_set()  # before the claim: what a cancel keeps stays parked
        if course.phase in {Phase.SETTLED, Phase.STOPPING}:
            course.move(Move.PROPOSE)
            self._claim()
        elif course.phase is not Phase.PROPOSING:
            raise AgentError(
                f"a step of agent {self._kit.agent.id!r} was asked for while its turn is "
                f"{course.phase.value}; after a step that came to None, return"
            )
        decision = await self._propose(messages)
        if isinstance(decision, records.BlockedTurnEnd):
            self._kit.course.move(Move.REFUSE)
            self._blocked = decision
            return None
        if not decision.messages and self._result != "owes":
            self._kit.course.move(Move.REFUSE)
            return None
        step = Step(self._kit, self._signal, decision)
        result = self._result = await self._run_step(step)
        self._cut = self._cut or result == "max-tokens"
        return StepDone(owes=result == "owes", cut=result == "max-tokens", text=step.text)

    async def _propose(
        self, added: tuple[records.UserMessage, ...]
    ) -> Proposal | records.BlockedTurnEnd:
        """Assemble, then ask `agent/pre-step`; nothing is logged by this."""
        kit, signal = self._kit, self._signal
        signal.raise_if_set()
        said = (*self._waiting, *added)
        answered: Answered[ev.agent.PreStepDecision] | None = None
        with signal.scope():
            assembly = await kit.services.prompt.assemble(
                live.AssembleContext(agent=kit.agent, scope=kit.agent.scope, signal=signal)
            )
            signal.raise_if_set()
            prompt = kit.services.prompt.render(assembly)
            answered = await self._pre_step(said, self._with_context(assembly, said))
        signal.raise_if_set()
        assert answered is not None
        match answered.value:
            case ev.agent.Reject(reason=reason):
                return records.BlockedTurnEnd(reason=reason, plugin=answered.plugin)
            case ev.agent.Enter() as enter:
                return Proposal(
                    turn=kit.course.turn,
                    step=kit.course.step + 1,
                    prompt=prompt,
                    tools=assembly.tools,
                    messages=enter.messages,
                    starts_series=enter.starts_request_series,
                )

    def _with_context(
        self, assembly: live.PromptAssembly, said: tuple[records.UserMessage, ...]
    ) -> tuple[records.UserMessage, ...]:
        """`said`, and the runtime context if it is due: it never makes a step alone."""
        if not said and self._result != "owes":
            return ()
        due = self._kit.services.prompt.due_context(self._kit.session, assembly, new_message_id)
        return said if due is None else (*said, due)

    async def _pre_step(
        self, said: tuple[records.UserMessage, ...], proposed: tuple[records.UserMessage, ...]
    ) -> Answered[ev.agent.PreStepDecision]:
        kit = self._kit

        async def default() -> ev.agent.PreStepDecision:
            return ev.agent.Enter(messages=proposed)

        return await kit.ctx.waterfall_by(ev.agent.PRE_STEP)(
            ev.agent.PreStep(
                agent=kit.agent,
                messages=said,
                turn=kit.course.turn,
                step=kit.course.step + 1,
                signal=self._signal,
            ),
            default,
        )

    async def _run_step(self, step: Step) -> StepResult:
        self._step = self._kit.course.step + 1
        try:
            result = await step.run()
        finally:
            if step.admitted:
                self._waiting = ()
        self._step = 0
        return result

    async def _vote(self) -> None:
        """`agent/turn-stopping`: every listener runs, then the votes are steered in order.

        With nothing steered by then, the turn concludes.
        """
        kit, signal = self._kit, self._signal
        kit.course.move(Move.FINISH)
        votes: tuple[ev.agent.KeepGoing, ...] = ()
        signal.raise_if_set()
        with signal.scope():
            votes = await kit.ctx.serial(ev.agent.TURN_STOPPING)(
                ev.agent.TurnStopping(agent=kit.agent, turn=kit.course.turn, signal=signal)
            )
        signal.raise_if_set()
        for vote in votes:
            kit.inbox.append("next-step", vote.message)
        signal.raise_if_set()  # a listener of the insertion may have cancelled
        if not self._steered():
            kit.course.move(Move.CONCLUDE)

    def _claim(self) -> None:
        self._signal.woken = False
        turn = self._kit.course.turn
        self._waiting = self._kit.inbox.claim(prompt=False, turn=turn)
        self._kit.asks.claimed(self._waiting, turn)

    def _steered(self) -> bool:
        return bool(self._kit.inbox.lists.next_step)

    def _reason(self) -> records.TurnEndReason:
        return records.MaxTokensTurnEnd() if self._cut else records.CompletedTurnEnd()

    def _close(self, outcome: Outcome) -> None:
        """Synchronous, so that it works in any scope: report, `turn/end`, waiters."""
        kit, course = self._kit, self._kit.course
        turn = course.turn
        if course.phase is not Phase.CLOSING:
            course.move(Move.FAIL)
        if outcome.error is not None:
            kit.notices.error(turn, self._step, outcome.error, self._waiting)
        try:
            course.log(Move.CLOSE_TURN, lambda at: ev.turn.End(turn=at.turn, reason=outcome.reason))
        except Exception as error:  # noqa: BLE001 - one try: the turn is over whatever the log says
            _log.warning(
                "turn %d of session %s: turn/end was refused: %s", turn, kit.session.id, error
            )
            kit.notices.error(turn, self._step, error)
            if course.phase is Phase.CLOSING:
                course.move(Move.CLOSE_TURN)
        kit.asks.ended(turn, outcome.reason)


async def until_nothing_is_owed(turn: OpenTurn) -> None:
    """The program of the row `agent-loop`: steps, until the model has seen every result."""
    done = await turn.step()
    while done is not None and done.owes:
        done = await turn.step()
