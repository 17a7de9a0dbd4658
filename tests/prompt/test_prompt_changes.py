"""Contributions that come and go meanwhile, and what `system-prompt/change` may not do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dsh import catalog as ev
from dsh.catalog import records
from dsh.catalog.config import SystemPromptConfig
from dsh.hooks import Scope, live
from dsh.kernel import open_kernel
from dsh.prompt import PROMPT, system_prompt_plugin
from dsh.session import sessions_plugin

if TYPE_CHECKING:
    from dsh.hooks import EffectHandle

BARE = SystemPromptConfig(include_harness_identity=False)


def context(scope: Scope | None = None) -> live.AssembleContext:
    return live.AssembleContext(agent=None, scope=scope, signal=None)


@pytest.mark.holds("PS07")
@pytest.mark.parametrize("scoped", [False, True], ids=["global", "of one agent"])
async def test_a_variable_that_takes_the_place_of_the_last_one_counts_from_the_next_assembly(
    scoped: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    async with open_kernel() as kernel:
        await kernel.mount(sessions_plugin).ready()
        await kernel.mount(system_prompt_plugin, BARE).ready()
        prompt, ctx = kernel.root.require(PROMPT), kernel.root
        scope = Scope("one") if scoped else None
        if scope is not None:
            ctx = await kernel.root.child("agent", scope=scope)
        prompt.section(ctx, "s", "{{v}} {{v}}")
        held: list[EffectHandle] = []

        def old(_context: live.AssembleContext) -> str:
            held[0].dispose()
            prompt.variable(ctx, "v", lambda _: "new")
            return "old"

        held.append(prompt.variable(ctx, "v", old))
        for said in ("old old", "new new"):
            assert prompt.render(await prompt.assemble(context(scope))) == said


@pytest.mark.holds("SP1")
@pytest.mark.parametrize("kind", ["section", "variable", "tools"])
async def test_a_listener_of_a_change_that_raises_takes_nothing_back(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_kernel() as kernel:
        await kernel.mount(sessions_plugin).ready()
        await kernel.mount(system_prompt_plugin, BARE).ready()
        prompt, ctx = kernel.root.require(PROMPT), kernel.root
        prompt.section(ctx, "frame", "{{v}}" if kind == "variable" else "frame")
        told: list[str] = []

        @ctx.on(ev.system_prompt.CHANGE)
        def bad(_notice: ev.system_prompt.Change) -> None:
            told.append("bad")
            raise LookupError("not this one")

        ctx.on(ev.system_prompt.CHANGE)(lambda _notice: told.append("good"))
        schema = records.ToolSchema(name="t", description="", parameters={"type": "object"})
        match kind:
            case "section":
                handle = prompt.section(ctx, "s", "more")
            case "variable":
                handle = prompt.variable(ctx, "v", lambda _: "value")
            case _:
                handle = prompt.tools(ctx, lambda _: (schema,))
        assembly = await prompt.assemble(context())
        there = prompt.render(assembly), [tool.name for tool in assembly.tools]
        assert (
            there
            == {
                "section": ("frame\n\nmore", []),
                "variable": ("value", []),
                "tools": ("frame", ["t"]),
            }[kind]
        )
        assert handle.active
        assert told == ["bad", "good"]
        assert any("not this one" in record.getMessage() for record in caplog.records)
