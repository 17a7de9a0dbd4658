"""The live objects that payloads carry: abstract here, implemented by upper rooms.

What comes in: nothing at run time; catalog records are named for type checkers only. What goes
out: the interface a plugin may use of an agent, a session, a turn's signal, a tool call, a prompt.
Nothing here is ever stored, decoded, or resolved with `get_type_hints`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar, overload

from attrs import field

from dsh.hooks.classes import frozen
from dsh.hooks.history import History, Line
from dsh.hooks.payloads import CoreSurface, LogOnly

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
    from contextlib import AbstractAsyncContextManager, AbstractContextManager

    import trio

    from dsh.catalog import records
    from dsh.hooks.jsonvalue import JsonValue
    from dsh.hooks.scope import Scope
    from dsh.hooks.tokens import Logged

__all__ = [
    "Actor",
    "Agent",
    "AssembleContext",
    "AssembledText",
    "ChunkStream",
    "Failure",
    "LlmRequest",
    "PromptAssembly",
    "Session",
    "ToolExecution",
    "ToolFailed",
    "ToolResult",
    "ToolRun",
    "ToolSuccess",
    "TurnOutcome",
    "TurnSignal",
]

L = TypeVar("L", bound=LogOnly)
S = TypeVar("S", bound=CoreSurface)
T = TypeVar("T")

Failure: TypeAlias = Exception
Actor: TypeAlias = object
ChunkStream: TypeAlias = "AbstractAsyncContextManager[AsyncIterator[records.StreamChunk]]"


class TurnSignal(ABC):
    """Whether and why the current activity is being cancelled. One object per turn."""

    __slots__ = ()

    @property
    @abstractmethod
    def cancelled(self) -> bool:
        """True once a cause is recorded; it never becomes False again."""

    @property
    @abstractmethod
    def cause(self) -> records.CancelCause | None:
        """The first cause; later ones are ignored."""

    @abstractmethod
    async def wait(self) -> None:
        """Return when cancelled."""

    @abstractmethod
    def raise_if_set(self) -> None:
        """Raise the loop's own `TurnCancelled` if a cause is recorded."""

    @abstractmethod
    def scope(self) -> AbstractContextManager[trio.CancelScope]:
        """A cancel scope of this signal; entered already cancelled if a cause is recorded."""


class Session(ABC):
    """One session's log, as plugins may use it."""

    @property
    @abstractmethod
    def id(self) -> str:
        """The session's identity, chosen by whoever created it."""

    @property
    @abstractmethod
    def header(self) -> records.SessionHeader:
        """What was fixed when the session was created."""

    @property
    @abstractmethod
    def scope(self) -> Scope | None:
        """The scope of the agent this session belongs to, once it has one."""

    @property
    @abstractmethod
    def next_seq(self) -> int:
        """The seq the next append will get; equals the number of events."""

    @property
    @abstractmethod
    def closed(self) -> bool:
        """True once the write path is closed; an append raises SessionClosed then."""

    @overload
    def append(self, payload: L) -> Logged[L]: ...

    @overload
    def append(
        self, payload: S, *, surface: records.Replace, sources: Sequence[int]
    ) -> Logged[S]: ...

    @abstractmethod
    def append(
        self,
        payload: LogOnly | CoreSurface,
        *,
        surface: records.Replace | None = None,
        sources: Sequence[int] | None = None,
    ) -> Logged[LogOnly] | Logged[CoreSurface]:
        """Append one event: validated, frozen, committed and buffered for disk before it returns.

        Raises InvalidAppend (nothing changed), ReentrantAppend, SessionClosed.
        """

    @abstractmethod
    def batch(self) -> AbstractContextManager[None]:
        """Hold deliveries asked for by listeners until this block has finished publishing."""

    @abstractmethod
    def derive_messages(self) -> History[records.Message]:
        """The model-visible history: the surface, projected. Messages are shared and frozen.

        An immutable sequence, made in constant time; equal to a tuple of the same messages.
        """


@frozen(kw_only=True, slots=True)
class TurnOutcome:
    """How the turn ended that claimed a message. `text` is the last assistant text, or ""."""

    session_id: str
    turn: int
    reason: records.TurnEndReason
    text: str


class Agent(ABC):
    """One live agent: an inbox, a session, and a driver that runs turns."""

    @property
    @abstractmethod
    def id(self) -> str:
        """Equal to the session's id."""

    @property
    @abstractmethod
    def scope(self) -> Scope:
        """The tag of registrations that are for this agent only."""

    @property
    @abstractmethod
    def session(self) -> Session:
        """The session whose log this agent writes."""

    @property
    @abstractmethod
    def options(self) -> records.AgentOptions:
        """Provider, model and limits as asked for at creation."""

    @property
    @abstractmethod
    def parent(self) -> Agent | None:
        """The agent on whose behalf this one runs, if any."""

    @property
    @abstractmethod
    def status(self) -> Literal["idle", "running"]:
        """`running` while a turn is open; maintenance counts as idle."""

    @property
    @abstractmethod
    def turn(self) -> int:
        """The number of the newest turn; 0 before the first."""

    @abstractmethod
    def pending(self, target: records.InboxTarget) -> tuple[records.UserMessage, ...]:
        """What waits in one of the two inbox lists, in order."""

    @abstractmethod
    def send(
        self, message: records.UserMessage, *, target: records.InboxTarget, wakeup: bool
    ) -> None:
        """Put a message in the inbox. Inside a publication it is queued until that has finished."""

    @abstractmethod
    def followup(self, message: records.UserMessage) -> None:
        """A prompt for a turn of its own; wakes the agent."""

    @abstractmethod
    def steer(self, message: records.UserMessage) -> None:
        """Input for the next step; wakes the agent."""

    @abstractmethod
    def inject(self, message: records.UserMessage) -> None:
        """Input for the next step; does not wake the agent."""

    @abstractmethod
    def remove(self, message_id: str) -> bool:
        """Take a pending message back. False: it is not pending (any more)."""

    @abstractmethod
    def replace(self, message_id: str, message: records.UserMessage) -> bool:
        """Put another message in the place of a pending one. False: it is not pending."""

    @abstractmethod
    def clear(self) -> None:
        """Take all pending messages back."""

    @abstractmethod
    def wake(self) -> None:
        """Run what is parked in the inbox, if anything is."""

    @abstractmethod
    def cancel(self, cause: records.CancelCause, *, keep_inbox: bool = False) -> None:
        """Stop the current activity; the first cause wins. Immediate, never queued."""

    @abstractmethod
    async def when_idle(self) -> None:
        """Return when no activity remains, nor any that replaced it. What is logged is synced."""

    @abstractmethod
    async def ask(self, message: records.UserMessage) -> TurnOutcome:
        """`followup`, then wait for exactly the turn that claims this message."""

    @abstractmethod
    async def run_maintenance(self, job: Callable[[TurnSignal], Coroutine[object, None, T]]) -> T:
        """Run `job` while idle; input waits. Raises AgentBusy when not idle."""


class ToolExecution(ABC):
    """One tool call on its way through the pipeline. Arguments are frozen."""

    @property
    @abstractmethod
    def call_id(self) -> str:
        """The id the model gave the call."""

    @property
    @abstractmethod
    def root_call_id(self) -> str:
        """The id of the outermost call; equals `call_id` unless nested."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The tool's name as the model wrote it."""

    @property
    @abstractmethod
    def arguments(self) -> JsonValue:
        """Parsed and frozen. Text that is no JSON stays text; empty text is {}."""

    @property
    @abstractmethod
    def agent(self) -> Agent | None:
        """The agent whose call it is; None for a call made without one."""

    @property
    @abstractmethod
    def parent(self) -> object | None:
        """The token of the call that made this one, for a nested call."""

    @property
    @abstractmethod
    def token(self) -> object:
        """An identity that no two executions share."""

    @property
    @abstractmethod
    def signal(self) -> TurnSignal:
        """Says whether the turn is being cancelled."""

    @property
    @abstractmethod
    def cwd(self) -> str:
        """The session's working directory (the workspace), absolute; "/" for a call without one."""


class ToolRun(ToolExecution):
    """What a tool's body gets besides its arguments."""

    @abstractmethod
    def defer_context(self, message: records.UserMessage) -> None:
        """Inject `message` after this batch's results, if the call is accepted."""

    @abstractmethod
    def conclude_turn(self) -> None:
        """Ask that the turn ends after this batch, if this call succeeds."""

    @abstractmethod
    def progress(self, text: str) -> None:
        """Show live output to whoever watches; never logged, never sent to the model."""


@frozen(kw_only=True, slots=True)
class ToolSuccess:
    """A tool's success. `value` is canonical JSON; `content` is what the model reads."""

    value: JsonValue
    content: tuple[records.ContentBlock, ...]
    meta: JsonValue | None = None
    contexts: tuple[records.UserMessage, ...] = ()
    concludes_turn: bool = False


@frozen(kw_only=True, slots=True)
class ToolFailed:
    """A tool's failure. `info` names the error; `content` is what the model reads."""

    message: str
    content: tuple[records.ContentBlock, ...]
    info: records.ToolErrorInfo | None = None
    meta: JsonValue | None = None
    contexts: tuple[records.UserMessage, ...] = ()


ToolResult: TypeAlias = ToolSuccess | ToolFailed


@frozen(kw_only=True, slots=True)
class AssembledText:
    """One prompt section or runtime context after its provider ran."""

    name: str
    text: str
    order: int = 0
    complete: bool = False


@frozen(kw_only=True, slots=True)
class PromptAssembly:
    """The prompt of one step before rendering. A listener returns a changed copy."""

    sections: tuple[AssembledText, ...]
    contexts: tuple[AssembledText, ...]
    tools: tuple[records.ToolSchema, ...]
    variables: tuple[tuple[str, str | None], ...] = ()


@frozen(kw_only=True, slots=True)
class AssembleContext:
    """For whom the prompt is assembled."""

    agent: Agent | None
    scope: Scope | None
    signal: TurnSignal | None


def _history(messages: Iterable[records.Message]) -> History[records.Message]:
    return messages if isinstance(messages, History) else Line(messages).so_far()


@frozen(kw_only=True, slots=True, eq=False)
class LlmRequest:
    """One model request, complete and frozen. Compared by identity.

    `messages` may be given as any iterable. A request whose messages are those of a session, or
    come from one `Line` that only grows, costs an adapter only what is new in it.
    """

    provider: str
    model: str
    messages: History[records.Message] = field(converter=_history)
    tools: tuple[records.ToolSchema, ...] = ()
    reasoning_effort: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    session_id: str | None = None
    purpose: str | None = None
    system: str | None = None
    signal: TurnSignal | None = field(default=None, repr=False)
