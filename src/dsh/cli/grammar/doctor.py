"""The grammar of `dsh doctor`.

What comes in: the holder of commands, and what argparse read. What goes out: its parser, its typed
options, and the words of its help.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final, cast

from dsh.cli.grammar.shared import Commands, Shared, add_shared, common
from dsh.hooks import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["DoctorOptions", "add_doctor", "doctor_options"]

DOCTOR: Final = """\
What is wrong, where, and one thing to do about it. Nothing is sent anywhere without --online, and
nothing secret is shown. Exit code 1: something is to fix.

  dsh doctor                    installation, composition, plugins, keys, sessions, terminal
  dsh doctor --profile chat     the same for what `dsh chat` would run
  dsh doctor --online           and does the model answer?
  dsh doctor --values           which file or option each value comes from
  dsh doctor last               one session: can it be read, and gone on with?
"""


@frozen(kw_only=True, slots=True)
class DoctorOptions(Shared):
    """`dsh doctor`. `session`: look closely at this one."""

    json: bool
    online: bool
    values: bool
    session: str | None


def add_doctor(commands: Commands) -> None:
    """Add the command."""
    doctor = commands.add_parser(
        "doctor",
        help="is everything in order, and what is to do",
        description=DOCTOR,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    doctor.add_argument(
        "session",
        nargs="?",
        metavar="SESSION",
        help="look closely at this one: an id, the beginning of one, or `last`",
    )
    doctor.add_argument(
        "--online", action="store_true", help="send one small request to the profile's model"
    )
    doctor.add_argument(
        "--values", action="store_true", help="every configured value, and where it was written"
    )
    doctor.add_argument("--json", action="store_true", help="one finding a line")
    add_shared(doctor)


def doctor_options(given: Mapping[str, object]) -> DoctorOptions:
    """The typed options."""
    return DoctorOptions(
        **common(given),
        json=given["json"] is True,
        online=given["online"] is True,
        values=given["values"] is True,
        session=cast("str | None", given["session"]),
    )
