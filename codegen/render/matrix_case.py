"""The pieces of the typing matrix: one case, and how listeners and payloads are spelt in it.

What comes in: events and fields. What goes out: lines of Python.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

from ..model import LiveType, Scalar
from .modules import answer_type
from .spelling import Speller

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..model import Event, Field

__all__ = ["ARG", "ATTR", "CALL", "Case", "Writer", "mark"]

ARG = ("arg-type", "reportArgumentType")
ATTR = ("attr-defined", "reportAttributeAccessIssue")
CALL = ("call-arg", "reportCallIssue")


def mark(line: str, codes: tuple[str, str]) -> str:
    """A line that must give exactly these errors."""
    return f"{line}  # E: {codes[0]} {codes[1]}"


@frozen
class Case:
    """One case: what it shows, and its code."""

    kind: str
    lines: list[str]


@frozen
class Writer:
    """Spells an event's parts as a plugin would, through `ev`."""

    domain: str
    prefix: Mapping[str, str]

    @property
    def speller(self) -> Speller:
        """Types as the matrix reaches them."""
        return Speller(self.prefix)

    def name(self, event: Event) -> str:
        """A word for function names."""
        return event.token.lower()

    def token(self, event: Event) -> str:
        """The token, as in `ev.turn.START`."""
        return f"{self.domain}{event.token}"

    def payload(self, event: Event) -> str:
        """The payload class, as in `ev.turn.Start`."""
        return f"{self.domain}{event.payload_class}"

    def answer(self, event: Event) -> str:
        """The type a listener returns."""
        if event.kind == "stream":
            return f"AbstractAsyncContextManager[AsyncIterator[{self.chunk(event)}]]"
        if event.answers:
            return f"{self.domain}{event.decision}"
        return answer_type(event, self.speller)

    def chunk(self, event: Event) -> str:
        """What a stream carries."""
        return self.speller.type(event.chunk or Scalar("json"))

    def event_parameter(self, event: Event) -> str:
        """The annotation of a listener's first parameter."""
        payload = self.payload(event)
        return f"Logged[{payload}]" if event.kind == "durable" else payload

    def next_parameter(self, event: Event) -> str:
        """The rest of a listener's parameters, a comma first."""
        if event.kind == "waterfall":
            return f", call_next: Next[{self.answer(event)}]"
        if event.kind == "stream":
            return f", call_next: StreamNext[{self.chunk(event)}]"
        return ""

    def returned(self, event: Event) -> str:
        """The annotation of what a right listener returns."""
        if event.kind in {"waterfall", "stream", "serial"}:
            return self.answer(event)
        return "None"

    def is_async(self, event: Event) -> bool:
        """True if listeners are async functions."""
        return event.kind in {"waterfall", "serial", "parallel"}

    def body(self, event: Event) -> str:
        """The last line of a right listener."""
        if event.kind == "waterfall":
            return "return await call_next()"
        if event.kind == "stream":
            return "return call_next()"
        return "return None" if event.kind == "serial" else "pass"

    def arguments(self, fields: Sequence[Field]) -> list[str]:
        """Parameters that have a right value for each field."""
        return [f"{field.name}: {self.speller.annotation(field)}" for field in fields]

    def construct(self, name: str, fields: Sequence[Field]) -> str:
        """A right construction, from parameters of the fields' names."""
        return f"{name}({', '.join(f'{field.name}={field.name}' for field in fields)})"


def is_checked(field: Field) -> bool:
    """False if the field takes any object, so that no checker can refuse one."""
    return field.type not in (
        Scalar("json"),
        Scalar("object"),
        LiveType("Actor"),
    ) and not _is_json_list(field)


def _is_json_list(field: Field) -> bool:
    return getattr(field.type, "item", None) == Scalar("json")
