"""`dsh plugins`: which rows are mounted, from where, and who listens to what, in which order.

What comes in: typed options. What goes out: a table, the chain of one event, or JSON lines, on
standard output. The house is mounted as a run would mount it, without the agents that it declares,
and unmounted again; no request is sent and no session is touched.
"""

from __future__ import annotations

import gc
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Final

import orjson
import trio
from attrs import asdict

from dsh.boot import Row, RowView, chain_of, mounted, planned, process_environ, rows_of
from dsh.cli.failures import explained
from dsh.cli.screen.inert import one_line
from dsh.cli.screen.outlet import OutletClosed
from dsh.cli.screen.outputs import open_screen

if TYPE_CHECKING:
    from dsh.boot import Harness
    from dsh.cli.grammar.arguments import PluginsOptions
    from dsh.cli.screen.outputs import Screen
    from dsh.kernel import ListenerRow

__all__ = ["NO_AGENTS", "plugins"]

#: Looking must not start anything.
NO_AGENTS: Final = Row(name="agent-loop", config={"agents": []})
HEAD: Final = ("row", "plugin", "from", "slot", "state")


def plugins(options: PluginsOptions) -> int:
    """Print what is mounted. Exit code 0, or 2 when the composition is refused."""
    screen = open_screen(options.color, process_environ())
    # What is wrong with a row stands in its line.
    logging.getLogger("dsh").handlers[:] = [logging.NullHandler()]
    logging.getLogger("dsh").propagate = False
    gc.freeze()
    gc.enable()
    try:
        code = trio.run(_show, options, screen)
    except OutletClosed as error:
        code = 141 if error.broken else 1
    except BaseException as error:  # noqa: BLE001 - the last frame: a person gets a sentence
        text, code = explained(error, debug=options.debug, before_session=True)
        screen.say(text)
    screen.finish()
    return code


async def _show(options: PluginsOptions, screen: Screen) -> int:
    plan = planned(
        options.config,
        profile=options.profile,
        rows=(NO_AGENTS,),
        sets=options.sets,
        cwd=options.cwd,
    )
    async with mounted(plan) as harness:
        if options.order is not None:
            _order(harness, options.order, screen, as_json=options.json)
        elif options.json:
            for view in rows_of(harness):
                screen.out.data(orjson.dumps(asdict(view)) + b"\n")
        else:
            for line in _table(rows_of(harness)):
                screen.out.text(line + "\n")
        await screen.flushed()
    return 0


def _order(harness: Harness, event: str, screen: Screen, *, as_json: bool) -> None:
    """The chain of one event, outermost first."""
    chain = chain_of(harness, event)
    for number, row in enumerate(chain, 1):
        if as_json:
            screen.out.data(orjson.dumps(asdict(row)) + b"\n")
        else:
            first = "first " if row.prepend else ""
            screen.out.text(f"{number}  {row.plugin}  {first}slot {row.slot:g}  {_where(row)}\n")
    if not chain:
        screen.say(f"nobody listens to {event}\n")


def _table(views: tuple[RowView, ...]) -> list[str]:
    cells = [HEAD, *((v.id, v.plugin, v.distribution, f"{v.slot:g}", v.state) for v in views)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(HEAD))]
    lines = [_aligned(HEAD, widths)]
    for view, row in zip(views, cells[1:], strict=True):
        lines.append(_aligned(row, widths))
        if view.problem is not None:
            lines.append(f"    {one_line(view.problem)}")
        lines += [f"    {listener.event}  {_where(listener)}" for listener in view.listeners]
    return lines


def _aligned(row: tuple[str, ...], widths: list[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _where(row: ListenerRow) -> str:
    """Place, for whom, how often it ran; or why it never can."""
    path, _, line = row.place.rpartition(":")
    place = f"{'/'.join(Path(path).parts[-2:])}:{line}"
    scope = "" if row.scope is None else f"  for {row.scope}"
    tail = f"ran {row.runs}" if row.never is None else f"can never run: {row.never}"
    return f"{place}{scope}  {tail}"
