"""The provider of ORIGINS: the places of the composition that runs.

What comes in: the plan, which a live edit may replace. What goes out: the place of any value of a
mounted row's configuration. It reads no file and keeps nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from typing_extensions import override

from dsh.seams.origins import Origins

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsh.boot.plan import Plan

__all__ = ["PlanOrigins"]


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
