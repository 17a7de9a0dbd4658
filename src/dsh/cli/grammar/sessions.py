"""The grammar of `dsh sessions`.

What comes in: the holder of commands, and what argparse read. What goes out: its parsers, typed
options, and the words of its help. Whether a session exists is decided later.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast

from dsh.cli.grammar.shared import Commands, Shared, add_shared, common, number
from dsh.cli.grammar.view import add_telling
from dsh.hooks import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["SessionsOptions", "add_sessions", "sessions_options"]

Action: TypeAlias = Literal["list", "show", "messages", "verify", "fork", "replay", "salvage", "rm"]

SESSIONS: Final = """\
Sessions are logs. Looking at one changes nothing, and works while another dsh writes it.
SESSION is an id, the beginning of one, words of its title, or `last`: the newest one of this
directory.

  dsh sessions list                     what was done here, newest first
  dsh sessions show                     what happened, turn by turn
  dsh sessions show --format md         the newest one, to be pasted into an issue
  dsh sessions show last --saw          what the model was sent last, and what changed
  dsh sessions fork last --turn 2       a new session that begins with its first two turns
  dsh sessions fork last --turn 2.3     the same, up to the third step of the second turn
  dsh sessions replay last              the same again, without model and tools: what differs now?
  dsh sessions salvage ID               what a damaged log still gives, as a new session
"""


@frozen(kw_only=True, slots=True)
class SessionsOptions(Shared):
    """`dsh sessions ACTION`. `session` is None for `list`; `step` is `TURN.STEP`.

    `others` are the further sessions of `rm`, `at` a seq, `new_id` the id of the session to make.
    `until` is a turn or TURN.STEP. The last five are of `show`: a step's request, what it is
    compared with, one event, a pattern, a format.
    """

    action: Action
    session: str | None
    step: str | None
    turn: int | None
    everywhere: bool
    others: tuple[str, ...] = ()
    ids: bool = False
    until: str | None = None
    at: int | None = None
    new_id: str | None = None
    saw: bool = False
    versus: str | None = None
    seq: int | None = None
    grep: str | None = None
    form: str = "text"


def add_sessions(commands: Commands) -> None:
    """Add the command and its actions."""
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
    listing.add_argument("--ids", action="store_true", help="their ids alone, one a line")
    add_shared(listing)
    show = actions.add_parser("show", help="what happened, turn by turn", allow_abbrev=False)
    show.add_argument("session", metavar="SESSION", nargs="?", default="last")
    show.add_argument("--turn", type=number, metavar="N", help="this turn only")
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
    where.add_argument(
        "--turn",
        dest="until",
        metavar="N[.STEP]",
        help="up to the end of this turn, or of a step of it",
    )
    where.add_argument(
        "--at", type=number, metavar="SEQ", help="up to this event (default: newest)"
    )
    fork.add_argument("--id", dest="new_id", metavar="ID", help="of the new session")
    add_shared(fork)
    replay = actions.add_parser(
        "replay", help="run it again from its log; say what differs now", allow_abbrev=False
    )
    replay.add_argument("session", metavar="SESSION")
    replay.add_argument("--turn", type=number, metavar="N", help="this turn only")
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


def sessions_options(given: Mapping[str, object]) -> SessionsOptions:
    """What argparse read, typed."""
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
        ids=given.get("ids") is True,
        until=cast("str | None", given.get("until")),
        at=cast("int | None", given.get("at")),
        new_id=cast("str | None", given.get("new_id")),
        saw=given.get("saw") is True,
        versus=cast("str | None", given.get("versus")),
        seq=cast("int | None", given.get("seq")),
        grep=cast("str | None", given.get("grep")),
        form=cast("str", given.get("form") or "text"),
    )
