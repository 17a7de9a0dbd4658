"""The first half of the pipeline: may this call run, and with which arguments?

What comes in: one execution with frozen arguments. What goes out: the execution that may run, with
its tool bound, or a refusal with the result the model reads. The order is fixed: lookup and
validation, `tools/pre-execute`, rewrite, guards, a person, guards again. Everything fails closed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, assert_never, cast

import orjson

from dsh import catalog as ev
from dsh.hooks import frozen
from dsh.seams.approval import ApprovalAnswer, ApprovalQuestion, ApprovalService
from dsh.tools.attempt import Broke, Done, Interrupted, attempt, stopped
from dsh.tools.failures import (
    INVALID_ARGS,
    UNKNOWN_TOOL,
    aborted,
    failed,
    failed_by,
)
from dsh.tools.tool import Bound, InvalidArguments, Tool

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsh.hooks import JsonObject, JsonValue
    from dsh.hooks.live import ToolFailed
    from dsh.kernel import CoreContext, Late
    from dsh.tools.execution import Execution
    from dsh.tools.guards import Guards
    from dsh.tools.registry import Registry

__all__ = ["Admitted", "Desk", "Refused", "RewriteNote", "admit", "bind", "same_json"]

#: Called before the guards with the plugin that rewrote the arguments, and the new ones.
RewriteNote: TypeAlias = "Callable[[str, JsonObject], None]"


@frozen(kw_only=True, slots=True, eq=False)
class Desk:
    """What every call of one runtime shares. `finish_timeout` is in seconds."""

    ctx: CoreContext
    registry: Registry
    guards: Guards
    approval: Late[ApprovalService]
    finish_timeout: float


@frozen(slots=True, eq=False)
class Admitted:
    """The call may run: these arguments, this tool."""

    execution: Execution
    tool: Tool
    bound: Bound


@frozen(kw_only=True, slots=True, eq=False)
class Refused:
    """The call does not run. `post`: its result still passes `tools/post-execute`."""

    execution: Execution
    result: ToolFailed
    post: bool = True
    decided_by: str | None = None


def same_json(left: JsonValue, right: JsonValue) -> bool:
    """Equality as JSON sees it: 1 is not true, and 1 is not 1.0."""
    return orjson.dumps(left) == orjson.dumps(right)


def bind(desk: Desk, execution: Execution, problem: str | None = None) -> Admitted | ToolFailed:
    """Look the visible tool up, live, and check the arguments against it."""
    scope = execution.agent.scope if execution.agent is not None else None
    view = desk.registry.view(scope)
    tool = view.tools.get(execution.name)
    if tool is None:
        return failed(view.missing(execution.name), code=UNKNOWN_TOOL)
    if problem is not None:
        return failed(f"{execution.name}: {problem}", code=INVALID_ARGS)
    try:
        return Admitted(execution, tool, tool.bind(execution.arguments))
    except InvalidArguments as error:
        listed = "; ".join(error.problems)
        return failed(f"invalid arguments for {execution.name}: {listed}", code=INVALID_ARGS)
    except Exception as error:  # noqa: BLE001 - fail closed, whatever a tool's own check raises
        return failed_by(error, prefix=f"the arguments of {execution.name} could not be checked: ")


async def admit(  # noqa: PLR0911 - each refusal returns where it is found
    desk: Desk, execution: Execution, problem: str | None, note: RewriteNote
) -> Admitted | Refused:
    """Take one call through lookup, policy, guards and approval.

    Interruptible at `tools/pre-execute` and at the approval; then the call was never started and is
    refused as ABORTED_BEFORE_DISPATCH. A denial that was given before the cancellation is kept.
    """
    ready = bind(desk, execution, problem)
    if not isinstance(ready, Admitted):
        # Nobody is asked about a call that can only fail.
        return Refused(execution=execution, result=ready)

    async def allow() -> ev.tools.PreExecuteDecision:
        return ev.tools.Allow()

    dispatch = desk.ctx.waterfall_by(ev.tools.PRE_EXECUTE)
    payload = ev.tools.PreExecute(exec=execution)
    outcome = await attempt(execution.signal, lambda: dispatch(payload, allow))
    match outcome:
        case Broke():
            return Refused(execution=execution, result=failed_by(outcome.error), post=False)
        case Interrupted():
            return _never_started(execution)
        case Done():
            decision, plugin = outcome.value.value, outcome.value.plugin
        case _:
            assert_never(outcome)
    if isinstance(decision, ev.tools.Deny):
        result = failed(decision.reason)
        return Refused(execution=execution, result=result, decided_by=plugin)
    if stopped(execution.signal):
        return _never_started(execution)
    if decision.arguments is not None and not same_json(decision.arguments, execution.arguments):
        rewritten = _rewrite(desk, execution, decision.arguments, plugin)
        if isinstance(rewritten, Refused):
            return rewritten
        ready = rewritten
        note(plugin if plugin is not None else "tools", decision.arguments)
    if isinstance(decision, ev.tools.Allow):
        return _guarded(desk, ready)
    asking = Admitted(ready.execution.with_question(), ready.tool, ready.bound)
    judged = _guarded(desk, asking)
    if isinstance(judged, Refused):
        return judged  # a guard's denial is final: nobody is asked
    refused = await _ask(desk, asking.execution, decision.reason, plugin)
    # What a guard knows may have changed while a person was reading.
    return refused if refused is not None else _guarded(desk, asking)


def _never_started(execution: Execution) -> Refused:
    return Refused(execution=execution, result=aborted(started=False))


def _rewrite(
    desk: Desk, execution: Execution, arguments: JsonObject, plugin: str | None
) -> Admitted | Refused:
    changed = execution.with_arguments(arguments)
    ready = bind(desk, changed)
    if isinstance(ready, Admitted):
        return ready
    told = f"plugin {plugin!r} rewrote the arguments into ones that do not fit: {ready.message}"
    code = ready.info.code if ready.info is not None else INVALID_ARGS
    return Refused(execution=changed, result=failed(told, code=code), decided_by=plugin)


def _guarded(desk: Desk, ready: Admitted) -> Admitted | Refused:
    refusal = desk.guards.judge(ready.execution)
    if refusal is None:
        return ready
    return Refused(
        execution=ready.execution,
        result=failed(refusal.reason),
        post=not refusal.broken,
        decided_by=refusal.plugin,
    )


async def _ask(  # noqa: PLR0911 - each refusal returns where it is found
    desk: Desk, execution: Execution, reason: str | None, asker: str | None
) -> Refused | None:
    why = f" ({reason})" if reason else ""
    remedy = f"allow it with --allow {execution.name}, or change the permission rules"

    def refused(text: str, *, by: str | None = asker, post: bool = True) -> Refused:
        return Refused(execution=execution, result=failed(text), post=post, decided_by=by)

    service, agent = desk.approval.current, execution.agent
    if service is None:
        return refused(f"approval is needed{why}, and no approval plugin is mounted; {remedy}")
    if agent is None:
        return refused(
            f"approval is needed{why}, and a call without an agent cannot be asked about"
        )
    question = ApprovalQuestion(
        agent=agent,
        tool_name=execution.name,
        call_id=execution.call_id,
        arguments=execution.arguments,
        reason=reason,
        signal=execution.signal,
        asked_by=asker,
    )
    outcome = await attempt(execution.signal, lambda: service.request(question))
    match outcome:
        case Broke():
            failure = failed_by(outcome.error, prefix="the approval could not be asked for: ")
            return Refused(execution=execution, result=failure, post=False)
        case Interrupted():
            return _never_started(execution)
        case Done():
            answer = cast("object", outcome.value)
        case _:
            assert_never(outcome)
    if not isinstance(answer, ApprovalAnswer):
        return refused(
            f"the approval answered {type(answer).__name__}, which is no answer", post=False
        )
    by = answer.plugin if answer.plugin is not None else asker
    if answer.outcome == "rejected":
        return refused(answer.detail or "the user rejected this call", by=by)
    if stopped(execution.signal):
        return _never_started(execution)  # also for an answer that came in the same tick
    nobody = answer.detail or "nobody is there to answer"
    texts: dict[str, str] = {
        "cancelled": "the question was withdrawn before anyone answered it",
        "unavailable": f"approval is needed{why}, and {nobody}; {remedy}",
    }
    outcome_word: str = answer.outcome
    if outcome_word == "allowed-once":
        return None
    if outcome_word in texts:
        return refused(texts[outcome_word], by=by)
    return refused(f"the approval answered {outcome_word!r}, which is no outcome", post=False)
