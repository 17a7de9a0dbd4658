"""What a tool is: a typed async function with a schema, an output contract and its policies.

What comes in: an author's attrs class, function and options. What goes out: a `Tool` whose typed
inside is closed over, so that registry and pipeline need no generics and mypy still ties the
arguments and the result of the function. Nothing here runs a tool.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from math import isfinite
from typing import Final, Generic, Literal, TypeAlias, TypeVar, cast

import orjson

from dsh.catalog import records
from dsh.errors import PluginError
from dsh.hooks import InvalidJson, JsonObject, JsonValue, frozen, frozen_json, frozen_object
from dsh.hooks.live import ToolExecution, ToolResult, ToolRun
from dsh.tools.failures import wellformed
from dsh.tools.schema import ShapeError, shape_of

__all__ = [
    "Accepted",
    "Bound",
    "ExecutionMode",
    "FinalizeContent",
    "InvalidArguments",
    "InvalidOutput",
    "Output",
    "Subject",
    "SubjectOf",
    "Tool",
    "accept",
    "checked",
    "define_tool",
    "json_output",
    "typed_output",
]

A = TypeVar("A")
V = TypeVar("V")

ExecutionMode: TypeAlias = Literal["exclusive", "parallel"]
Rendered: TypeAlias = "str | Sequence[records.ContentBlock]"
FinalizeContent: TypeAlias = Callable[
    [ToolExecution, ToolResult], "Sequence[records.ContentBlock] | None"
]

NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
#: A transport of some providers claims this name for itself.
RESERVED: Final = frozenset({"run_code"})


class InvalidArguments(ValueError):
    """The model's arguments do not fit. `problems` has each fault with its path."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class InvalidOutput(ValueError):
    """What the body returned, or how it was rendered, breaks the tool's own contract."""


@frozen(kw_only=True, slots=True)
class Subject:
    """What a permission rule's pattern is matched against, whole.

    `kind` says how: a `command` lets no wildcard match shell syntax, a `path` outside the workspace
    (`outside`) is matched by absolute patterns only, `json` is the canonical text of the arguments.
    For a `path`, `text` is relative to the workspace and `absolute` is the resolved path.
    """

    kind: Literal["command", "path", "json"]
    text: str
    absolute: str | None = None
    outside: bool = False


#: From the final arguments and the workspace to the subject. May raise: then nothing matches.
SubjectOf: TypeAlias = Callable[[JsonValue, str], Subject]


@frozen(kw_only=True, slots=True)
class Accepted:
    """A value that passed the output contract, with what the model reads of it."""

    value: JsonValue
    content: tuple[records.ContentBlock, ...]
    meta: JsonValue | None


@frozen(kw_only=True, slots=True, eq=False)
class Bound:
    """A tool together with arguments that fit it."""

    mode: Callable[[], object]
    run: Callable[[ToolRun], Awaitable[object]]
    accept: Callable[[object], Accepted]


@frozen(kw_only=True, slots=True, eq=False)
class Tool:
    """A registered capability. Only name, description and parameters ever reach a model.

    `bind` raises InvalidArguments. `timeout` is in seconds and enforced by the timeout plugin.
    """

    name: str
    description: str
    parameters: JsonObject
    output_schema: JsonObject
    bind: Callable[[JsonValue], Bound]
    timeout: float | None = None
    finalize_content: FinalizeContent | None = None
    subject: SubjectOf | None = None


@frozen(kw_only=True, slots=True, eq=False)
class Output(Generic[A, V]):
    """An output contract: schema, check, and pure functions from (arguments, value) to content.

    `canonical` turns what a body returned into JSON; `restore` checks JSON against the contract.
    Both raise InvalidOutput. Made by `typed_output` or `json_output`.
    """

    schema: JsonObject
    canonical: Callable[[object], JsonValue]
    restore: Callable[[JsonValue], V]
    render: Callable[[A, V], Rendered] | None = None
    meta: Callable[[A, V], object] | None = None


def typed_output(
    cls: type[V],
    *,
    render: Callable[[A, V], Rendered] | None = None,
    meta: Callable[[A, V], object] | None = None,
) -> Output[A, V]:
    """A contract from a type: an attrs class, or `str` for plain text.

    Without `render` the model reads the text, or the value's JSON. `meta` projects private data
    for displays; it is logged, never sent to a model.
    """
    shape = shape_of(cls)

    def canonical(value: object) -> JsonValue:
        try:
            return shape.unstructure(value)
        except ShapeError as error:
            raise InvalidOutput(str(error)) from None

    def restore(value: JsonValue) -> V:
        try:
            return shape.structure(value)
        except ShapeError as error:
            raise InvalidOutput(str(error)) from None

    return Output(
        schema=shape.schema, canonical=canonical, restore=restore, render=render, meta=meta
    )


def json_output(
    *,
    render: Callable[[A, JsonValue], Rendered] | None = None,
    meta: Callable[[A, JsonValue], object] | None = None,
) -> Output[A, JsonValue]:
    """A contract that takes any lossless JSON value."""

    def canonical(value: object) -> JsonValue:
        try:
            return frozen_json(value)
        except (InvalidJson, RecursionError) as error:
            raise InvalidOutput(str(error) or "nested too deeply") from None

    return Output(
        schema=frozen_object({}),
        canonical=canonical,
        restore=lambda value: value,
        render=render,
        meta=meta,
    )


def _plain(value: JsonValue) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _blocks(rendered: object) -> tuple[records.ContentBlock, ...]:
    if isinstance(rendered, str):
        return (records.TextBlock(text=wellformed(rendered)),)
    if isinstance(rendered, list | tuple):
        return tuple(cast("Sequence[records.ContentBlock]", rendered))
    raise InvalidOutput(
        f"render returned {type(rendered).__name__}; return text or a list of content blocks"
    )


def accept(output: Output[A, V], args: A, value: object) -> Accepted:
    """Check, freeze and render one value. Raises InvalidOutput for a fault of the tool's own."""
    canonical = output.canonical(value)
    typed = output.restore(canonical)
    step = "render"
    try:
        if output.render is None:
            content = _blocks(_plain(canonical))
        else:
            content = _blocks(output.render(args, typed))
        step = "meta"
        meta = frozen_json(output.meta(args, typed)) if output.meta is not None else None
    except InvalidOutput:
        raise
    except Exception as error:
        raise InvalidOutput(f"{step} failed: {type(error).__name__}: {error!s:.400}") from error
    return Accepted(value=canonical, content=content, meta=meta)


def checked(name: str, timeout: float | None) -> None:
    """Refuse what no tool may be called or last. Raises PluginError (BAD_TOOL)."""
    if not NAME.fullmatch(name):
        raise PluginError(
            f"{name!r} cannot be a tool's name; use 1 to 64 of a-z A-Z 0-9 _ -", code="BAD_TOOL"
        )
    if name in RESERVED:
        raise PluginError(f"{name!r} is reserved; choose another tool name", code="BAD_TOOL")
    if timeout is not None and not (isfinite(timeout) and timeout > 0):
        raise PluginError(
            f"tool {name!r}: timeout={timeout!r}; give seconds > 0, or None for no deadline",
            code="BAD_TOOL",
        )


def define_tool(  # noqa: PLR0913 - the author's whole vocabulary, by keyword
    *,
    name: str,
    description: str,
    args: type[A],
    output: type[V] | Output[A, V],
    execute: Callable[[A, ToolRun], Awaitable[V]],
    execution_mode: ExecutionMode | Callable[[A], ExecutionMode] = "exclusive",
    timeout: float | None = None,
    finalize_content: FinalizeContent | None = None,
    subject: SubjectOf | None = None,
) -> Tool:
    """A tool from a typed async function.

    `args`: an attrs class; its fields become the parameters the model sees (`param` documents
    them). `output`: the class of the result (`str` for text), or an `Output` with a renderer.
    `execute` runs in its own cancel scope: on cancel it is cancelled there and waited for; it must
    not return before its own work stopped. `execution_mode`: anything that is not exactly
    "parallel" runs alone. `finalize_content` may replace the final content of every outcome; it is
    sync and sees a frozen result. `subject`: see `Subject`.

    Raises PluginError (BAD_TOOL): a bad name or timeout, or a type JSON Schema cannot say.
    """
    checked(name, timeout)
    shape = shape_of(args)
    if shape.schema.get("type") != "object" or "properties" not in shape.schema:
        raise PluginError(
            f"tool {name!r}: args must be an attrs class, not {args!r}", code="BAD_TOOL"
        )
    contract: Output[A, V] = output if isinstance(output, Output) else typed_output(output)

    def bind(arguments: JsonValue) -> Bound:
        try:
            typed = shape.structure(arguments)
        except ShapeError as error:
            raise InvalidArguments(error.problems) from None
        mode = execution_mode
        return Bound(
            mode=(lambda: mode(typed)) if callable(mode) else (lambda: mode),
            run=partial(execute, typed),
            accept=partial(accept, contract, typed),
        )

    return Tool(
        name=name,
        description=description,
        parameters=shape.schema,
        output_schema=contract.schema,
        bind=bind,
        timeout=timeout,
        finalize_content=finalize_content,
        subject=subject,
    )
