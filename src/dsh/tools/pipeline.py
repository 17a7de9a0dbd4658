"""One tool call, from its arguments to its frozen result: the stages, in their only order.

What comes in: a `CallInput`, and the desk with registry, guards and hooks. What goes out: a
`Finished` result, always exactly one. A failure of a tool, listener, guard or wrapper is a result,
never an exception; a cancellation becomes a result here and is the caller's to pass on. Scheduling
and the log belong to the caller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never, cast

import trio
from attrs import evolve

from dsh import catalog as ev
from dsh.errors import InvariantError
from dsh.hooks import EMPTY_OBJECT, frozen, frozen_json
from dsh.hooks.live import ToolResult, ToolSuccess
from dsh.tools.admission import Admitted, Desk, RewriteNote, admit, bind
from dsh.tools.attempt import Broke, Done, Interrupted, attempt, stopped
from dsh.tools.contract import accepted, from_wrapper, materialised, reviewed
from dsh.tools.execution import CallInput, CallToken, Execution, Run
from dsh.tools.failures import INVALID_ARGS, aborted, failed, failed_by, own_failure
from dsh.tools.streams import open_streams, reopened

if TYPE_CHECKING:
    from dsh.catalog.records import ContentBlock
    from dsh.hooks import Scope
    from dsh.hooks.live import ToolFailed
    from dsh.tools.tool import Bound

__all__ = ["Call", "Finished"]


@frozen(kw_only=True, slots=True, eq=False)
class Finished:
    """The frozen outcome of one call. `decided_by`: the plugin that denied, guarded or blocked."""

    result: ToolResult
    decided_by: str | None = None


class Call:
    """One call's way: `admit`, then `dispatch` if that said so, then `finish`. Each once.

    `abandon` takes the place of all three for a call that never starts.
    """

    def __init__(self, desk: Desk, given: CallInput, note: RewriteNote) -> None:
        self._desk = desk
        self._note = note
        self._problem = given.problem
        self._progress = given.progress
        self._result: ToolResult | None = None
        self._post = True
        self._decided_by: str | None = None
        self._admitted: Admitted | None = None
        self._run: Run | None = None
        self._body_result: ToolResult | None = None
        try:
            arguments = frozen_json(given.arguments)
        except Exception as error:  # noqa: BLE001 - a failure of this call alone, whatever was raised
            arguments = EMPTY_OBJECT
            # A programmer gave these, no model did: no policy sees them, nor what replaced them.
            told = f"the arguments of {given.name} are not JSON: {error!s:.400}"
            self._settle(failed(told, code=INVALID_ARGS), post=False)
        self._execution = Execution(given, arguments, CallToken())
        tool = desk.registry.view(self._scope()).tools.get(given.name)
        self._finalize = tool.finalize_content if tool is not None else None

    @property
    def execution(self) -> Execution:
        """What policies see of this call, with its arguments as they are now."""
        return self._execution

    @property
    def parallel(self) -> bool:
        """Whether the admitted arguments let the body overlap others. Only after `admit`."""
        if self._admitted is None:
            return False
        try:
            mode: object = self._admitted.bound.mode()
        except Exception:  # noqa: BLE001 - a failure of this call alone, whatever was raised
            return False
        return mode == "parallel"

    def _shows(self, text: str) -> None:
        if self._progress is not None:
            self._progress(text)
        self._desk.ctx.emit(ev.tools.Progress(exec=self._execution, text=text))

    def _scope(self) -> Scope | None:
        agent = self._execution.agent
        return agent.scope if agent is not None else None

    def _settle(self, result: ToolResult, *, post: bool = True, by: str | None = None) -> None:
        self._result, self._post = result, post
        if by is not None:
            self._decided_by = by

    async def admit(self) -> bool:
        """Policy, guards and approval. True: `dispatch` is due; False: the result is settled."""
        if self._result is not None:
            return False
        if stopped(self._execution.signal):
            self._settle(aborted(started=False), post=False)
            return False
        verdict = await admit(self._desk, self._execution, self._problem, self._note)
        self._execution = verdict.execution
        if isinstance(verdict, Admitted):
            self._admitted = verdict
            return True
        self._settle(verdict.result, post=verdict.post, by=verdict.decided_by)
        return False

    async def dispatch(self) -> None:
        """Run the body inside its wrappers, in a cancel scope of the signal, and wait for it.

        Returns whatever happens: a cancellation that is not the signal's is recorded too, and must
        be passed on by the caller once the result is kept.
        """
        signal = self._execution.signal
        around = self._desk.ctx.waterfall_by(ev.tools.EXECUTE)
        payload = ev.tools.Execute(exec=self._execution)
        outcome = await attempt(signal, lambda: around(payload, self._body))
        late = stopped(signal)
        started, deferred = self._run is not None, self._run.contexts if self._run else ()
        match outcome:
            case Broke():
                self._settle(failed_by(outcome.error, contexts=deferred), post=False)
                return
            case Interrupted():
                self._settle(aborted(started=started, contexts=deferred))
                return
            case Done():
                found: ToolResult = outcome.value.value
            case _:
                assert_never(outcome)
        if found is not self._body_result:
            found = from_wrapper(found, self._visible(), self._execution.name)
        contexts = (*deferred, *found.contexts)
        if late and isinstance(found, ToolSuccess):
            # It came too late for the turn. A failure of its own would be kept.
            self._settle(aborted(started=started, contexts=contexts))
        else:
            self._settle(evolve(found, contexts=contexts) if contexts else found)

    def _ready(self) -> Admitted | ToolFailed:
        """The tool as it is visible now, with these arguments; or why it cannot run."""
        admitted = self._admitted
        tool = self._desk.registry.view(self._scope()).tools.get(self._execution.name)
        if admitted is not None and tool is admitted.tool:
            return admitted
        return bind(self._desk, self._execution)

    def _visible(self) -> Bound | None:
        """The contract of the tool as it is visible now; None if it is gone or was never bound."""
        ready = self._ready() if self._admitted is not None else None
        return ready.bound if isinstance(ready, Admitted) else None

    async def _body(self) -> ToolResult:
        self._body_result = result = await self._run_body()
        return result

    async def _run_body(self) -> ToolResult:
        if stopped(self._execution.signal):
            return aborted(started=self._run is not None)
        ready = self._ready()
        if not isinstance(ready, Admitted):
            return ready
        run = self._run = Run(self._execution, self._shows)
        streams = open_streams()
        try:
            value = await ready.bound.run(run)
        except BaseException as error:  # a body may raise anything, SystemExit too
            own = own_failure(error)
            if own is None:
                raise
            return failed_by(own)
        finally:
            run.settle()
            closed = reopened(streams)
            if closed is not None:
                name = self._execution.name
                self._desk.ctx.log.warning(
                    "%s was closed while %s ran; it is /dev/null now", closed, name
                )
        result = accepted(ready.bound, self._execution.name, value)
        if run.concluded and isinstance(result, ToolSuccess):
            return evolve(result, concludes_turn=True)
        return result

    async def finish(self) -> Finished:
        """Review, finalise, freeze, and tell the observers. Shielded, at most `finish_timeout`.

        A call that started is finished also when everything around it is being cancelled.
        """
        if self._result is None:
            raise InvariantError(
                "a call was finished before it was settled; await `dispatch` first"
            )
        if self._post:
            self._result = await self._review(self._result)
        return self._seal(self._result)

    async def _review(self, result: ToolResult) -> ToolResult:
        desk = self._desk
        if not desk.ctx.heard(ev.tools.POST_EXECUTE):
            return result  # nobody to bound, and nothing to review

        async def accept() -> ev.tools.PostExecuteDecision:
            return ev.tools.Accept()

        around = desk.ctx.waterfall_by(ev.tools.POST_EXECUTE)
        payload = ev.tools.PostExecute(exec=self._execution, result=result)
        with trio.move_on_after(desk.finish_timeout, shield=True) as scope:
            try:
                answered = await around(payload, accept)
            except BaseException as error:
                own = own_failure(error)
                if own is None:
                    raise  # our own deadline
                return failed_by(own, contexts=result.contexts)
            if isinstance(answered.value, ev.tools.Block):
                self._decided_by = answered.plugin
            return reviewed(result, answered.value, self._visible(), self._execution.name)
        if scope.cancelled_caught:
            desk.ctx.log.warning(
                "tools/post-execute of call %s (%s) took longer than %g s; "
                "its result is kept as it was",
                self._execution.call_id,
                self._execution.name,
                desk.finish_timeout,
            )
        return result

    def abandon(self) -> Finished:
        """The outcome of a call that never starts, because the turn is over. No policy is asked."""
        if self._result is None:
            self._settle(aborted(started=False), post=False)
        assert self._result is not None
        return self._seal(self._result)

    def _seal(self, result: ToolResult) -> Finished:
        name = self._execution.name
        result = materialised(result, by=name)
        if self._finalize is not None:
            finalize, self._finalize = self._finalize, None
            try:
                content = finalize(self._execution, result)
            except Exception as error:  # noqa: BLE001 - a failure of this call alone, whatever was raised
                prefix = f"the final content of {name} could not be made: "
                result = failed_by(error, contexts=result.contexts, prefix=prefix)
            else:
                if content is not None:
                    # As it was given: what is no list of blocks becomes a failure there.
                    given = tuple(content) if isinstance(content, list) else content
                    made = cast("tuple[ContentBlock, ...]", given)
                    result = materialised(evolve(result, content=made), by=name)
        finished = Finished(result=result, decided_by=self._decided_by)
        self._desk.ctx.emit(ev.tools.Result(exec=self._execution, result=result))
        return finished
