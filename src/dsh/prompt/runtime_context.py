"""Runtime context: a snapshot message, sent again only when the model does not have it.

What comes in: the contexts of an assembly, and the log (through a projection that knows the
retained snapshot). What goes out: one user message that is due, or none. It is only a proposal:
the snapshot counts as retained once its `user/message` is in the log, and no longer once a
replacement has taken it from the surface. Nothing is appended here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dsh import catalog as ev
from dsh.catalog import records
from dsh.hooks import frozen
from dsh.prompt.template import substitute
from dsh.session import Projection

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dsh.hooks import live
    from dsh.wire import StoredEvent

__all__ = [
    "CLEARED",
    "HEADING",
    "OWNER",
    "RUNTIME_CONTEXT",
    "Retained",
    "due_snapshot",
    "snapshot_text",
]

#: The plugin name that marks these messages.
OWNER: Final = "system-prompt"
HEADING: Final = "Facts about the current environment. They replace every earlier list of facts."
CLEARED: Final = "The earlier facts about the environment no longer apply; there are none now."


@frozen
class Retained:
    """The snapshot that is on the surface. `text` None: a malformed one, equal to nothing."""

    seq: int
    text: str | None


def _folded(state: Retained | None, event: StoredEvent) -> Retained | None:
    replaces = isinstance(event.surface_op, records.Replace)
    if state is not None and replaces and state.seq in (event.source_event_seqs or ()):
        state = None
    data = event.data
    if not isinstance(data, ev.user.Message) or not _owned(data.message.source):
        return state
    return Retained(event.seq, _only_text(data.message.content))


#: The newest owned snapshot that no replacement has shadowed.
RUNTIME_CONTEXT: Final[Projection[Retained | None]] = Projection(
    key="runtime-context",
    init=lambda: None,
    apply=_folded,
    events=(ev.user.MESSAGE, ev.system.MESSAGE, ev.assistant.MESSAGE, ev.tool.RESULT),
)


def _owned(source: records.MessageSource) -> bool:
    return (
        isinstance(source, records.PluginSource)
        and source.plugin == OWNER
        and source.form == "snapshot"
    )


def _only_text(content: Sequence[records.ContentBlock]) -> str | None:
    match content:
        case [records.TextBlock(text=text)]:
            return text
        case _:
            return None


def rendered_contexts(
    contexts: Sequence[live.AssembledText], values: Mapping[str, str | None]
) -> tuple[tuple[str, str], ...]:
    """Name and text of every context that has one, references substituted."""
    pairs = (
        (
            entry.name,
            substitute(entry.text, values, where=f"runtime context {entry.name!r}").strip(),
        )
        for entry in contexts
    )
    return tuple((name, text) for name, text in pairs if text)


def snapshot_text(sections: Sequence[tuple[str, str]]) -> str:
    """The one text of a full snapshot; "" without sections."""
    if not sections:
        return ""
    return "\n\n".join((HEADING, *(f"{name}:\n{text}" for name, text in sections)))


def due_snapshot(
    sections: Sequence[tuple[str, str]], retained: Retained | None, new_id: Callable[[], str]
) -> records.UserMessage | None:
    """The message that brings the model up to date, or None when it already is."""
    text = snapshot_text(sections)
    if not text:
        if retained is None:
            return None
        text = CLEARED
    if retained is not None and retained.text == text:
        return None
    return records.UserMessage(
        id=new_id(),
        content=(records.TextBlock(text=text),),
        source=records.PluginSource(
            plugin=OWNER,
            form="snapshot",
            sections=tuple(
                records.ContextSnapshotSection(name=name, text=body) for name, body in sections
            ),
        ),
    )
