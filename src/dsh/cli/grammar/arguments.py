"""The command line's grammar: which commands and options exist, and what their help says.

What comes in: the arguments of the process. What goes out: an argparse namespace read into typed
options. It checks the form only; whether a session, plugin or provider exists is decided later.
"""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast

from dsh.boot import did_you_mean
from dsh.cli.grammar.catalog import CatalogOptions, add_catalog, catalog_options
from dsh.cli.grammar.chat import (
    ChatOptions,
    CompletionOptions,
    NewPluginOptions,
    add_chat,
    chat_options,
    completion_options,
    new_plugin_options,
)
from dsh.cli.grammar.doctor import DoctorOptions, add_doctor, doctor_options
from dsh.cli.grammar.shared import Commands, Parser, Shared, add_shared, common
from dsh.cli.grammar.view import ViewOptions, add_telling, add_view, view_options
from dsh.errors import UsageError
from dsh.hooks import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = [
    "Command",
    "DoctorOptions",
    "PluginsOptions",
    "RunOptions",
    "SessionsOptions",
    "grammar",
    "read_arguments",
]

Action: TypeAlias = Literal["list", "show", "messages", "verify", "fork", "replay", "salvage", "rm"]

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

SESSIONS: Final = """\
Sessions are logs. Looking at one changes nothing, and works while another dsh writes it.
SESSION is an id, the beginning of one, or `last`: the newest one of this directory.

  dsh sessions list                     what was done here, newest first
  dsh sessions show last                what happened, turn by turn
  dsh sessions show last --saw          what the model was sent last, and what changed
  dsh sessions fork last --turn 2       a new session that begins with its first two turns
  dsh sessions replay last              the same again, without model and tools: what differs now?
  dsh sessions salvage ID               what a damaged log still gives, as a new session
"""


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
class SessionsOptions(Shared):
    """`dsh sessions ACTION`. `session` is None for `list`; `step` is `TURN.STEP`.

    `others` are the further sessions of `rm`, `at` a seq, `new_id` the id of the session to make.
    The last five are of `show`: a step's request, what it is compared with, one event, a pattern.
    """

    action: Action
    session: str | None
    step: str | None
    turn: int | None
    everywhere: bool
    others: tuple[str, ...] = ()
    at: int | None = None
    new_id: str | None = None
    saw: bool = False
    versus: str | None = None
    seq: int | None = None
    grep: str | None = None
    form: str = "text"


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


def _add_run(commands: Commands) -> Parser:
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
        "--resume", metavar="ID", help="an existing session: id, beginning of one, or `last`"
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
    return parser


def _add_sessions(commands: Commands) -> None:
    parser = commands.add_parser(
        "sessions",
        help="list, show, verify, fork, replay, salvage, remove what was run",
        description=SESSIONS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser(
        "list", help="the sessions of this directory, newest first", allow_abbrev=False
    )
    listing.add_argument("--all", action="store_true", dest="everywhere", help="of any directory")
    add_shared(listing)
    show = actions.add_parser("show", help="what happened, turn by turn", allow_abbrev=False)
    show.add_argument("session", metavar="SESSION")
    show.add_argument("--turn", type=int, metavar="N", help="this turn only")
    add_telling(show)
    add_shared(show)
    messages = actions.add_parser(
        "messages", help="the history the model reads, one JSON message a line", allow_abbrev=False
    )
    messages.add_argument("session", metavar="SESSION")
    messages.add_argument(
        "--step",
        metavar="TURN.STEP",
        help="what was sent at this step (default: all, with the last reply)",
    )
    add_shared(messages)
    verify = actions.add_parser(
        "verify", help="read every event and check the log's laws", allow_abbrev=False
    )
    verify.add_argument("session", nargs="?", metavar="SESSION")
    verify.add_argument("--all", action="store_true", dest="everywhere", help="every stored one")
    add_shared(verify)
    _add_copying(actions)


def _add_copying(actions: Commands) -> None:
    """The actions that make a session, or take one away."""
    fork = actions.add_parser(
        "fork", help="a new session that begins as this one does", allow_abbrev=False
    )
    fork.add_argument("session", metavar="SESSION")
    where = fork.add_mutually_exclusive_group()
    where.add_argument("--turn", type=int, metavar="N", help="up to the end of this turn")
    where.add_argument("--at", type=int, metavar="SEQ", help="up to this event (default: newest)")
    fork.add_argument("--id", dest="new_id", metavar="ID", help="of the new session")
    add_shared(fork)
    replay = actions.add_parser(
        "replay", help="run it again from its log; say what differs now", allow_abbrev=False
    )
    replay.add_argument("session", metavar="SESSION")
    replay.add_argument("--turn", type=int, metavar="N", help="this turn only")
    add_shared(replay)
    salvage = actions.add_parser(
        "salvage", help="what a damaged log still gives, as a new session", allow_abbrev=False
    )
    salvage.add_argument("session", metavar="SESSION")
    salvage.add_argument("--id", dest="new_id", metavar="ID", help="of the new session")
    add_shared(salvage)
    remove = actions.add_parser("rm", help="delete sessions for good", allow_abbrev=False)
    remove.add_argument("session", nargs="+", metavar="SESSION")
    add_shared(remove)


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
    "view": view_options,
}


def grammar() -> Parser:
    """The whole grammar, as argparse has it."""
    return _grammar()[0]


def _grammar() -> tuple[Parser, Parser]:
    """The parser of `dsh`, and the one of `dsh run`."""
    parser = _parser("dsh", ABOUT, EXITS)
    parser.add_argument("--version", action="store_true", help="print the version")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    run = _add_run(commands)
    add_chat(commands)
    _add_sessions(commands)
    add_view(commands)
    _add_looking(commands)
    add_catalog(commands)
    return parser, run


def read_arguments(arguments: Sequence[str]) -> Command:
    """The command that these arguments ask for.

    Raises UsageError for anything argparse refuses, and SystemExit(0) after printing help.
    """
    parser, run = _grammar()
    if not arguments:
        parser.print_help()
        raise SystemExit(2)
    namespace, unknown = parser.parse_known_args(arguments)
    given = cast("dict[str, object]", vars(namespace))
    if unknown:
        raise UsageError(_unknown(unknown[0], str(given["command"] or ""), run.format_help()))
    if given["command"] is None:
        parser.error("a command is missing: run, chat, sessions, view, plugins, doctor or catalog")
    match given["command"]:
        case "sessions":
            return _sessions(given)
        case "chat" | "plugin" | "completion" | "view" | "catalog" as named:
            return READERS[cast("str", named)](given)
        case "plugins":
            order = cast("str | None", given["order"])
            return PluginsOptions(**common(given), order=order, json=given["json"] is True)
        case "doctor":
            return doctor_options(given)
        case _:
            return _run(given)


def _unknown(word: str, command: str, help_of_run: str) -> str:
    """What is wrong with a word that nothing takes."""
    if command == "run" and not word.startswith("-"):
        return f"{word!r} comes after the prompt; put the whole prompt in quotes"
    options = re.findall(r"--[a-z]+", help_of_run) if command == "run" else ()
    hint = did_you_mean(word.partition("=")[0], options)
    return f"unknown option {word!r}{hint} See: {' '.join(('dsh', *command.split()))} --help"


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


def _sessions(given: dict[str, object]) -> SessionsOptions:
    named = given.get("session")
    first, *others = cast("list[str]", named) if isinstance(named, list) else [named]
    return SessionsOptions(
        **common(given),
        action=cast("Action", given["action"]),
        session=cast("str | None", first),
        step=cast("str | None", given.get("step")),
        turn=cast("int | None", given.get("turn")),
        everywhere=given.get("everywhere") is True,
        others=tuple(cast("list[str]", others)),
        at=cast("int | None", given.get("at")),
        new_id=cast("str | None", given.get("new_id")),
        saw=given.get("saw") is True,
        versus=cast("str | None", given.get("versus")),
        seq=cast("int | None", given.get("seq")),
        grep=cast("str | None", given.get("grep")),
        form=cast("str", given.get("form") or "text"),
    )
