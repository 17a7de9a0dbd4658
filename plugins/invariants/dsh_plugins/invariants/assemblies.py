"""The assembly law: what comes out of `system-prompt/assemble` can be rendered and sent.

What comes in: an assembly. What goes out: what is wrong with it, in words, or nothing. Listeners
own their edits; only the shape is judged here, never the order or the wording.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from typing_extensions import TypeIs

from dsh.catalog import records
from dsh.hooks import live

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["assembly_fault"]


def assembly_fault(assembly: object) -> str | None:
    """The first fault of an assembly, or None."""
    if not isinstance(assembly, live.PromptAssembly):
        return f"it is {type(assembly).__name__}, not a PromptAssembly"
    for kind, texts in (("section", assembly.sections), ("context", assembly.contexts)):
        fault = _texts_fault(kind, texts)
        if fault is not None:
            return fault
    if sum(1 for each in assembly.sections if each.complete and each.text.strip()) > 1:
        return "more than one section says that it is the whole prompt"
    return _tools_fault(assembly.tools) or _variables_fault(assembly.variables)


def _texts_fault(kind: str, texts: object) -> str | None:
    if not _is_tuple(texts):
        return f"its {kind}s are {type(texts).__name__}, not a tuple"
    named: list[str] = []
    for each in texts:
        if not isinstance(each, live.AssembledText):
            return f"a {kind} is {type(each).__name__}, not an AssembledText"
        if not each.name:
            return f"the {kind} {each.name!r} needs a name and a text"
        named.append(each.name)
    return _twice(kind, named)


def _tools_fault(tools: object) -> str | None:
    if not _is_tuple(tools):
        return f"its tools are {type(tools).__name__}, not a tuple"
    named: list[str] = []
    for each in tools:
        if not isinstance(each, records.ToolSchema):
            return f"a tool is {type(each).__name__}, not a ToolSchema"
        if not each.name:
            return f"the tool {each.name!r} needs a name and parameters"
        named.append(each.name)
    return _twice("tool", named)


def _variables_fault(variables: Iterable[tuple[str, str | None]]) -> str | None:
    return _twice("variable", [name for name, _ in variables])


def _is_tuple(value: object) -> TypeIs[tuple[object, ...]]:
    return isinstance(value, tuple)


def _twice(kind: str, names: Iterable[str]) -> str | None:
    repeated = sorted(name for name, count in Counter(names).items() if count > 1)
    return f"the {kind} {repeated[0]!r} is there twice" if repeated else None
