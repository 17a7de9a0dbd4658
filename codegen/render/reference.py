"""Renders `reference.py`: a page of plain text for each event, for terminals.

What comes in: a resolved catalog. What goes out: the text of a module that only `dsh catalog`
imports: kind, purpose and page of each event by name.
"""

from __future__ import annotations

import json
import textwrap
from typing import TYPE_CHECKING, Final

from attrs import frozen

from .events_doc import event_view
from .spelling import one_line, quoted
from .templating import header, render

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..model import Catalog, Domain, Event
    from ..samples import Samples
    from .events_doc import FieldView

__all__ = ["reference_module"]

WIDTH: Final = 96


@frozen
class PageView:
    """One event, ready to be laid out."""

    name: str
    kind: str
    purpose: str
    lines: tuple[str, ...]


def _wrapped(text: str, indent: str, hanging: str = "") -> list[str]:
    return textwrap.wrap(
        one_line(text.replace("`", "")),
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent + hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _fields(fields: Sequence[FieldView], indent: str) -> list[str]:
    lines: list[str] = []
    for field in fields:
        absent = f", {field.absent}" if field.absent else ""
        lines += _wrapped(f"{field.wire}: {field.type}{absent}. {field.doc}", indent, "    ")
    return lines


def _page(domain: Domain, event: Event, samples: Samples) -> PageView:
    view = event_view(domain, event)
    lines = [f"{event.name}  ({event.kind})", ""]
    lines += _wrapped(event.purpose, "  ")
    lines += ["", f"  in Python: {view.python}"]
    for name, value in view.facts:
        lines += _wrapped(f"{name}: {value}", "  ", "  ")
    lines += ["", "  payload" if view.fields else "  payload: none"]
    lines += _fields(view.fields, "    ")
    for answer in view.answers:
        lines += ["", *_wrapped(f"answer {answer.name}: {answer.doc}", "  ", "  ")]
        lines += _fields(answer.fields, "    ")
    if event.kind == "durable":
        sample = json.dumps(samples.of(event)[-1], ensure_ascii=False)
        lines += ["", "  for example"]
        lines += textwrap.wrap(
            sample,
            WIDTH,
            initial_indent="    ",
            subsequent_indent="    ",
            break_long_words=False,
            break_on_hyphens=False,
        )
    return PageView(
        quoted(event.name),
        quoted(event.kind),
        quoted(one_line(event.purpose)),
        tuple(map(quoted, lines)),
    )


def reference_module(catalog: Catalog, samples: Samples) -> str:
    """The text of `reference.py`."""
    return render(
        "reference.py.j2",
        header=header(catalog.home, catalog.command),
        pages=[
            _page(domain, event, samples) for domain in catalog.domains for event in domain.events
        ],
    )
