"""`dsh catalog`: which events there are, and what each carries.

What comes in: typed options. What goes out: a table of events, or the page of one, on standard
output. Events of installed distributions are shown too, whether or not their plugins are mounted.
Nothing is mounted, and no session is touched.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Final, TypeAlias, cast

import orjson
import trio

from dsh.boot import did_you_mean, process_environ
from dsh.catalog import reference
from dsh.cli.failures import explained
from dsh.cli.screen.outlet import OutletClosed
from dsh.cli.screen.outputs import open_screen
from dsh.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dsh.cli.grammar.catalog import CatalogOptions
    from dsh.cli.screen.outputs import Screen

__all__ = ["catalog"]

GROUP: Final = "dsh.catalogs"
#: Kind, purpose, and the lines of the page.
Page: TypeAlias = tuple[str, str, tuple[str, ...]]


def catalog(options: CatalogOptions) -> int:
    """Print what was asked for. Exit code 0, or 2 when there is no such event."""
    screen = open_screen(options.color, process_environ())
    try:
        code = trio.run(_show, options, screen)
    except OutletClosed as error:
        code = 141 if error.broken else 1
    except BaseException as error:  # noqa: BLE001 - the last frame: a person gets a sentence
        text, code = explained(error, debug=options.debug, before_session=True)
        screen.say(text)
    screen.finish()
    return code


def pages(screen: Screen) -> Mapping[str, Page]:
    """The pages of all catalogs here; one that cannot be imported is named and left out."""
    found: dict[str, Page] = dict(reference.EVENTS)
    for entry in entry_points(group=GROUP):
        name = f"{entry.module}.reference"
        try:
            found |= cast("Mapping[str, Page]", import_module(name).EVENTS)
        except Exception as error:  # noqa: BLE001 - a foreign module may raise anything
            owner = f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.value
            screen.say(
                f"the catalog {entry.name!r} of {owner} cannot be shown: "
                f"{type(error).__name__}: {error}\n"
            )
    return found


async def _show(options: CatalogOptions, screen: Screen) -> int:
    known = pages(screen)
    if options.event is not None:
        if options.event not in known:
            hint = did_you_mean(options.event, known)
            raise UsageError(f"no event named {options.event!r}{hint} See: dsh catalog list")
        kind, purpose, lines = known[options.event]
        if options.json:
            _data(screen, options.event, kind, purpose, page="\n".join(lines))
        else:
            screen.out.text("\n".join(lines) + "\n")
    else:
        _list(options, known, screen)
    await screen.flushed()
    return 0


def _list(options: CatalogOptions, known: Mapping[str, Page], screen: Screen) -> None:
    kinds = sorted({page[0] for page in known.values()})
    if options.kind is not None and options.kind not in kinds:
        hint = did_you_mean(options.kind, kinds)
        raise UsageError(f"no kind of event {options.kind!r}{hint} Kinds: {', '.join(kinds)}")
    rows = [
        (name, kind, purpose)
        for name, (kind, purpose, _) in sorted(known.items())
        if options.kind in {None, kind}
    ]
    wide = max(len(name) for name, _, _ in rows)
    for name, kind, purpose in rows:
        if options.json:
            _data(screen, name, kind, purpose)
        else:
            screen.out.text(f"{name:<{wide}}  {kind:<9}  {purpose.replace('`', '')}\n")


def _data(screen: Screen, name: str, kind: str, purpose: str, **more: str) -> None:
    screen.out.data(orjson.dumps({"name": name, "kind": kind, "purpose": purpose, **more}) + b"\n")
