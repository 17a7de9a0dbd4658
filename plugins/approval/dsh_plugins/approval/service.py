"""One question at a time: policy, audit pair, answerers, and what a cancellation makes of it.

What comes in: a question. What goes out: its outcome. A question that was put to somebody has
exactly one `approval/decided`, whatever the answerer, the person or a cancellation did meanwhile.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final, cast, get_args
from uuid import uuid4

import trio
from attrs import evolve
from typing_extensions import override

from dsh import catalog as ev
from dsh.catalog import records
from dsh.hooks import frozen
from dsh.seams.approval import ApprovalAnswer, ApprovalQuestion, ApprovalService
from dsh.session import Projection

if TYPE_CHECKING:
    from dsh import Context
    from dsh.hooks import live
    from dsh.kernel import Answered
    from dsh.session import Session, Sessions
    from dsh.wire import StoredEvent

__all__ = ["STANDING", "Approvals", "Standing"]

OUTCOMES: Final[frozenset[str]] = frozenset(get_args(records.ApprovalOutcome))
DETAIL_MAX: Final = 300


@frozen(kw_only=True, slots=True)
class Standing:
    """What the log says: the last policy (None: none yet), and whether a turn is open."""

    policy: records.ApprovalPolicy | None = None
    in_turn: bool = False


def _folded(state: Standing, event: StoredEvent) -> Standing:
    match event.data:
        case ev.approval.Policy(policy=policy):
            return evolve(state, policy=policy)
        case ev.turn.Start():
            return evolve(state, in_turn=True)
        case ev.turn.End():
            return evolve(state, in_turn=False)
        case _:
            return state


STANDING: Final[Projection[Standing]] = Projection(
    key="approval",
    init=Standing,
    apply=_folded,
    events=(ev.approval.POLICY, ev.turn.START, ev.turn.END),
)


class Approvals(ApprovalService):
    """The provider of the seam. Questions of all agents queue for the same person."""

    def __init__(self, ctx: Context, sessions: Sessions, policy: records.ApprovalPolicy) -> None:
        self._ctx = ctx
        self._sessions = sessions
        self._policy = policy
        # trio's locks are fair: first asked, first shown.
        self._turnstile = trio.Lock()
        #: Questions that wait or are being put, and those put since there was none.
        self._open = 0
        self._put = 0

    @override
    async def request(self, question: ApprovalQuestion) -> ApprovalAnswer:
        self._open += 1
        try:
            async with self._turnstile:
                refused = self._refused(question)
                return refused if refused is not None else await self._asked(question)
        finally:
            self._open -= 1
            if not self._open:
                self._put = 0

    def _refused(self, question: ApprovalQuestion) -> ApprovalAnswer | None:
        """Why nobody is to be asked, decided when it is this question's turn."""
        if question.signal.cancelled:
            return ApprovalAnswer(outcome="cancelled")
        session = self._session(question.agent)
        if session is None:
            detail = "the agent's session is not live any more"
            return ApprovalAnswer(outcome="unavailable", detail=detail)
        standing = session.projection(STANDING)
        if (standing.policy or self._policy) == "never":
            detail = "approval is needed, and this session's approval policy is `never`"
            return ApprovalAnswer(outcome="rejected", detail=detail)
        if not standing.in_turn:
            detail = "no turn is open in which it could be asked"
            return ApprovalAnswer(outcome="unavailable", detail=detail)
        return None

    def _session(self, agent: live.Agent) -> Session | None:
        return self._sessions.get(agent.session.id)

    async def _asked(self, question: ApprovalQuestion) -> ApprovalAnswer:
        log, question_id = question.agent.session, f"ask_{uuid4().hex}"
        self._put += 1
        # If this cannot be logged it is not asked: the failure is the call's.
        log.append(
            ev.approval.Asked(
                id=question_id,
                tool_name=question.tool_name,
                call_id=question.call_id,
                reason=question.reason,
            )
        )
        answer = ApprovalAnswer(outcome="cancelled")
        try:
            answer = await self._answered(question)
        finally:
            # In `finally`: a question that is withdrawn by a cancellation is decided too.
            if answer.outcome == "allowed-once" and _over(question):
                answer = ApprovalAnswer(outcome="cancelled")  # too late: it runs nothing
            log.append(ev.approval.Decided(id=question_id, outcome=answer.outcome))
        return answer

    async def _answered(self, question: ApprovalQuestion) -> ApprovalAnswer:
        async def nobody() -> records.ApprovalOutcome:
            return "unavailable"

        payload = ev.approval.Request(
            agent=question.agent,
            tool_name=question.tool_name,
            call_id=question.call_id,
            arguments=question.arguments,
            reason=question.reason,
            asked_by=question.asked_by,
            position=self._put,
            total=self._put + self._open - 1,
            signal=question.signal,
        )
        try:
            found = await self._ctx.waterfall_by(ev.approval.REQUEST)(payload, nobody)
        except Exception as error:
            self._ctx.log.warning("an answerer of approval/request failed", exc_info=error)
            detail = f"the answer could not be had: {_said(error)}"
            return ApprovalAnswer(outcome="unavailable", detail=detail)
        return self._judged(found)

    def _judged(self, found: Answered[records.ApprovalOutcome]) -> ApprovalAnswer:
        word = cast("object", found.value)  # an author's listener may answer anything
        if not isinstance(word, str) or word not in OUTCOMES:
            self._ctx.log.warning("%s answered approval/request with %.80r", found.plugin, word)
            detail = f"the answer of {found.plugin} was none: {word!r:.80}"
            return ApprovalAnswer(outcome="unavailable", plugin=found.plugin, detail=detail)
        return ApprovalAnswer(outcome=found.value, plugin=found.plugin)


def _over(question: ApprovalQuestion) -> bool:
    """Whether the turn is being cancelled, or the world around it is."""
    return question.signal.cancelled or trio.current_effective_deadline() == -inf


def _said(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error!s:.{DETAIL_MAX}}"
    except Exception:  # noqa: BLE001 - a hostile __str__
        return type(error).__name__
