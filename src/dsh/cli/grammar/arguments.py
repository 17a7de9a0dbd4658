"""The command line's grammar: which commands and options exist, and what their help says.

What comes in: the arguments of the process. What goes out: an argparse namespace read into typed
options. It checks the form only; whether a session, plugin or provider exists is decided later.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from dsh.cli.grammar.catalog import CatalogOptions, add_catalog, catalog_options
from dsh.cli.grammar.chat import (
    ChatOptions,
    CompletionOptions,
    NewPluginOptions,
    add_chat,
    add_making,
    chat_options,
    completion_options,
    new_plugin_options,
)
from dsh.cli.grammar.doctor import DoctorOptions, add_doctor, doctor_options
from dsh.cli.grammar.sessions import SessionsOptions, add_sessions, sessions_options
from dsh.cli.grammar.shared import Commands, Parser, Shared, add_shared, common, nearest_option
from dsh.cli.grammar.view import ViewOptions, add_view, view_options
from dsh.errors import UsageError
from dsh.hooks import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = [
    "Command",
    "DoctorOptions",
    "PluginsOptions",
    "RunOptions",
    "grammar",
    "read_arguments",
]

ABOUT: Final = """\
An agent that works in your directory, with plugins you can check with mypy.

  dsh run --profile demo              see it work: no key, no network, a scripted model
  export DEEPSEEK_API_KEY=...         then, in a project:
  dsh run "why does the test fail?"   read-only tools; anything else needs --allow
  dsh run --allow 'bash:pytest *' "run the tests and explain"
  dsh chat                            a conversation: it asks before it changes anything
  dsh sessions list                   what was done here; every word is kept in a log
  dsh view --open                     the newest session as a page: times, requests, changes
"""

RUN: Final = """\
Runs one turn: the prompt, the model's steps, the final answer on standard output. Everything else
goes to standard error, so `dsh run "..." > answer.txt` keeps the answer alone.

  dsh run "explain src/money.py"
  git diff | dsh run -                         the prompt from standard input
  dsh run --allow write_file --allow 'bash:make *' "..."
  dsh run --resume last "and now the docs"     go on where the newest session here ended
  dsh run --json "..." | jq .type              one session event a line, as it is logged

Without --allow only reading inside the workspace is allowed. The pattern after the colon is
matched whole (* and ?): a command for bash, a path in the workspace for file tools.
Ctrl-C stops the turn and keeps what was said; twice leaves at once.
"""

EXITS: Final = """\
exit codes: 0 completed, 1 failed turn, 2 usage or configuration, 3 blocked or out of tokens,
130 cancelled"""


@frozen(kw_only=True, slots=True)
class RunOptions(Shared):
    """`dsh run`. `prompt` is `-` for standard input; None in the demo, which has its own."""

    prompt: str | None
    provider: str | None
    model: str | None
    session: str | None
    resume: str | None
    json: bool
    allow: tuple[str, ...]
    yolo: bool
    verbose: bool


@frozen(kw_only=True, slots=True)
class PluginsOptions(Shared):
    """`dsh plugins`. `order` is the event whose chain is asked for."""

    order: str | None
    json: bool


Command: TypeAlias = (
    RunOptions
    | SessionsOptions
    | PluginsOptions
    | DoctorOptions
    | ChatOptions
    | NewPluginOptions
    | CompletionOptions
    | CatalogOptions
    | ViewOptions
)


def _parser(prog: str, about: str, epilog: str | None = None) -> Parser:
    return Parser(
        prog=prog,
        description=about,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def _add_run(commands: Commands) -> None:
    parser = commands.add_parser(
        "run",
        help="run one turn and print the answer",
        description=RUN,
        epilog=EXITS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("prompt", nargs="?", metavar="PROMPT", help="`-` reads standard input")
    parser.add_argument("--provider", metavar="NAME", help="a row under openai-chat.providers")
    parser.add_argument("--model", metavar="NAME", help="the provider's name of the model")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--session", metavar="ID", help="this very session: created, or resumed if it exists"
    )
    which.add_argument(
        "--resume", metavar="ID", help="an existing session: id, words of its title, or `last`"
    )
    parser.add_argument(
        "--allow",
        metavar="TOOL[:pattern]",
        action="append",
        default=[],
        help="allow a tool, or the calls whose subject matches the pattern",
    )
    parser.add_argument("--yolo", action="store_true", help="allow every tool call")
    parser.add_argument("--json", action="store_true", help="print session events, one a line")
    parser.add_argument("--verbose", action="store_true", help="a line per tool, also in a pipe")
    add_shared(parser)


def _add_looking(commands: Commands) -> None:
    """The commands that look at the installation."""
    plugins = commands.add_parser(
        "plugins", help="what is mounted, and who listens to what", allow_abbrev=False
    )
    plugins.add_argument(
        "--order", metavar="EVENT", help="who hears this event, in order: agent/pre-step"
    )
    plugins.add_argument("--json", action="store_true", help="one row a line")
    add_shared(plugins)
    add_doctor(commands)


#: Commands whose options are read where their grammar stands.
READERS: Final[dict[str, Callable[[dict[str, object]], Command]]] = {
    "catalog": catalog_options,
    "chat": chat_options,
    "completion": completion_options,
    "plugin": new_plugin_options,
    "sessions": sessions_options,
    "view": view_options,
}


def grammar() -> Parser:
    """The whole grammar, as argparse has it."""
    parser = _parser("dsh", ABOUT, EXITS)
    parser.add_argument("--version", action="store_true", help="print the version")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    _add_run(commands)
    add_chat(commands)
    add_sessions(commands)
    add_view(commands)
    _add_looking(commands)
    add_catalog(commands)
    add_making(commands)
    return parser


def read_arguments(arguments: Sequence[str]) -> Command:
    """The command that these arguments ask for.

    Raises UsageError for anything argparse refuses, and SystemExit(0) after printing help.
    """
    parser = grammar()
    if not arguments:
        parser.print_help()
        raise SystemExit(2)
    namespace, unknown = parser.parse_known_args(arguments)
    given = cast("dict[str, object]", vars(namespace))
    if unknown:
        raise UsageError(_unknown(parser, unknown[0], given))
    if given["command"] is None:
        parser.error("a command is missing: run, chat, sessions, view, plugins, doctor or catalog")
    match given["command"]:
        case "sessions" | "chat" | "plugin" | "completion" | "view" | "catalog" as named:
            return READERS[cast("str", named)](given)
        case "plugins":
            order = cast("str | None", given["order"])
            return PluginsOptions(**common(given), order=order, json=given["json"] is True)
        case "doctor":
            return doctor_options(given)
        case _:
            return _run(given)


def _unknown(parser: Parser, word: str, given: Mapping[str, object]) -> str:
    """What is wrong with a word that nothing takes."""
    path = [str(one) for one in (given["command"], given.get("action")) if one is not None]
    if path in (["run"], ["chat"]) and not word.startswith("-"):
        return f"{word!r} comes after the prompt; put the whole prompt in quotes"
    what = "unknown option" if word.startswith("-") else "nothing takes"
    hint = nearest_option(parser, path, word.partition("=")[0])
    return f"{what} {word!r}{hint} See: {' '.join(('dsh', *path))} --help"


def _run(given: dict[str, object]) -> RunOptions:
    profile = cast("str | None", given["profile"]) or "headless"
    prompt = cast("str | None", given["prompt"])
    if prompt is None and profile != "demo":
        raise UsageError(
            'what should it do? write dsh run "PROMPT", or dsh run - to read it from standard input'
        )
    return RunOptions(
        **common(given),
        prompt=prompt,
        provider=cast("str | None", given["provider"]),
        model=cast("str | None", given["model"]),
        session=cast("str | None", given["session"]),
        resume=cast("str | None", given["resume"]),
        json=given["json"] is True,
        allow=tuple(cast("list[str]", given["allow"])),
        yolo=given["yolo"] is True,
        verbose=given["verbose"] is True,
    )
