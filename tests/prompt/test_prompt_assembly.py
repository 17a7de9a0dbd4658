"""Assembly and rendering: who says what in the prompt, in which order, for whom."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from dsh import catalog as ev
from dsh.catalog import records
from dsh.catalog.config import SystemPromptConfig
from dsh.errors import ConfigError, PromptError
from dsh.hooks import Scope, live
from dsh.kernel import Context, CoreContext, Kernel, open_kernel, plugin
from dsh.prompt import IDENTITY, PROMPT, UNLISTED_TOOLS, SystemPrompt, system_prompt_plugin
from dsh.prompt.template import substitute
from dsh.prompt.tool_order import check_order
from dsh.session import sessions_plugin

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from dsh.hooks import Next

BARE = SystemPromptConfig(include_harness_identity=False)


@asynccontextmanager
async def prompt_house(
    config: SystemPromptConfig = BARE,
) -> AsyncGenerator[tuple[Kernel, SystemPrompt], None]:
    async with open_kernel() as kernel:
        await kernel.mount(sessions_plugin).ready()
        await kernel.mount(system_prompt_plugin, config).ready()
        yield kernel, kernel.root.require(PROMPT)


def context(scope: Scope | None = None) -> live.AssembleContext:
    return live.AssembleContext(agent=None, scope=scope, signal=None)


async def text(prompt: SystemPrompt, scope: Scope | None = None) -> str:
    return prompt.render(await prompt.assemble(context(scope)))


def schema(name: str) -> records.ToolSchema:
    return records.ToolSchema(name=name, description=name, parameters={"type": "object"})


@pytest.mark.holds("PP01", "PP02", "PP03", "PP05")
@pytest.mark.parametrize(
    ("config", "wanted"),
    [
        (SystemPromptConfig(persona="You help."), f"{IDENTITY}\n\nYou help."),
        (SystemPromptConfig(), IDENTITY),
        (SystemPromptConfig(include_harness_identity=False, persona="P"), "P"),
        (BARE, ""),
    ],
)
async def test_identity_and_persona(config: SystemPromptConfig, wanted: str) -> None:
    async with prompt_house(config) as (_, prompt):
        assert await text(prompt) == wanted


@pytest.mark.holds("PP06", "PP07", "PP21", "D17")
async def test_sections_are_ordered_resolved_each_time_and_empty_ones_left_out() -> None:
    async with prompt_house() as (kernel, prompt):
        ctx = kernel.root
        values = ["first"]

        async def later(context: live.AssembleContext) -> str:
            return values[0]

        prompt.section(ctx, "z", "guidance", order=100)
        prompt.section(ctx, "b", later)
        prompt.section(ctx, "a", lambda context: "same order, by name")
        prompt.section(ctx, "empty", "  ")
        prompt.section(ctx, "early", "identity", order=-100)
        wanted = "identity\n\nsame order, by name\n\n{}\n\nguidance"
        assert await text(prompt) == wanted.format("first")
        values[0] = "second"
        assert await text(prompt) == wanted.format("second")
        assert await text(prompt) == await text(prompt)


@pytest.mark.holds("PP08", "PP24", "PP25", "PP26", "PP27", "PP28")
async def test_contributions_go_with_their_owner_and_changes_are_told() -> None:
    async with prompt_house() as (kernel, prompt):
        changes: list[int] = []
        kernel.root.on(ev.system_prompt.CHANGE)(lambda notice: changes.append(1))

        @plugin(name="contributor")
        async def contributor(ctx: Context) -> None:
            prompt.section(ctx, "s", "section {{v}}")
            prompt.context(ctx, "c", "context")
            prompt.variable(ctx, "v", lambda context: "value")
            prompt.tools(ctx, lambda context: [schema("t")])

        fiber = kernel.mount(contributor)
        await fiber.ready()
        assert len(changes) == 4
        assembly = await prompt.assemble(context())
        assert prompt.render(assembly) == "section value"
        assert [c.name for c in assembly.contexts] == ["c"]
        assert [t.name for t in assembly.tools] == ["t"]
        await fiber.dispose()
        assert len(changes) == 8
        gone = await prompt.assemble(context())
        assert (gone.sections, gone.contexts, gone.tools, gone.variables) == ((), (), (), ())
        handle = prompt.section(kernel.root, "s", "again")
        assert handle.dispose()
        assert await text(prompt) == ""


@pytest.mark.holds("PP09", "PP10", "PP11", "PP31", "PS03", "PS06")
async def test_duplicates_and_senseless_names_or_orders_are_refused() -> None:
    async with prompt_house() as (kernel, prompt):
        ctx = kernel.root
        prompt.section(ctx, "s", "x")
        prompt.context(ctx, "c", "x")
        prompt.variable(ctx, "v", lambda context: "x")
        with pytest.raises(PromptError, match="section 's', which kernel has registered"):
            prompt.section(ctx, "s", "y")
        with pytest.raises(PromptError, match="runtime context 'c'"):
            prompt.context(ctx, "c", "y")
        with pytest.raises(PromptError, match="variable 'v'"):
            prompt.variable(ctx, "v", lambda context: "y")
        for order in (float("nan"), float("inf"), True, 10**9):
            with pytest.raises(PromptError, match="give it an integer"):
                prompt.section(ctx, "odd", "y", order=order)  # type: ignore[arg-type]
        for name in ("", "A", "a-b", "1a", "a b"):
            with pytest.raises(PromptError, match="no text could refer to"):
                prompt.variable(ctx, name, lambda context: "y")
        assert [s.name for s in (await prompt.assemble(context())).sections] == ["s"]


@pytest.mark.holds("PP16", "PP17", "PP20", "PP33", "PP14")
async def test_listeners_compose_override_and_short_circuit_one_step_only() -> None:
    async with prompt_house() as (kernel, prompt):
        ctx = kernel.root
        prompt.section(ctx, "s", "I am {{v}}.")
        prompt.variable(ctx, "v", lambda context: "registered")

        def adding(word: str) -> None:
            async def add(
                payload: ev.system_prompt.Assemble, call_next: Next[live.PromptAssembly]
            ) -> live.PromptAssembly:
                assembly = await call_next()
                extra = live.AssembledText(name=word, text=word)
                return evolve(assembly, sections=(*assembly.sections, extra))

            ctx.on(ev.system_prompt.ASSEMBLE)(add)

        adding("outer")
        adding("inner")
        once = [True]

        @ctx.on(ev.system_prompt.ASSEMBLE, prepend=True)
        async def override(
            payload: ev.system_prompt.Assemble, call_next: Next[live.PromptAssembly]
        ) -> live.PromptAssembly:
            if once:
                once.clear()
                assembly = await call_next()
                return evolve(assembly, variables=(("v", "overridden"),))
            return evolve(payload.assembly, sections=())

        assert await text(prompt) == "I am overridden.\n\ninner\n\nouter"
        assert await text(prompt) == ""


@pytest.mark.holds("PP19", "D17")
async def test_one_complete_section_is_the_whole_prompt_and_two_are_refused() -> None:
    async with prompt_house() as (kernel, prompt):
        ctx = kernel.root
        prompt.section(ctx, "ordinary", "ordinary")
        prompt.section(ctx, "whole", "all of it", complete=True)
        silent = prompt.section(ctx, "silent", "", complete=True)
        assert await text(prompt) == "all of it"
        silent.dispose()
        prompt.section(ctx, "rival", "also all", complete=True)
        with pytest.raises(PromptError, match=r"'rival', 'whole' each claim"):
            await prompt.assemble(context())


@pytest.mark.holds("PP29", "PP32", "PP34", "PP35", "PP36")
async def test_references_are_strict_and_values_are_not_scanned_again() -> None:
    async with prompt_house() as (kernel, prompt):
        ctx = kernel.root
        section = prompt.section(ctx, "s", "{{a}} and {{b}}")
        with pytest.raises(PromptError, match="nobody registered; registered: none"):
            await text(prompt)
        prompt.variable(ctx, "a", lambda context: "{{b}}")
        with pytest.raises(PromptError, match=r"section 's' refers to \{\{b\}\}.*registered: a"):
            await text(prompt)
        values: list[str | None] = ["x"]
        prompt.variable(ctx, "b", lambda context: values[0])
        assert await text(prompt) == "{{b}} and x"
        values[0] = None
        with pytest.raises(PromptError, match="has no value here"):
            await text(prompt)
        section.dispose()
        assert await text(prompt) == ""


@pytest.mark.holds("PP37", "PP39", "PP41")
@pytest.mark.parametrize(
    "broken", ["{{ a }}", "{{A}}", "{{a", "{{}}", "{{{a}}}", "{{a}}}", "{{a.b}}"]
)
def test_malformed_references_are_refused(broken: str) -> None:
    with pytest.raises(PromptError, match="malformed reference"):
        substitute(f"text {broken}", {"a": "x"}, where="section 's'")


@pytest.mark.holds("PP41")
def test_single_braces_are_plain_text_and_any_lawful_name_works() -> None:
    values = {"constructor": "c", "a_1": "x"}
    text = 'json {"a": {"b": 1}} {{constructor}} }} {{a_1}}'
    assert substitute(text, values, where="s") == 'json {"a": {"b": 1}} c }} x'


@pytest.mark.holds("PP40")
@pytest.mark.parametrize("name", ["constructor", "get", "items", "keys", "self"])
def test_a_name_that_is_no_variable_is_unknown_whatever_an_object_has(name: str) -> None:
    with pytest.raises(PromptError, match=f"{name}"):
        substitute(f"{{{{{name}}}}}", {"a": "x"}, where="section 's'")


@given(st.text(alphabet="ab{} \n"), st.text(alphabet="{}ab"))
def test_substitution_replaces_exactly_the_references(around: str, value: str) -> None:
    text = f"{around}|{{{{name}}}}|{around}"
    if "{{" in around or around.endswith("{"):
        return
    wanted = f"{around}|{value}|{around}"
    assert substitute(text, {"name": value}, where="s") == wanted


@pytest.mark.holds("PP04", "PS09")
async def test_runtime_context_is_suppressed_without_asking_its_providers() -> None:
    async with prompt_house() as (kernel, prompt):
        asked: list[int] = []

        def provide(context: live.AssembleContext) -> str:
            asked.append(1)
            return "fact"

        prompt.context(kernel.root, "c", provide)
        scope = Scope("one")
        child = await kernel.root.child("one", scope=scope)
        silence = prompt.suppress_runtime_context(child)
        assert (await prompt.assemble(context(scope))).contexts == ()
        assert asked == []
        assert len((await prompt.assemble(context())).contexts) == 1
        silence.dispose()
        assert len((await prompt.assemble(context(scope))).contexts) == 1
    config = SystemPromptConfig(include_harness_identity=False, include_runtime_context=False)
    async with prompt_house(config) as (kernel, prompt):
        prompt.context(kernel.root, "c", provide)
        assert (await prompt.assemble(context())).contexts == ()


async def scoped(kernel: Kernel, label: str) -> tuple[Scope, CoreContext]:
    scope = Scope(label)
    return scope, await kernel.root.child(label, scope=scope)


@pytest.mark.holds("PS01", "PS02", "PS05", "PS08", "PS10", "PS11", "PS13")
async def test_scoped_contributions_shadow_and_leave_with_their_scope() -> None:
    async with prompt_house() as (kernel, prompt):
        ctx = kernel.root
        prompt.section(ctx, "persona", "for all, {{v}}")
        prompt.variable(ctx, "v", lambda context: "global")
        prompt.context(ctx, "c", "global fact")
        prompt.tools(ctx, lambda context: [schema("shared")])
        scope, own = await scoped(kernel, "one")
        other, _ = await scoped(kernel, "two")
        prompt.section(own, "persona", "for one, {{v}}")
        prompt.section(own, "extra", "extra", order=5)
        prompt.variable(own, "v", lambda context: "scoped")
        prompt.context(own, "c", "scoped fact")
        prompt.tools(own, lambda context: [schema("mine")])
        heard: list[object] = []

        @own.on(ev.system_prompt.ASSEMBLE)
        async def watch(
            payload: ev.system_prompt.Assemble, call_next: Next[live.PromptAssembly]
        ) -> live.PromptAssembly:
            heard.append(payload.context.scope)
            return await call_next()

        assembly = await prompt.assemble(context(scope))
        assert prompt.render(assembly) == "for one, scoped\n\nextra"
        assert [c.text for c in assembly.contexts] == ["scoped fact"]
        assert [t.name for t in assembly.tools] == ["mine", "shared"]
        for elsewhere in (other, None):
            assembly = await prompt.assemble(context(elsewhere))
            assert prompt.render(assembly) == "for all, global"
            assert [t.name for t in assembly.tools] == ["shared"]
        assert heard == [scope]
        await own.close()
        assert await text(prompt, scope) == "for all, global"


@pytest.mark.holds("PO04", "PO05")
async def test_an_assembly_has_the_configured_order_and_knows_what_is_restricted_away() -> None:
    config = SystemPromptConfig(tool_order=("z", UNLISTED_TOOLS, "hidden"))
    async with prompt_house(config) as (kernel, prompt):
        provided = prompt.tools(
            kernel.root, lambda _: [schema("a"), schema("z")], registered=lambda: {"hidden"}
        )
        assembly = await prompt.assemble(context())
        assert [tool.name for tool in assembly.tools] == ["z", "a"]
        provided.dispose()
        with pytest.raises(PromptError, match="toolOrder lists 'z', but no such tool"):
            await prompt.assemble(context())


@pytest.mark.holds("PO10", "PO11", "PO12")
@pytest.mark.parametrize(
    "order",
    [(), ("a",), (UNLISTED_TOOLS, UNLISTED_TOOLS), ("a", UNLISTED_TOOLS, "a")],
)
async def test_a_malformed_order_is_refused_at_load(order: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match="toolOrder"):
        check_order(order)
    config = SystemPromptConfig(tool_order=order)
    with pytest.raises(ConfigError, match="toolOrder"):
        async with prompt_house(config):
            pass


@pytest.mark.holds("PO09")
async def test_the_order_is_canonical_before_listeners_who_own_their_edits() -> None:
    async with prompt_house() as (kernel, prompt):
        prompt.tools(kernel.root, lambda context: [schema("b"), schema("a")])
        seen: list[list[str]] = []

        @kernel.root.on(ev.system_prompt.ASSEMBLE)
        async def reverse(
            payload: ev.system_prompt.Assemble, call_next: Next[live.PromptAssembly]
        ) -> live.PromptAssembly:
            assembly = await call_next()
            seen.append([tool.name for tool in assembly.tools])
            return evolve(assembly, tools=tuple(reversed(assembly.tools)))

        assembly = await prompt.assemble(context())
        assert seen == [["a", "b"]]
        assert [tool.name for tool in assembly.tools] == ["b", "a"]


@pytest.mark.holds("PP22", "PP23")
async def test_contexts_are_interpolated_and_a_fault_names_the_context() -> None:
    from dsh.prompt.runtime_context import HEADING, rendered_contexts, snapshot_text

    entries = (
        live.AssembledText(name="a", text="it is {{day}}"),
        live.AssembledText(name="b", text=" "),
    )
    rendered = rendered_contexts(entries, {"day": "Monday"})
    assert rendered == (("a", "it is Monday"),)
    assert snapshot_text(rendered) == f"{HEADING}\n\na:\nit is Monday"
    assert snapshot_text(()) == ""
    with pytest.raises(PromptError, match="runtime context 'a' refers to"):
        rendered_contexts(entries, {})
