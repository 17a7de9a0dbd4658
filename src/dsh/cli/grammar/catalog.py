"""The grammar of `dsh catalog`.

What comes in: argparse's commands, and what it read. What goes out: typed options. Whether an event
exists is decided later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, cast

from dsh.cli.grammar.shared import Shared, add_shared, common
from dsh.hooks import frozen

if TYPE_CHECKING:
    from dsh.cli.grammar.shared import Commands

__all__ = ["CatalogOptions", "add_catalog", "catalog_options"]


@frozen(kw_only=True, slots=True)
class CatalogOptions(Shared):
    """`dsh catalog ACTION`. `event` is what `show` shows; `kind` limits `list`."""

    action: Literal["list", "show"]
    event: str | None
    kind: str | None
    json: bool


def add_catalog(commands: Commands) -> None:
    """The command's own grammar."""
    parser = commands.add_parser(
        "catalog", help="the events there are, and what they carry", allow_abbrev=False
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="every event: kind and purpose", allow_abbrev=False)
    listing.add_argument("--kind", metavar="KIND", help="only these: durable, waterfall, emit, ...")
    listing.add_argument("--json", action="store_true", help="one event a line")
    add_shared(listing)
    show = actions.add_parser("show", help="everything about one event", allow_abbrev=False)
    show.add_argument("event", metavar="EVENT", help="its name, as in turn/start")
    show.add_argument("--json", action="store_true", help="as one JSON object")
    add_shared(show)


def catalog_options(given: dict[str, object]) -> CatalogOptions:
    """The options, read."""
    return CatalogOptions(
        **common(given),
        action=cast('Literal["list", "show"]', given["action"]),
        event=cast("str | None", given.get("event")),
        kind=cast("str | None", given.get("kind")),
        json=given["json"] is True,
    )
