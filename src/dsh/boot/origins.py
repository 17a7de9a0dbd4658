"""Where the configured values of a composition were written.

What comes in: a plan, which a live edit may replace. What goes out: the place of one value of a
mounted row (the provider of ORIGINS), or every scalar that some layer sets, with its path and its
place: a file with line and column, a profile, or `--set`. It reads no file and judges nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from typing_extensions import override

from dsh.hooks import frozen
from dsh.seams.origins import Origins

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dsh.boot.nodes import Node
    from dsh.boot.plan import Plan

__all__ = ["PlanOrigins", "Written", "written_values"]


@final
class PlanOrigins(Origins):
    """Asks for the plan each time; replace `plan` once there is one that follows its files."""

    def __init__(self, plan: Callable[[], Plan]) -> None:
        self.plan = plan

    @override
    def of(self, plugin: str, *path: str | int) -> str | None:
        for one in self.plan().composition.mountables:
            if one.row.name == plugin:
                return str(one.row.config.at(path).place)
        return None


@frozen(slots=True)
class Written:
    """One value. `path` begins with the row's id; `place` is in words."""

    path: tuple[str, ...]
    value: str | int | float | bool | None
    place: str


def written_values(plan: Plan) -> Iterator[Written]:
    """Every value, row by row, in the order of the rows."""
    for row in plan.composition.mountables:
        yield from _below(row.row.config, (row.row.id,))


def _below(node: Node, path: tuple[str, ...]) -> Iterator[Written]:
    value = node.value
    if value is None or isinstance(value, str | int | float | bool):
        yield Written(path, value, str(node.place))
        return
    below = node.entries() or {str(at): item for at, item in enumerate(node.items())}
    for name, item in below.items():
        yield from _below(item, (*path, name))
