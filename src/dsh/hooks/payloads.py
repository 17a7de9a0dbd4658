"""Marker bases of generated payload classes: who may append or emit them, said as types.

What comes in: nothing. What goes out: empty classes that the generated ones derive from. The
plugin-facing `Session` and `Context` accept `LogOnly` and `Notice`; the `Core…` ones are for the
rooms of dsh. Nothing here has behaviour.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from dsh.hooks.tokens import Durable, Emit, Parallel

__all__ = [
    "AnyDurable",
    "AnyNotice",
    "CoreBarrier",
    "CoreLogOnly",
    "CoreNotice",
    "CoreSurface",
    "LogOnly",
    "Notice",
]


class AnyDurable:
    """The data of one event of the session log."""

    __slots__ = ()
    TOKEN: ClassVar[Durable[AnyDurable]]


class LogOnly(AnyDurable):
    """A durable event that any plugin may append and the model never sees."""

    __slots__ = ()


class CoreLogOnly(AnyDurable):
    """A durable event that only the loop and the rooms of dsh append; the model never sees it."""

    __slots__ = ()


class CoreSurface(AnyDurable):
    """A durable event that becomes a message for the model. Plugins may only replace such nodes."""

    __slots__ = ()


class AnyNotice:
    """A live message to whoever listens; nothing is stored."""

    __slots__ = ()
    TOKEN: ClassVar[Emit[AnyNotice]]


class Notice(AnyNotice):
    """A notice that any plugin may emit."""

    __slots__ = ()


class CoreNotice(AnyNotice):
    """A notice that only the rooms of dsh emit."""

    __slots__ = ()


class CoreBarrier:
    """An awaited notice (`parallel`): every listener runs, then failures are raised together."""

    __slots__ = ()
    TOKEN: ClassVar[Parallel[CoreBarrier]]
