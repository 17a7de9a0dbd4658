"""Tools whose parameters are a JSON Schema that somebody else wrote: of an MCP server, of a file.

What comes in: a schema, a function of the checked arguments, options. What goes out: a `Tool` like
any other. The schema is compiled once, when the tool is made, and goes to the model unchanged; one
that cannot be used is refused then, so that it never spoils a request. Nothing is ever fetched.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NoReturn, Protocol, TypeVar, cast

from dsh.errors import PluginError, PluginNotFound
from dsh.hooks import InvalidJson, JsonObject, JsonValue, frozen_object
from dsh.tools.failures import wellformed
from dsh.tools.tool import Bound, InvalidArguments, Tool, accept, checked

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping

    from dsh.hooks.live import ToolRun
    from dsh.tools.tool import ExecutionMode, FinalizeContent, Output, SubjectOf

__all__ = ["raw_tool"]

V = TypeVar("V")

PROBLEMS_MAX: Final = 20
PROBLEM_LENGTH: Final = 300
#: Steps of the matcher for patterns that need backtracking; the others are linear.
BACKTRACK_MAX: Final = 100_000
#: Keywords that name another schema, which has to stand in the same document.
REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")


class _Fault(Protocol):
    """One violation, as the validator reports it."""

    message: str
    instance_path: list[str | int]


class _Checker(Protocol):
    """A compiled schema."""

    def iter_errors(self, instance: JsonValue) -> Iterator[_Fault]: ...


def raw_tool(  # noqa: PLR0913 - the author's whole vocabulary, by keyword
    *,
    name: str,
    description: str,
    parameters: Mapping[str, object],
    output: Output[JsonObject, V],
    execute: Callable[[JsonObject, ToolRun], Awaitable[V]],
    execution_mode: ExecutionMode | Callable[[JsonObject], ExecutionMode] = "exclusive",
    timeout: float | None = None,
    finalize_content: FinalizeContent | None = None,
    subject: SubjectOf | None = None,
) -> Tool:
    """A tool from a JSON Schema (draft 2020-12, or the one that `$schema` names) and a function.

    `parameters`: an object schema; `$ref` may point into it and nowhere else. Arguments are checked
    against it before any policy sees the call, synchronously: patterns are matched within a bound,
    so a check is as long as the arguments are. `execute` gets them frozen. The other options are
    those of `define_tool`.

    Raises PluginError (BAD_TOOL) naming the tool and what is wrong with its schema: leave that tool
    out and go on. Raises PluginNotFound if the extra `raw-tools` is not installed.
    """
    checked(name, timeout)
    schema = _object_schema(name, parameters)
    checker = _compiled(name, schema)

    def bind(arguments: JsonValue) -> Bound:
        if not isinstance(arguments, dict):
            raise InvalidArguments(("$: the arguments must be an object",))
        given: JsonObject = arguments
        problems = _problems(checker, given)
        if problems:
            raise InvalidArguments(problems)
        mode = execution_mode
        return Bound(
            mode=(lambda: mode(given)) if callable(mode) else (lambda: mode),
            run=partial(execute, given),
            accept=partial(accept, output, given),
        )

    return Tool(
        name=name,
        description=description,
        parameters=schema,
        output_schema=output.schema,
        bind=bind,
        timeout=timeout,
        finalize_content=finalize_content,
        subject=subject,
    )


def _refused(name: str, why: str) -> PluginError:
    return PluginError(f"tool {name!r}: its schema cannot be used: {why}", code="BAD_TOOL")


def _object_schema(name: str, parameters: object) -> JsonObject:
    """The schema as it will be sent: frozen, and said to be one of an object."""
    if not isinstance(parameters, dict):
        kind = type(parameters).__name__
        raise _refused(
            name, f"it is {kind}; arguments are an object, so it must be a schema of one"
        )
    try:
        schema = frozen_object(cast("object", parameters))
    except (InvalidJson, RecursionError) as error:
        raise _refused(name, str(error) or "it is nested too deeply") from None
    described = schema.get("type", "object")
    if described != "object":
        raise _refused(name, f"it describes {described!r}; arguments are an object")
    for place, target in _references(schema, "$"):
        if not isinstance(target, str) or not target.startswith("#"):
            raise _refused(name, f"{place} points to {target!r}, outside of it; nothing is fetched")
    # Servers refuse a schema without a type; arguments are an object in any case.
    return schema if "type" in schema else frozen_object({"type": "object", **schema})


def _references(part: JsonValue, path: str) -> Iterable[tuple[str, JsonValue]]:
    """Every reference with its place. Not below `properties`, where the keys are names."""
    if isinstance(part, tuple | list):
        for index, item in enumerate(part):
            yield from _references(item, f"{path}[{index}]")
    if not isinstance(part, dict):
        return
    for key, item in part.items():
        where = f"{path}.{key}"
        if key in REFERENCES:
            yield where, item
        elif key in ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"):
            for name, inner in item.items() if isinstance(item, dict) else ():
                yield from _references(inner, f"{where}.{name}")
        elif key not in ("enum", "const", "default", "examples"):
            yield from _references(item, where)


def _compiled(name: str, schema: JsonObject) -> _Checker:
    try:
        import jsonschema_rs as rs  # noqa: PLC0415 - an extra; only who uses raw tools needs it
    except ModuleNotFoundError:
        raise PluginNotFound(
            f"tool {name!r} has a JSON Schema of its own, which needs 'jsonschema_rs'; "
            "run: pip install 'dsh-trio[raw-tools]'"
        ) from None
    try:
        made = rs.validator_for(
            dict(schema),
            retriever=_never,
            pattern_options=rs.FancyRegexOptions(backtrack_limit=BACKTRACK_MAX),
        )
    except Exception as error:  # noqa: BLE001 - there is no common class for what it refuses
        raise _refused(name, f"{error!s:.{PROBLEM_LENGTH}}") from None
    return cast("_Checker", made)


def _never(uri: str) -> NoReturn:
    raise ValueError(f"{uri} stands outside of the schema; nothing is fetched")


def _problems(checker: _Checker, arguments: JsonObject) -> tuple[str, ...]:
    """What does not fit, with its path, at most so many."""
    found: list[str] = []
    try:
        for fault in checker.iter_errors(arguments):
            if len(found) == PROBLEMS_MAX:
                found.append("and more")
                break
            found.append(f"{_path(fault.instance_path)}: {_shortened(fault.message)}")
    except (ValueError, RecursionError) as error:
        found.append(f"$: the arguments cannot be checked: {_shortened(str(error))}")
    return tuple(found)


def _shortened(text: str) -> str:
    clean = wellformed(text)
    return clean if len(clean) <= PROBLEM_LENGTH else f"{clean[:PROBLEM_LENGTH]}…"


def _path(parts: list[str | int]) -> str:
    return "$" + "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in parts)
