"""Hook tokens: the generated constants that name an event and say how it may be answered.

What comes in: what the schema declares of an event. What goes out: a token whose type parameter is
exactly the listener a plugin must write, so that `ctx.on(TOKEN)` is checked by any type checker.
A token holds no listeners and dispatches nothing; that is the kernel's work.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import (
    TYPE_CHECKING,
    Final,
    Generic,
    Literal,
    Never,
    Protocol,
    TypeAlias,
    TypeVar,
    cast,
    final,
)

from typing_extensions import override

from dsh.hooks.classes import frozen
from dsh.hooks.payloads import AnyDurable, AnyNotice, CoreBarrier

if TYPE_CHECKING:
    from dsh.hooks.live import Session
    from dsh.hooks.scope import Scope

__all__ = [
    "Durable",
    "EffectHandle",
    "Emit",
    "ErrorPolicy",
    "Hook",
    "Logged",
    "Next",
    "Parallel",
    "Registrar",
    "Serial",
    "Stream",
    "StreamNext",
    "Waterfall",
]

F = TypeVar("F")
P = TypeVar("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
D = TypeVar("D", bound=AnyDurable)
D_co = TypeVar("D_co", covariant=True)
N = TypeVar("N", bound=AnyNotice)
B = TypeVar("B", bound=CoreBarrier)
C = TypeVar("C")
C_co = TypeVar("C_co", covariant=True)

#: propagate: to whoever dispatched. contain: log, go on. veto: the first failure is raised.
ErrorPolicy: TypeAlias = Literal["propagate", "contain", "veto"]


class Next(Protocol[R_co]):
    """The rest of the chain. Await it at most once, before your own listener returns."""

    def __call__(self) -> Coroutine[object, None, R_co]:
        """Run the rest of the chain and give its answer."""
        ...


class StreamNext(Protocol[C_co]):
    """The rest of a stream's chain: enter what it returns with `async with`."""

    def __call__(self) -> AbstractAsyncContextManager[AsyncIterator[C_co]]:
        """The rest of the chain's stream, not entered yet."""
        ...


@frozen(eq=False, slots=True)
class Logged(Generic[D_co]):
    """One committed event of a session log, as a listener gets it. Compared by identity.

    `seq` counts from 0 within the session; `time` is in epoch milliseconds.
    """

    seq: int
    time: int
    data: D_co
    session: Session


class EffectHandle(Protocol):
    """A reversible registration. It is undone when its plugin unloads, or earlier by `dispose`."""

    @property
    def label(self) -> str:
        """What was registered, for people."""
        ...

    @property
    def active(self) -> bool:
        """True until it is undone."""
        ...

    def dispose(self) -> bool:
        """Undo now, if undoing is synchronous. True if this call did it."""
        ...

    async def aclose(self) -> None:
        """Undo now and wait until it is done; joins an undoing that already runs."""
        ...


class Registrar(Generic[F]):
    """What `ctx.on(TOKEN)` returns: call it with the listener, or use it as a decorator."""

    __slots__ = ()

    def __call__(self, listener: F, /) -> EffectHandle:
        """Register the listener. Raises BadListener (its shape) and InactiveEffect."""
        raise NotImplementedError("only the kernel makes registrars; write `ctx.on(TOKEN)`")


class Hook(Generic[F]):
    """What all tokens share. `F` is the listener a plugin writes."""

    __slots__ = ("errors", "name", "owner", "payload", "scope_of")

    def __init__(
        self,
        name: str,
        payload: type,
        *,
        errors: ErrorPolicy,
        scope_of: Callable[[Never], Scope | None] | None,
        owner: str,
    ) -> None:
        self.name: Final = name
        self.payload: Final = payload
        self.errors: Final[ErrorPolicy] = errors
        # Each subclass takes a function of its own payload; the kernel calls it with that one.
        self.scope_of: Final = cast("Callable[[object], Scope | None] | None", scope_of)
        self.owner: Final = owner

    def _bind(self) -> None:
        """Let the payload class know its event, so that name and payload cannot disagree."""
        if "TOKEN" in self.payload.__dict__:
            raise TypeError(
                f"{self.payload.__qualname__} already belongs to {self.payload.TOKEN.name!r}; "  # type: ignore[attr-defined]
                "tokens are generated, use the one of the catalog"
            )
        self.payload.TOKEN = self  # type: ignore[attr-defined]

    @override
    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


@final
class Waterfall(Hook[Callable[[P, Next[R]], Awaitable[R]]], Generic[P, R]):
    """An onion of async listeners; each may answer, or await `call_next()` for the rest's answer.

    `answers` are the classes a listener may return; empty means: not checkable by class.
    `rerun` allows a second, later `call_next()` from the same listener.
    """

    __slots__ = ("answers", "rerun")

    def __init__(
        self,
        name: str,
        payload: type[P],
        *,
        answers: tuple[type, ...],
        errors: ErrorPolicy,
        scope_of: Callable[[P], Scope | None] | None,
        owner: str,
        rerun: bool = False,
    ) -> None:
        super().__init__(name, payload, errors=errors, scope_of=scope_of, owner=owner)
        self.answers: Final = answers
        self.rerun: Final = rerun


@final
class Stream(
    Hook[Callable[[P, StreamNext[C]], AbstractAsyncContextManager[AsyncIterator[C]]]], Generic[P, C]
):
    """An onion of async context managers around one stream of chunks."""

    __slots__ = ()

    def __init__(
        self,
        name: str,
        payload: type[P],
        *,
        errors: ErrorPolicy,
        scope_of: Callable[[P], Scope | None] | None,
        owner: str,
    ) -> None:
        super().__init__(name, payload, errors=errors, scope_of=scope_of, owner=owner)


@final
class Serial(Hook[Callable[[P], Awaitable[R | None]]], Generic[P, R]):
    """Async listeners, one after the other; every one runs, `None` means no vote."""

    __slots__ = ("answers",)

    def __init__(
        self,
        name: str,
        payload: type[P],
        *,
        answers: tuple[type, ...],
        errors: ErrorPolicy,
        scope_of: Callable[[P], Scope | None] | None,
        owner: str,
    ) -> None:
        super().__init__(name, payload, errors=errors, scope_of=scope_of, owner=owner)
        self.answers: Final = answers


@final
class Emit(Hook[Callable[[N], None]], Generic[N]):
    """A synchronous notice."""

    __slots__ = ()

    def __init__(
        self,
        name: str,
        payload: type[N],
        *,
        errors: ErrorPolicy,
        scope_of: Callable[[N], Scope | None] | None,
        owner: str,
    ) -> None:
        super().__init__(name, payload, errors=errors, scope_of=scope_of, owner=owner)
        self._bind()


@final
class Parallel(Hook[Callable[[B], Awaitable[None]]], Generic[B]):
    """An awaited notice: listeners run together, all of them, then failures are raised as one."""

    __slots__ = ()

    def __init__(
        self,
        name: str,
        payload: type[B],
        *,
        errors: ErrorPolicy,
        scope_of: Callable[[B], Scope | None] | None,
        owner: str,
    ) -> None:
        super().__init__(name, payload, errors=errors, scope_of=scope_of, owner=owner)
        self._bind()


@final
class Durable(Hook[Callable[[Logged[D]], None]], Generic[D]):
    """An event of the session log. Listeners hear it after it is committed and are contained.

    `version` counts the payload's stored shapes from 1. `surface` events become messages.
    `ignorable` lets a reader without this event's catalog keep the line and go on.
    """

    __slots__ = ("ignorable", "surface", "version")

    def __init__(
        self,
        name: str,
        payload: type[D],
        *,
        owner: str,
        surface: bool = False,
        ignorable: bool = False,
        version: int = 1,
    ) -> None:
        super().__init__(name, payload, errors="contain", scope_of=None, owner=owner)
        self.surface: Final = surface
        self.ignorable: Final = ignorable
        self.version: Final = version
        self._bind()
