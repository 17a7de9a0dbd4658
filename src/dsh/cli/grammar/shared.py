"""The shared part of the grammar: options that every command takes, and how mistakes are told.

What comes in: argparse parsers of the commands. What goes out: the same with the shared options,
and their typed values. It knows no command.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NoReturn, TypeAlias, TypedDict, cast

from typing_extensions import override

from dsh.errors import UsageError
from dsh.hooks import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Color", "Commands", "Common", "Parser", "Shared", "add_shared", "common"]

Color: TypeAlias = Literal["auto", "always", "never"]


@frozen(kw_only=True, slots=True)
class Shared:
    """Options that every command takes."""

    debug: bool
    color: Color
    profile: str
    config: Path | None
    sets: tuple[str, ...]
    cwd: Path | None


class Parser(argparse.ArgumentParser):
    """argparse, with mistakes as UsageError: one sentence, and where help is."""

    @override
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see: {self.prog} --help")


#: What argparse calls the holder of sub-commands; it has no public name.
Commands: TypeAlias = "argparse._SubParsersAction[Parser]"  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def add_shared(parser: argparse.ArgumentParser) -> None:
    """Add the options that every command takes."""
    group = parser.add_argument_group("where it runs and with what")
    group.add_argument("--profile", metavar="NAME", help="demo, headless or chat")
    group.add_argument(
        "--config",
        metavar="FILE",
        type=Path,
        help="a composition in place of ./dsh.yml, accepted as it is",
    )
    group.add_argument(
        "--set",
        metavar="ID.path=value",
        action="append",
        default=[],
        dest="sets",
        help="set one configuration value of a row, as in agent-loop.maxParallelToolCalls=1",
    )
    group.add_argument(
        "--cwd", metavar="DIR", type=Path, help="the workspace (default: this directory)"
    )
    group = parser.add_argument_group("what it shows")
    group.add_argument("--debug", action="store_true", help="show tracebacks and details")
    group.add_argument(
        "--color",
        choices=("auto", "always", "never"),
        default="auto",
        help="auto follows the terminal and NO_COLOR",
    )


class Common(TypedDict):
    """What every command takes, read."""

    debug: bool
    color: Color
    profile: str
    config: Path | None
    sets: tuple[str, ...]
    cwd: Path | None


def common(given: Mapping[str, object]) -> Common:
    """The shared options as argparse read them, typed."""
    return Common(
        debug=given["debug"] is True,
        color=cast("Color", given["color"]),
        profile=cast("str | None", given["profile"]) or "headless",
        config=cast("Path | None", given["config"]),
        sets=tuple(cast("list[str]", given["sets"])),
        cwd=cast("Path | None", given["cwd"]),
    )
