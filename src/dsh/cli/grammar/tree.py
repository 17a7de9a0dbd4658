"""The grammar as a tree of plain names: what completion and tests look at.

What comes in: the parsers as argparse has them. What goes out: for each command its sub-commands,
its options, and what their values are. It parses nothing.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, cast

from dsh.cli.grammar.arguments import grammar
from dsh.hooks import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dsh.cli.grammar.shared import Parser

__all__ = ["Node", "tree"]


@frozen(slots=True)
class Node:
    """One command. `files` are the options whose value is a path."""

    summaries: Mapping[str, str]
    options: tuple[str, ...]
    files: tuple[str, ...]
    takes_session: bool

    @property
    def commands(self) -> tuple[str, ...]:
        """The names of its sub-commands."""
        return tuple(self.summaries)


def tree() -> dict[str, Node]:
    """Every command by its path ("" is `dsh` itself, "sessions show" an action)."""
    found: dict[str, Node] = {}
    _walk(grammar(), "", found)
    return found


def _walk(parser: argparse.ArgumentParser, path: str, found: dict[str, Node]) -> None:
    options: list[str] = []
    files: list[str] = []
    summaries: dict[str, str] = {}
    below: dict[str, Parser] = {}
    takes_session = False
    # argparse has no public way to ask a parser what it knows.
    for action in parser._actions:  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        long = [name for name in action.option_strings if name.startswith("--")]
        options += long
        if action.type is Path:
            files += long
        if not action.option_strings and action.metavar == "SESSION":
            takes_session = True
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
            below = dict(cast("Mapping[str, Parser]", action.choices))
            listed = action._choices_actions  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
            summaries = {one.dest: one.help or "" for one in listed}
    found[path] = Node(summaries, tuple(options), tuple(files), takes_session)
    for name, inner in below.items():
        _walk(inner, f"{path} {name}".strip(), found)
