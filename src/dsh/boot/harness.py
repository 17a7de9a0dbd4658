"""The harness: a plan mounted in a kernel, for as long as an `async with` block lasts.

What comes in: what `planned` decided. What goes out: a `Harness` with its agents, a context for the
embedding program's listeners, and the rows that could not become active. Leaving the block unloads
everything in reverse order; nothing of it outlives the block.
"""

from __future__ import annotations

import logging
import traceback
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar, final

import trio

from dsh.agent import AGENTS, Agents
from dsh.boot.composition import Mountable, Mounted
from dsh.boot.discovery import ROOMS_FOLDER
from dsh.boot.environ import environ_plugin
from dsh.boot.identities import Identities
from dsh.boot.origins import PlanOrigins
from dsh.boot.plan import Plan, planned
from dsh.errors import ConfigError
from dsh.kernel import Context, FiberProblem, Kernel, Plugin, ServiceKey, open_kernel
from dsh.seams.origins import ORIGINS

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

    from dsh.boot.live import Live
    from dsh.boot.rows import Row
    from dsh.hooks import Hook, Registrar
    from dsh.seams.environ import Environ

__all__ = ["Harness", "mounted", "open_harness"]

F = TypeVar("F")
S = TypeVar("S")

#: How long all rows together may take to become active.
START_SECONDS: Final = 30.0

_log: Final = logging.getLogger("dsh.boot")


@final
class Harness:
    """A running house. Made by `open_harness`, gone when its block is left.

    `context` is the program's own: what it registers is undone before any row is unloaded.
    `problems` has one line for every row that is not active.
    """

    def __init__(
        self,
        kernel: Kernel,
        context: Context,
        plan: Plan,
        problems: tuple[str, ...],
        rows: Sequence[Mounted],
        identities: Identities,
    ) -> None:
        self.kernel: Final = kernel
        self.context: Final = context
        self.plan: Final = plan
        self.problems: Final = problems
        self._rows: Final = rows
        self._identities: Final = identities
        self._live: Live | None = None

    @property
    def rows(self) -> Mapping[str, Mounted]:
        """The mounted rows by id, as of now."""
        if self._live is not None:
            return self._live.rows
        return {one.row.row.id: one for one in self._rows}

    @property
    def live(self) -> Live:
        """Reload plugins and follow an edited composition while the house runs."""
        if self._live is None:
            # Imported here: a run of one turn changes nothing while it runs.
            from dsh.boot.live import Live  # noqa: PLC0415

            self._live = Live(self.kernel, self.plan, self._rows, self._identities)
        return self._live

    def on(self, event: Hook[F], *, prepend: bool = False) -> Registrar[F]:
        """Listen: `harness.on(ev.turn.END)(listener)`, or as a decorator."""
        return self.context.on(event, prepend=prepend)

    @property
    def agents(self) -> Agents:
        """Create, resume and find agents. Raises ServiceMissing when the room is not active."""
        return self.service(AGENTS)

    def blamed(self, error: BaseException) -> str | None:
        """Which plugin raised `error`, and where, for a message; None when no plugin did."""
        files = {fiber.spec.place.rpartition(":")[0]: fiber.id for fiber in self.kernel.fibers}
        for frame in reversed(traceback.extract_tb(error.__traceback__)):
            path = Path(frame.filename)
            for file, plugin in files.items():
                # A plugin is one file, or the package in which its `apply` stands.
                package = Path(file).parent if Path(file).name == "__init__.py" else Path(file)
                if not frame.filename.startswith(ROOMS_FOLDER) and path.is_relative_to(package):
                    place = f"{frame.filename}:{frame.lineno}"
                    return f"plugin {plugin!r}, in {frame.name} at {place}"
        return None

    def service(self, key: ServiceKey[S]) -> S:
        """The service that some row provides now. Raises ServiceMissing."""
        return self.context.require(key)


@asynccontextmanager
async def open_harness(
    config: str | Path | None = None,
    *,
    profile: str = "headless",
    rows: Sequence[Row] = (),
    sets: Sequence[str] = (),
    home: Path | None = None,
    cwd: Path | None = None,
    plugins: Sequence[Plugin] = (),
    environ: Environ | None = None,
) -> AsyncGenerator[Harness, None]:
    """Mount a composition and give it to the block; unload it, in order, when the block is left.

    Args:
        config: A composition file, accepted as it is. None: `dsh.yml` in `cwd`, if there is one,
            which may only tighten.
        profile: The built-in profile everything else is laid over.
        rows: Rows in Python, over those of files and settings.
        sets: `ID.path=value`, over everything.
        home: Stands for $DSH_HOME: the state directory, and where settings.yml is looked for.
        cwd: The workspace; the process's directory if None.
        plugins: Plugins as objects, beside the installed ones. Rows may name them.
        environ: In place of the process's environment.

    Raises UsageError (ConfigError with every mistake of every row) before anything is mounted.
    Rows that fail later are in `Harness.problems`, and logged. Cancelled while starting: what was
    mounted is unloaded first.
    """
    plan = planned(
        config,
        profile=profile,
        rows=rows,
        sets=sets,
        home=home,
        cwd=cwd,
        plugins=plugins,
        environ=environ,
    )
    async with mounted(plan) as harness:
        yield harness


@asynccontextmanager
async def mounted(
    plan: Plan,
    *,
    strict: bool = False,
    held: Callable[[tuple[str, ...]], None] | None = None,
) -> AsyncGenerator[Harness, None]:
    """`open_harness` for a plan that is made already: create the state directory, mount, audit.

    `strict`: a row that is not active, and is not `optional`, is a ConfigError; this is for
    one-shot runs, which have no later moment at which it could become active. `held` is told, at
    the end, which plugins cannot be ended; then the program may end its process.
    """
    plan.places.prepare()
    async with open_kernel(held=held) as kernel:
        kernel.mount(environ_plugin(plan.environ, plan.credentials), slot=-1)
        identities = Identities(plan.composition.mountables)
        kernel.mount(identities.plugin(), slot=-1)
        origins = PlanOrigins(lambda: plan)
        kernel.root.provide(ORIGINS, origins)
        rows = {one.row.id: one for one in plan.composition.mountables}
        fibers = [
            Mounted(one, kernel.mount(one.plugin, one.config, slot=one.slot, id=one.row.id))
            for one in rows.values()
        ]
        with trio.move_on_after(START_SECONDS):
            await kernel.settled()
        needed, spare = _audited(plan, kernel.audit(), rows)
        if strict and needed:
            raise ConfigError(
                "not every row could start; a row that may be missing says `optional: true`",
                issues=needed,
            )
        for problem in (*needed, *spare):
            _log.warning("%s", problem)
        program = await kernel.root.child("program")
        harness = Harness(kernel, program, plan, (*needed, *spare), fibers, identities)
        origins.plan = lambda: harness.live.plan
        yield harness


def _audited(
    plan: Plan, problems: Sequence[FiberProblem], rows: Mapping[str, Mountable]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Every row that is not active, with its place: the needed ones, and the optional ones."""
    needed: list[str] = []
    spare = [str(issue) for issue in plan.composition.skipped]
    for problem in problems:
        one = rows.get(problem.id.partition("/")[0])
        place = f"{one.row.place}: " if one is not None else ""
        (spare if one is not None and one.row.optional else needed).append(
            f"{place}{problem.reason}"
        )
    return tuple(needed), tuple(spare)
