"""The objects that carry one call through the pipeline: what listeners, guards and bodies see.

What comes in: identity, frozen arguments and the turn's signal. What goes out: read-only views of
them. An execution never changes: a rewrite makes a new one with the same token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import evolve
from typing_extensions import override

from dsh.hooks import frozen
from dsh.hooks.live import Agent, ToolExecution, ToolRun, TurnSignal
from dsh.tools.failures import wellformed

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsh.catalog import records
    from dsh.hooks import JsonValue

__all__ = ["CallInput", "CallToken", "Execution", "Run", "asked_about"]


class CallToken:
    """The opaque identity of one call, through a rewrite and into nested calls."""

    __slots__ = ("__weakref__",)


@frozen(kw_only=True, slots=True, eq=False)
class CallInput:
    """One call as it enters the pipeline.

    `arguments` may be any object: it is snapshotted and frozen first. `problem` says that a model's
    text could not be read (`arguments` is then that text). `parent` is the token of the call whose
    body makes this one. `progress` gets live output for displays. `root_call_id` defaults to
    `call_id`.
    """

    call_id: str
    name: str
    arguments: object
    signal: TurnSignal
    agent: Agent | None = None
    cwd: str = "/"
    parent: object | None = None
    root_call_id: str | None = None
    problem: str | None = None
    progress: Callable[[str], None] | None = None


@frozen(slots=True, eq=False)
class Execution(ToolExecution):
    """What policies see of a call. `asked`: a person decides about exactly these arguments."""

    _given: CallInput
    _arguments: JsonValue
    _token: CallToken
    asked: bool = False

    @property
    @override
    def call_id(self) -> str:
        return self._given.call_id

    @property
    @override
    def root_call_id(self) -> str:
        root = self._given.root_call_id
        return root if root is not None else self._given.call_id

    @property
    @override
    def name(self) -> str:
        return self._given.name

    @property
    @override
    def arguments(self) -> JsonValue:
        return self._arguments

    @property
    @override
    def agent(self) -> Agent | None:
        return self._given.agent

    @property
    @override
    def parent(self) -> object | None:
        return self._given.parent

    @property
    @override
    def token(self) -> CallToken:
        return self._token

    @property
    @override
    def signal(self) -> TurnSignal:
        return self._given.signal

    @property
    @override
    def cwd(self) -> str:
        return self._given.cwd

    def with_arguments(self, arguments: JsonValue) -> Execution:
        """The same call with the arguments that a policy put in their place."""
        return Execution(self._given, arguments, self._token, self.asked)

    def with_question(self) -> Execution:
        """The same call, about which a person is (or was) asked."""
        return evolve(self, asked=True)


def asked_about(execution: ToolExecution) -> bool:
    """True in a guard if the pipeline asks, or asked, a person about these very arguments.

    A refusal by that person ends the call anyway; so a guard that wants a question asked may let
    the call pass when this is True, and must refuse it when it is False.
    """
    return isinstance(execution, Execution) and execution.asked


class Run(ToolRun):
    """What a body gets. It collects contexts and the wish to conclude until its call is settled."""

    __slots__ = ("_concluded", "_contexts", "_execution", "_progress", "_settled")

    def __init__(self, execution: Execution, progress: Callable[[str], None] | None) -> None:
        self._execution = execution
        self._progress = progress
        self._contexts: list[records.UserMessage] = []
        self._concluded = False
        self._settled = False

    @property
    def contexts(self) -> tuple[records.UserMessage, ...]:
        """What the body deferred so far, in order."""
        return tuple(self._contexts)

    @property
    def concluded(self) -> bool:
        """Whether the body asked that the turn ends after this batch."""
        return self._concluded

    def settle(self) -> None:
        """From here on the body is over; what it still holds of this object has no effect."""
        self._settled = True

    @override
    def defer_context(self, message: records.UserMessage) -> None:
        if not self._settled:
            self._contexts.append(message)

    @override
    def conclude_turn(self) -> None:
        if not self._settled:
            self._concluded = True

    @override
    def progress(self, text: str) -> None:
        if not self._settled and self._progress is not None:
            self._progress(wellformed(text))

    @property
    @override
    def call_id(self) -> str:
        return self._execution.call_id

    @property
    @override
    def root_call_id(self) -> str:
        return self._execution.root_call_id

    @property
    @override
    def name(self) -> str:
        return self._execution.name

    @property
    @override
    def arguments(self) -> JsonValue:
        return self._execution.arguments

    @property
    @override
    def agent(self) -> Agent | None:
        return self._execution.agent

    @property
    @override
    def parent(self) -> object | None:
        return self._execution.parent

    @property
    @override
    def token(self) -> CallToken:
        return self._execution.token

    @property
    @override
    def signal(self) -> TurnSignal:
        return self._execution.signal

    @property
    @override
    def cwd(self) -> str:
        return self._execution.cwd
