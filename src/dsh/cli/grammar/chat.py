"""The grammar of `dsh chat`, `dsh plugin new` and `dsh completion`.

What comes in: the holder of commands, and what argparse read. What goes out: their parsers, their
typed options, and the words of their help.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast

from dsh.cli.grammar.shared import Commands, Parser, Shared, add_shared, common
from dsh.hooks import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "PICK",
    "ChatOptions",
    "CompletionOptions",
    "NewPluginOptions",
    "Shell",
    "add_chat",
    "add_making",
    "chat_options",
    "completion_options",
    "new_plugin_options",
]

Shell: TypeAlias = Literal["bash", "zsh", "fish"]
#: What `--resume` without a value asks for: choose from a list.
PICK: Final = ""

CHAT: Final = """\
A conversation in your terminal. Finished lines go to the scrollback and stay there; the last lines
show what is going on. What the rules do not allow is asked, with the whole call in sight.

  dsh chat                          begin
  dsh chat "why does it fail?"      begin with this prompt
  dsh chat --resume                 choose a session to go on with
  dsh chat --resume last            the newest one of this directory
  dsh chat --profile demo           no key, no network, a scripted model
  dsh chat --plain                  whole lines only: screen readers, pipes, dumb terminals

Enter sends; while it works, Enter steers its next step and Up takes that back. Alt-Enter makes a
new line. Ctrl-C stops the turn, again leaves. /help lists the rest.
"""

PLUGIN: Final = """\
Makes a plugin you can type-check: one hook, one tool, a configuration, tests, the mypy preset.

  dsh plugin new token-guard
  cd token-guard && pip install -e . && dsh chat --profile demo
"""

COMPLETION: Final = """\
Prints a completion script.

  bash   dsh completion bash > ~/.local/share/bash-completion/completions/dsh
  zsh    dsh completion zsh > "${fpath[1]}/_dsh"
  fish   dsh completion fish > ~/.config/fish/completions/dsh.fish
"""


@frozen(kw_only=True, slots=True)
class ChatOptions(Shared):
    """`dsh chat`. `prompt` is sent first; `resume` is "" for a list to choose from."""

    prompt: str | None
    provider: str | None
    model: str | None
    session: str | None
    resume: str | None
    allow: tuple[str, ...]
    yolo: bool
    plain: bool


@frozen(kw_only=True, slots=True)
class NewPluginOptions:
    """`dsh plugin new NAME`. `into`: the directory in which the plugin's own one is made."""

    name: str
    into: Path
    check: bool


@frozen(kw_only=True, slots=True)
class CompletionOptions:
    """`dsh completion SHELL`."""

    shell: Shell


def _command(commands: Commands, name: str, summary: str, about: str) -> Parser:
    return commands.add_parser(
        name,
        help=summary,
        description=about,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def add_chat(commands: Commands) -> None:
    """Add `dsh chat`."""
    chat = _command(commands, "chat", "talk with it in this terminal", CHAT)
    chat.add_argument("prompt", nargs="?", metavar="PROMPT", help="what to begin with")
    chat.add_argument("--provider", metavar="NAME", help="a row under openai-chat.providers")
    chat.add_argument("--model", metavar="NAME", help="the provider's name of the model")
    which = chat.add_mutually_exclusive_group()
    which.add_argument(
        "--session", metavar="ID", help="this very session: created, or resumed if it exists"
    )
    which.add_argument(
        "--resume",
        metavar="ID",
        nargs="?",
        const=PICK,
        help="an existing session: id, words of its title, or `last`; alone: choose from a list",
    )
    chat.add_argument(
        "--allow",
        metavar="TOOL[:pattern]",
        action="append",
        default=[],
        help="allow a tool, or the calls whose subject matches the pattern, without asking",
    )
    chat.add_argument("--yolo", action="store_true", help="allow every tool call")
    chat.add_argument("--plain", action="store_true", help="whole lines, nothing is redrawn")
    add_shared(chat)


def add_making(commands: Commands) -> None:
    """Add `dsh plugin new` and `dsh completion`."""
    plugin = _command(commands, "plugin", "make a plugin of your own", PLUGIN)
    actions = plugin.add_subparsers(dest="action", metavar="ACTION", required=True)
    new = _command(actions, "new", "a typed plugin with a hook, a tool and tests", PLUGIN)
    new.add_argument("name", metavar="NAME", help="small letters, digits and dashes")
    new.add_argument(
        "--in", dest="into", metavar="DIR", type=Path, default=Path(), help="where to make it"
    )
    new.add_argument(
        "--no-check", action="store_true", help="do not run mypy and the tests of what was made"
    )
    completion = _command(commands, "completion", "a script for your shell's Tab key", COMPLETION)
    completion.add_argument("shell", choices=("bash", "zsh", "fish"))


def chat_options(given: Mapping[str, object]) -> ChatOptions:
    """The typed options of `dsh chat`."""
    shared = common({**given, "profile": given["profile"] or "chat"})
    return ChatOptions(
        **shared,
        prompt=cast("str | None", given["prompt"]),
        provider=cast("str | None", given["provider"]),
        model=cast("str | None", given["model"]),
        session=cast("str | None", given["session"]),
        resume=cast("str | None", given["resume"]),
        allow=tuple(cast("list[str]", given["allow"])),
        yolo=given["yolo"] is True,
        plain=given["plain"] is True,
    )


def new_plugin_options(given: Mapping[str, object]) -> NewPluginOptions:
    """The typed options of `dsh plugin new`."""
    return NewPluginOptions(
        name=cast("str", given["name"]),
        into=cast("Path", given["into"]),
        check=given["no_check"] is not True,
    )


def completion_options(given: Mapping[str, object]) -> CompletionOptions:
    """The typed options of `dsh completion`."""
    return CompletionOptions(shell=cast("Shell", given["shell"]))
