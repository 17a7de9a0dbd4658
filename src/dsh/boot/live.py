"""The living composition: rows that follow their files and their source while a session runs.

What comes in: "look at the composition again", "this package's source has changed". What goes out:
the same house with exactly the changed rows exchanged, in their old slots, and news of what
happened. A change that cannot be made whole is not made: what ran before runs on. One change at a
time; agents, sessions and inboxes are untouched unless the loop itself has to restart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar, TypeVarTuple, Unpack, final

import attrs
import trio
from attrs import evolve

from dsh.boot.composition import Mountable, Mounted, configured, key_variables
from dsh.boot.modules import ModuleSwap, catalog_digest
from dsh.boot.news import News, log_news, why_not_active
from dsh.boot.restarts import Restarts
from dsh.errors import PluginError, UsageError
from dsh.kernel import FiberState, in_a_line, package_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from dsh.boot.identities import Identities
    from dsh.boot.nodes import Issue
    from dsh.boot.plan import Plan
    from dsh.kernel import Kernel

__all__ = ["Live"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

#: Seconds that exchanged rows may take to become active before the exchange is taken back.
READY_SECONDS: Final = 10.0
OURS: Final = "dsh"


@final
class Live:
    """The rows of one running house."""

    def __init__(
        self, kernel: Kernel, plan: Plan, rows: Iterable[Mounted], identities: Identities
    ) -> None:
        self._kernel: Final = kernel
        self._plan = plan
        self._rows: dict[str, Mounted] = {one.row.row.id: one for one in rows}
        self._turn: Final = trio.Lock()
        self._digests: Final = {package: catalog_digest(package) for package in self.packages()}
        #: Who is told. Replace it; the default writes to the log.
        self.tell: Callable[[News], None] = log_news
        self._identities: Final = identities
        self.restarts: Final = Restarts(kernel, identities)

    @property
    def plan(self) -> Plan:
        """The composition that runs: the last good one."""
        return self._plan

    @property
    def rows(self) -> Mapping[str, Mounted]:
        """The mounted rows by id."""
        return self._rows

    def packages(self) -> tuple[str, ...]:
        """The packages of the mounted plugins that can be reloaded; dsh's own rooms cannot."""
        found = {package_of(one.row.plugin.module) for one in self._rows.values()}
        return tuple(sorted(name for name in found if name and name != OURS))

    # -- source ----------------------------------------------------------------------------------

    async def reload(self, package: str) -> News:
        """Import the package anew and exchange its rows, or change nothing.

        Cancelled: the exchange is finished first.
        """
        async with self._turn:
            news = await _finished(self._reload, package)
        self.tell(news)
        return news

    async def _reload(self, package: str) -> News:
        olds = [m for m in self._rows.values() if package_of(m.row.plugin.module) == package]
        names = ", ".join(repr(one.row.row.id) for one in olds)
        if not olds:
            return News("kept", f"no mounted row is of the package {package!r}")
        if catalog_digest(package) != self._digests.setdefault(package, catalog_digest(package)):
            return News(
                "restart", f"{names}: its catalog has changed, which needs a restart of dsh"
            )
        swap = ModuleSwap(package)
        issues: list[Issue] = []
        try:
            fresh = swap.anew({one.row.plugin for one in olds})
        except Exception as error:  # noqa: BLE001 - a plugin may raise anything when imported
            why = in_a_line(error)
            return News("kept", f"{names} not reloaded, what ran before runs on: {why}")
        news = [
            evolve(
                one.row,
                plugin=fresh[one.row.plugin],
                config=configured(one.row.row, fresh[one.row.plugin], issues),
            )
            for one in olds
        ]
        if issues:
            swap.back()
            lines = "\n".join(map(str, issues))
            return News(
                "kept", f"{names} not reloaded, its configuration does not fit any more:\n{lines}"
            )
        fibers = [one.fiber for one in olds]
        async with self.restarts.around(fibers, f"reloading {names}", self.tell):
            return await self._exchanged(olds, news, names, swap)

    async def _exchanged(
        self, olds: Sequence[Mounted], news: Sequence[Mountable], names: str, swap: ModuleSwap
    ) -> News:
        ran = {one.row.row.id for one in olds if one.fiber.state is FiberState.ACTIVE}
        try:
            fresh = await self._swap(olds, news)
            wrong = _wrong(one for one in fresh if one.row.row.id in ran)
            if not wrong:
                return News("reloaded", f"{names} reloaded")
            swap.back()
            again = await self._swap(fresh, [one.row for one in olds])
        except PluginError as error:
            swap.back()
            return News("restart", f"{names} not reloaded: {error}")
        still = _wrong(one for one in again if one.row.row.id in ran)
        after = "what ran before runs again" if not still else "and the version before fails, too"
        lines = "; ".join([*wrong, *(f"before: {line}" for line in still)])
        return News("kept", f"{names} not reloaded, {after}: {lines}")

    async def _swap(self, olds: Sequence[Mounted], news: Sequence[Mountable]) -> list[Mounted]:
        """Unload in reverse order, mount in order, in the same slots and under the same ids."""
        for one in reversed(olds):
            await one.fiber.dispose()
        deaf = [one.row.row.id for one in olds if one.fiber.state is not FiberState.DISPOSED]
        if deaf:
            raise PluginError(f"{', '.join(deaf)} ignores cancellation; dsh has to be restarted")
        fresh = [self.mount(row) for row in news]
        with trio.move_on_after(READY_SECONDS):
            await self._kernel.settled()
        return fresh

    def mount(self, row: Mountable) -> Mounted:
        """Mount a row that is not mounted now; it is of the house from then on."""
        fiber = self._kernel.mount(row.plugin, row.config, slot=row.slot, id=row.row.id)
        self._rows[row.row.id] = mounted = Mounted(row, fiber)
        return mounted

    # -- composition -----------------------------------------------------------------------------

    async def recompose(self) -> tuple[News, ...]:
        """Read all layers again and follow what differs, row by row; or nothing, if one is bad.

        Cancelled: the change is finished first.
        """
        async with self._turn:
            news = await _finished(self._recompose)
        for one in news:
            self.tell(one)
        return news

    async def _recompose(self) -> tuple[News, ...]:
        try:
            plan = self._plan.again()
        except UsageError as error:
            return (News("kept", f"what runs stays as it is: {error}"),)
        wanted = {one.row.id: one for one in _slotted(plan.composition.mountables, self._rows)}
        self._plan.credentials.reserve(key_variables(wanted.values()))
        self._identities.follow(wanted.values())
        gone = [m for name, m in self._rows.items() if self._replaced(m, wanted.get(name))]
        changed = [
            (self._rows[name], row)
            for name, row in wanted.items()
            if name in self._rows
            and self._rows[name] not in gone
            and self._rows[name].row.config != row.config
        ]
        restarting = [m.fiber for m in gone]
        restarting += [m.fiber for m, row in changed if not _live(m, row)]
        news: list[News] = []
        async with self.restarts.around(restarting, "the edited composition", self.tell):
            for one in reversed(gone):
                await one.fiber.dispose()
                del self._rows[one.row.row.id]
                news.append(News("changed", f"{one.row.row.id!r} unloaded"))
            for mounted, row in changed:
                news.append(await self._updated(mounted, row))
            for name, row in wanted.items():
                if name not in self._rows:
                    news.append(await self._added(row))
                else:
                    # Places may have moved; what runs is the same.
                    self._rows[name] = evolve(
                        self._rows[name], row=evolve(self._rows[name].row, row=row.row)
                    )
        self._plan = evolve(plan, credentials=self._plan.credentials)
        return (*news, *self._order_news(plan.composition.mountables))

    def _replaced(self, mounted: Mounted, wanted: Mountable | None) -> bool:
        return wanted is None or wanted.row.name != mounted.row.row.name

    async def _updated(self, mounted: Mounted, wanted: Mountable) -> News:
        name, old = mounted.row.row.id, mounted.row
        fiber = mounted.fiber
        before, ran = fiber.activation, fiber.state is FiberState.ACTIVE
        await fiber.update(wanted.config)
        await self._kernel.settled()
        wrong = why_not_active(fiber)
        if wrong is not None and ran:
            await fiber.update(old.config)
            await self._kernel.settled()
            return News("kept", f"{name!r} keeps its configuration: {wrong}")
        self._rows[name] = Mounted(wanted, fiber)
        changed = _changed(old.config, wanted.config)
        fields = ", ".join(str(field.metadata.get("wire", field.name)) for field in changed)
        how = "applied at once" if fiber.activation is before else "restarted with it"
        if wrong is not None:
            return News("kept", f"{name!r} is not active: {wrong}")
        return News("changed", f"{name!r}: {fields or 'its configuration'} changed, {how}")

    async def _added(self, row: Mountable) -> News:
        mounted = self.mount(row)
        with trio.move_on_after(READY_SECONDS):
            await mounted.fiber.settled()
        wrong = why_not_active(mounted.fiber)
        if wrong is not None:
            return News("kept", f"{row.row.id!r} is mounted but not active: {wrong}")
        return News("changed", f"{row.row.id!r} mounted")

    def _order_news(self, mountables: Sequence[Mountable]) -> tuple[News, ...]:
        slots = [self._rows[one.row.id].row.slot for one in mountables if one.row.id in self._rows]
        if slots == sorted(slots):
            return ()
        return (News("restart", "the order of rows has changed, which needs a restart of dsh"),)


async def _finished(change: Callable[[Unpack[Ts]], Awaitable[T]], *given: *Ts) -> T:
    """Finish a change whatever is cancelled: half a change is no state to leave a house in."""
    made: list[T] = []
    with trio.CancelScope(shield=True):
        made.append(await change(*given))
    return made[0]


def _wrong(mounted: Iterable[Mounted]) -> list[str]:
    found = (why_not_active(one.fiber) for one in mounted)
    return [why for why in found if why is not None]


def _slotted(wanted: Sequence[Mountable], mounted: Mapping[str, Mounted]) -> Iterable[Mountable]:
    """Every wanted row: mounted ones in their slots, new ones between their neighbours."""
    before = 0.0
    for index, row in enumerate(wanted):
        known = mounted.get(row.row.id)
        if known is not None:
            slot = known.row.slot
        else:
            later = (mounted[w.row.id].row.slot for w in wanted[index:] if w.row.id in mounted)
            after = next((slot for slot in later if slot > before), None)
            slot = before + 1 if after is None else (before + after) / 2
        before = max(before, slot)
        yield evolve(row, slot=slot)


def _live(mounted: Mounted, wanted: Mountable) -> bool:
    """Whether only fields differ that follow an edit without a restart."""
    changed = _changed(mounted.row.config, wanted.config)
    return bool(changed) and all(field.metadata.get("live") is True for field in changed)


def _changed(old: object, new: object) -> Sequence[attrs.Attribute[object]]:
    """The fields in which two configurations of one class differ."""
    kind = type(old)
    if kind is not type(new) or not attrs.has(kind):
        return ()
    return [
        field
        for field in attrs.fields(kind)
        if getattr(old, field.name) != getattr(new, field.name)
    ]
