"""One step: a model request with its retries, and every tool call that it asked for.

What comes in: a decision to enter, with its messages. What goes out: `step/start`, at last
`step/end`, and what the step came to: the model is owed results, or it is done, or it was cut.
However a step ends, it is closed and each of its calls has exactly one result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import evolve

from dsh import catalog as ev
from dsh.errors import LlmError
from dsh.llm import raised
from dsh.loop.attempt import Attempt, AttemptFailed, Reply
from dsh.loop.calls import StepCalls
from dsh.loop.machine import Move, Phase, StepResult
from dsh.tools import run_batch

if TYPE_CHECKING:
    from dsh.agent import ActivitySignal
    from dsh.catalog import records
    from dsh.llm import PreparedCall
    from dsh.loop.admission import Proposal
    from dsh.loop.kit import Kit

__all__ = ["Step"]


class Step:
    """One of these per entered proposal."""

    def __init__(self, kit: Kit, signal: ActivitySignal, proposal: Proposal) -> None:
        self._kit = kit
        self._signal = signal
        self._proposal = proposal
        self._calls = StepCalls(kit, signal)
        #: True once the messages of the proposal are in the log.
        self.admitted = False
        #: The text of the reply, once that is in the log.
        self.text = ""

    async def run(self) -> StepResult:
        """Open, work, close. Raises TurnCancelled and whatever failed, after the step is closed.

        A veto of `step/start` opens nothing and closes nothing.
        """
        self._signal.raise_if_set()
        self._kit.course.log(Move.OPEN_STEP, lambda at: ev.step.Start(turn=at.turn, step=at.step))
        try:
            result = await self._work()
        except BaseException as failure:
            self._close_failed(failure)
            raise
        self._close()
        return result

    async def _work(self) -> StepResult:
        reply = await self._reply()
        self.text = reply.text
        if reply.truncated:
            return "max-tokens"
        if not reply.calls:
            return "completed"
        self._calls.expect(reply.calls)
        self._kit.course.move(Move.CALL)
        outcome = await run_batch(self._kit.services.tools, reply.calls, self._calls)
        self._signal.raise_if_set()
        return "completed" if outcome.concludes_turn else "owes"

    async def _reply(self) -> Reply:
        """Attempts until one is committed, or its failure stands."""
        while True:
            call = await self._prepare()
            request = self._kit.admission.admit(self._proposal, call, self._signal)
            self.admitted = True
            self._kit.course.move(Move.ADMIT)
            self._signal.raise_if_set()
            settled = await Attempt(self._kit, self._signal, request).run(call)
            if isinstance(settled, Reply):
                return settled
            self._kit.course.move(Move.FAIL_ATTEMPT)
            await self._recover(settled)
            self._kit.course.move(Move.RETRY)
            self._proposal = evolve(self._proposal, messages=(), starts_series=False)

    async def _prepare(self) -> PreparedCall:
        kit, signal = self._kit, self._signal
        seed = kit.admission.seed_config(kit.agent.options)

        async def default() -> records.LlmCallConfig:
            return seed

        config = seed
        signal.raise_if_set()
        if kit.ctx.heard(ev.agent.REQUEST):
            with signal.scope():
                config = await kit.ctx.waterfall(ev.agent.REQUEST)(
                    ev.agent.Request(
                        agent=kit.agent, turn=kit.course.turn, step=kit.course.step, signal=signal
                    ),
                    default,
                )
            signal.raise_if_set()
        if not config.provider or not config.model:
            raise LlmError(_no_route(config, kit.agent.id), code="NO_MODEL")
        return await kit.services.llm.prepare_call(config, signal)

    async def _recover(self, failed: AttemptFailed) -> None:
        """Return when somebody wants a retry; else raise the failure, or TurnCancelled."""
        kit, signal = self._kit, self._signal

        async def default() -> ev.agent.Retry | None:
            return None

        signal.raise_if_set()
        decision: ev.agent.Retry | None = None
        with signal.scope():
            decision = await kit.ctx.waterfall(ev.agent.REQUEST_ERROR)(
                ev.agent.RequestError(
                    agent=kit.agent,
                    turn=kit.course.turn,
                    step=kit.course.step,
                    provider=failed.provider,
                    failure=failed.failure,
                    retry_policy=failed.policy,
                    signal=signal,
                ),
                default,
            )
        signal.raise_if_set()
        if decision is None:
            raise raised(failed.failure)

    def _close_failed(self, failure: BaseException) -> None:
        """Close after `failure`, which the caller raises on; what fails here joins it."""
        try:
            self._close()
        except Exception as second:  # noqa: BLE001 - raised or reported, never lost
            if isinstance(failure, Exception) and not self._signal.cancelled:
                raise ExceptionGroup(
                    "the step failed, and closing it failed too", [failure, second]
                ) from None
            self._kit.notices.error(self._kit.course.turn, self._kit.course.step, second)

    def _close(self) -> None:
        """Results for calls that have none, then `step/end`.

        Raises what the appends raise; the step is over all the same.
        """
        kit = self._kit
        failures: list[Exception] = []
        for append in (self._calls.settle_rest, self._append_end):
            try:
                append()
            except Exception as error:  # noqa: BLE001 - the second append is due all the same
                failures.append(error)
        if kit.course.phase is not Phase.SETTLED:
            kit.course.move(Move.CLOSE_STEP)
        if failures:
            raise (
                failures[0]
                if len(failures) == 1
                else ExceptionGroup("closing a step failed twice", failures)
            )

    def _append_end(self) -> None:
        self._kit.course.log(Move.CLOSE_STEP, lambda at: ev.step.End(turn=at.turn, step=at.step))


def _no_route(config: records.LlmCallConfig, agent_id: str) -> str:
    missing = " and ".join(
        name
        for name, value in (("provider", config.provider), ("model", config.model))
        if not value
    )
    return (
        f"agent {agent_id!r} has no {missing} for this request; give it in the agent's options "
        "(`--provider`, `--model`), or from a listener of agent/request"
    )
