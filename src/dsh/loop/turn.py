"""One turn: proposals, steps, the vote at the boundary, and one closing, whatever happens.

What comes in: an opened turn with its claimed messages. What goes out: a closed one, and whether
it closed normally. Its outcome starts as `aborted{disposed}`; only the straight path replaces it,
so no way of failing can look like success. It never wakes, parks or converges.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from attrs import frozen

from dsh import catalog as ev
from dsh.agent import new_message_id
from dsh.catalog import records
from dsh.errors import InvariantError
from dsh.hooks import live
from dsh.loop.admission import Proposal
from dsh.loop.machine import Move, Phase, StepResult, after_step
from dsh.loop.outcome import Outcome, judged, onward
from dsh.loop.step import Step

if TYPE_CHECKING:
    from dsh.agent import ActivitySignal
    from dsh.kernel import Answered
    from dsh.loop.kit import Kit

__all__ = ["Opening", "Turn"]

_log: Final = logging.getLogger("dsh.loop")


@frozen(eq=False)
class Opening:
    """A turn that is open in the log: what it claimed, or why claiming failed."""

    claimed: tuple[records.UserMessage, ...]
    failure: Exception | None


class Turn:
    """One of these per `turn/start`."""

    def __init__(self, kit: Kit, signal: ActivitySignal, opening: Opening) -> None:
        self._kit = kit
        self._signal = signal
        self._opening = opening
        self._waiting = opening.claimed  # claimed and not (yet) admitted
        self._step = 0  # the step that is open, 0 between steps
        self._cut = False

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
        result: StepResult | None = None
        while True:
            decision = await self._propose(owes=result == "owes")
            if isinstance(decision, records.BlockedTurnEnd):
                self._kit.course.move(Move.REFUSE)
                return Outcome(decision)
            if not decision.messages and result != "owes":
                self._kit.course.move(Move.REFUSE)
                return Outcome(self._reason(), normal=result is not None)
            result = await self._run_step(decision)
            self._cut = self._cut or result == "max-tokens"
            if await self._done(result):
                return Outcome(self._reason(), normal=True)
            self._claim()

    async def _done(self, result: StepResult) -> bool:
        """Decide at the boundary after a step; False: another one is proposed."""
        course = self._kit.course
        course.move(after_step(result, steered=self._steered()))
        if course.phase is Phase.PROPOSING:
            return False
        await self._vote()
        course.move(Move.PROPOSE if self._steered() else Move.CONCLUDE)
        return course.phase is Phase.CLOSING

    async def _propose(self, *, owes: bool) -> Proposal | records.BlockedTurnEnd:
        """Assemble, then ask `agent/pre-step`; nothing is logged by this."""
        kit, signal = self._kit, self._signal
        signal.raise_if_set()
        assembly: live.PromptAssembly | None = None
        with signal.scope():
            assembly = await kit.services.prompt.assemble(
                live.AssembleContext(agent=kit.agent, scope=kit.agent.scope, signal=signal)
            )
        signal.raise_if_set()
        assert assembly is not None
        prompt = kit.services.prompt.render(assembly)
        proposed = self._with_context(assembly, owes=owes)
        answered = await self._pre_step(proposed)
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
        self, assembly: live.PromptAssembly, *, owes: bool
    ) -> tuple[records.UserMessage, ...]:
        """What was claimed, and the runtime context if it is due: it never makes a step alone."""
        if not self._waiting and not owes:
            return ()
        due = self._kit.services.prompt.due_context(self._kit.session, assembly, new_message_id)
        return self._waiting if due is None else (*self._waiting, due)

    async def _pre_step(
        self, proposed: tuple[records.UserMessage, ...]
    ) -> Answered[ev.agent.PreStepDecision]:
        kit, signal = self._kit, self._signal

        async def default() -> ev.agent.PreStepDecision:
            return ev.agent.Enter(messages=proposed)

        answered: Answered[ev.agent.PreStepDecision] | None = None
        with signal.scope():
            answered = await kit.ctx.waterfall_by(ev.agent.PRE_STEP)(
                ev.agent.PreStep(
                    agent=kit.agent,
                    messages=self._waiting,
                    turn=kit.course.turn,
                    step=kit.course.step + 1,
                    signal=signal,
                ),
                default,
            )
        signal.raise_if_set()
        assert answered is not None
        return answered

    async def _run_step(self, proposal: Proposal) -> StepResult:
        step = Step(self._kit, self._signal, proposal)
        self._step = proposal.step
        try:
            result = await step.run()
        finally:
            if step.admitted:
                self._waiting = ()
        self._step = 0
        return result

    async def _vote(self) -> None:
        """`agent/turn-stopping`: every listener runs, then the votes are steered in order."""
        kit, signal = self._kit, self._signal
        votes: tuple[ev.agent.KeepGoing, ...] = ()
        signal.raise_if_set()
        with signal.scope():
            votes = await kit.ctx.serial(ev.agent.TURN_STOPPING)(
                ev.agent.TurnStopping(agent=kit.agent, turn=kit.course.turn, signal=signal)
            )
        signal.raise_if_set()
        for vote in votes:
            kit.inbox.append("next-step", vote.message)

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
