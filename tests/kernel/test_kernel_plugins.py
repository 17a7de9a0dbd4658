"""Plugins: their declaration, their config, and what they mount themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from attrs import field, frozen

from dsh.errors import (
    ConfigError,
    PluginError,
)
from dsh.kernel import (
    Context,
    core_of,
    mount,
    open_kernel,
    plugin,
)
from dsh.testing.kernel_parts import TOLD, Told

if TYPE_CHECKING:
    from typing import Literal


@pytest.mark.holds("KN9")
async def test_config_updates_in_place_or_by_restart() -> None:
    @frozen
    class Config:
        size: int = field(default=1)

    trail: list[str] = []

    @plugin(name="tunable", config=Config)
    async def tunable(ctx: Context, config: Config) -> None:
        trail.append(f"load {config.size}")

        @ctx.on_config
        async def accept(new: Config, old: Config) -> Literal["applied", "restart"]:
            trail.append(f"{old.size}->{new.size}")
            if new.size == 5:
                raise ValueError
            return "applied" if new.size < 4 else "restart"

    async with open_kernel() as kernel:
        fiber = await kernel.mount(tunable).ready()
        for size in (2, 4, 5):
            await fiber.update(Config(size))
        assert trail == ["load 1", "1->2", "2->4", "load 4", "4->5", "load 5"]
        assert fiber.config == Config(5)


@pytest.mark.holds("case-069")
async def test_three_updates_leave_one_listener_of_the_newest_code() -> None:
    @frozen
    class Config:
        size: int = 0

    heard: list[int] = []

    @plugin(name="child")
    async def child(ctx: Context) -> None:
        ctx.on(TOLD)(lambda told: heard.append(-1))

    @plugin(name="plain", config=Config)
    async def plain(ctx: Context, config: Config) -> None:
        ctx.on(TOLD)(lambda told: heard.append(config.size))
        ctx.spawn(trio.sleep_forever, label="timer")
        mount(core_of(ctx), child, slot=1)

    async with open_kernel() as kernel:
        fiber = await kernel.mount(plain).ready()
        for size in (1, 2, 3):
            await fiber.update(Config(size))
            await kernel.settled()
        kernel.root.emit(Told())
        assert heard == [3, -1]
        await fiber.dispose()
        assert kernel.listeners() == []
        assert kernel.fibers == ()


@pytest.mark.holds("case-069")
async def test_a_child_mounted_by_an_apply_whose_parent_goes_is_gone_too() -> None:
    @plugin(name="child")
    async def child(ctx: Context) -> None:
        ctx.spawn(trio.sleep_forever, label="alive")

    go = trio.Event()
    refused: list[bool] = []

    @plugin(name="parent")
    async def parent(ctx: Context) -> None:
        with trio.CancelScope(shield=True):
            await go.wait()
        mount(core_of(ctx), child, slot=0)
        refused.append(False)

    async with open_kernel() as kernel:
        fiber = kernel.mount(parent)
        await trio.testing.wait_all_tasks_blocked()
        fiber.request_dispose()
        go.set()
        await fiber.dispose()
        assert refused == [False]
        assert kernel.fibers == ()


@pytest.mark.holds("case-071")
async def test_wrong_configs_and_taken_ids_are_refused_by_name() -> None:
    @frozen
    class Config:
        size: int

    @plugin(name="sized", config=Config)
    async def sized(_ctx: Context, _config: Config) -> None: ...

    async with open_kernel() as kernel:
        with pytest.raises(ConfigError, match="'sized' needs a config"):
            await kernel.mount(sized).ready()
        with pytest.raises(ConfigError, match="got dict as its config; expected"):
            await kernel.mount(sized, {"size": 1}, id="other").ready()
        with pytest.raises(PluginError, match="id 'sized' is mounted already"):
            kernel.mount(sized, Config(1))


def test_wrong_declarations_are_refused_at_the_decorator() -> None:
    async def shape(_ctx: Context, _extra: int) -> None: ...

    with pytest.raises(PluginError, match=r"expected \(ctx\)"):
        plugin(name="x")(shape)  # type: ignore[arg-type]
    with pytest.raises(PluginError, match="must be an `async def`"):
        plugin(name="x")(lambda ctx: None)  # type: ignore[arg-type, return-value]
    with pytest.raises(PluginError, match="must be an `async def`"):
        plugin(name="x")(5)  # type: ignore[arg-type]

    @frozen
    class NoService:
        db: str = "text"

    with pytest.raises(PluginError, match="field 'db' of deps class"):
        plugin(name="x", deps=NoService)
    with pytest.raises(PluginError, match="is not an attrs class"):
        plugin(name="x", deps=dict)
