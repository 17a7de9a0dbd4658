"""The shared part of the grammar: options that every command takes, and how mistakes are told.

What comes in: argparse parsers of the commands. What goes out: the same with the shared options,
and their typed values. It knows no command.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NoReturn, TypeAlias, TypedDict, cast

from typing_extensions import override

from dsh.boot import did_you_mean
from dsh.errors import UsageError
from dsh.hooks import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "Color",
    "Commands",
    "Common",
    "Parser",
    "Shared",
    "add_shared",
    "common",
    "nearest_option",
    "number",
]

#: argparse's own words, as far as there is more to say.
CHOICE: Final = re.compile(
    r"argument (\S+): invalid choice: '(.*)' \(choose from (.*)\)", re.DOTALL
)
MISSING: Final = re.compile(r"the following arguments are required: (.*)")
TAKES: Final = re.compile(r"argument (\S+): (takes .*)", re.DOTALL)
#: What may stand for a word of the grammar.
WANTED: Final = {
    "SESSION": "an id, the beginning of one, or `last`",
    "EVENT": "its name, as in turn/start",
    "NAME": "small letters, digits and dashes",
    "shell": "bash, zsh or fish",
}

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
        raise UsageError(f"{self._in_words(message)} See: {self.prog} --help")

    def _in_words(self, message: str) -> str:
        """What argparse says of a mistake, as a sentence that helps."""
        if (choice := CHOICE.fullmatch(message)) is not None:
            what, given, listed = choice.groups()
            choices = [one.strip(" '") for one in listed.split(",")]
            hint = did_you_mean(given, choices)
            if what.isupper():
                what = what.lower()
                return f"no {what} {given!r}{hint} There {_are(choices)}: {', '.join(choices)}."
            return f"{what} takes {', '.join(choices)}, not {given!r}{hint}"
        if (missing := MISSING.fullmatch(message)) is not None:
            names = missing[1]
            wanted = WANTED.get(names) or ", ".join(self.below)
            who = self.prog.removeprefix("dsh ")
            return f"{who} needs {names}" + (f": {wanted}." if wanted else ".")
        if (takes := TAKES.fullmatch(message)) is not None:
            return f"{takes[1]} {takes[2]}."
        return f"{message}."

    @property
    def below(self) -> dict[str, argparse.ArgumentParser]:
        """The parsers of its sub-commands."""
        # argparse has no public way to ask a parser what it knows.
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
                return dict(cast("Mapping[str, argparse.ArgumentParser]", action.choices))
        return {}


def _are(choices: Sequence[str]) -> str:
    return "is" if len(choices) == 1 else "are"


def number(text: str) -> int:
    """An argument that is a whole number."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"takes a whole number, not {text!r}") from None


def nearest_option(parser: Parser, path: Sequence[str], word: str) -> str:
    """The end of a sentence about an option that the command at `path` does not have."""
    found: argparse.ArgumentParser = parser
    for name in path:
        found = found.below.get(name, found) if isinstance(found, Parser) else found
    return did_you_mean(word, re.findall(r"--[a-z-]+", found.format_help()))


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
