"""The house: mounted from a composition, audited, given to a block, gone after it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
import trio
from attrs import frozen

from dsh import catalog as ev
from dsh.agent import user_message
from dsh.boot import Harness, ProcessEnviron, Row, mounted, open_harness, planned
from dsh.catalog.records import AgentOptions, CompletedTurnEnd
from dsh.errors import ConfigError, UsageError
from dsh.kernel import Context, Plugin, ServiceKey, plugin, required
from dsh.seams.environ import CREDENTIALS, ENVIRON

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from dsh.hooks import Logged

ENVIRONMENT = ProcessEnviron({"SOME": "value", "A_TOKEN": "t"})
SCRIPTED = AgentOptions(provider="scripted", model="scripted")
LOST: ServiceKey[int] = ServiceKey("lost-and-found")


@frozen
class Needs:
    """Something that nobody provides."""

    lost: int = required(LOST)


@plugin(name="waits", deps=Needs)
async def waits(ctx: Context, config: None, deps: Needs) -> None:
    """Never runs."""


@plugin(name="fails")
async def fails(ctx: Context) -> None:
    raise ValueError("no luck today")


@plugin(name="hangs")
async def hangs(ctx: Context) -> None:
    await trio.sleep_forever()


@pytest.mark.holds("BO14")
async def test_a_program_owns_the_house_and_hears_typed_events(tmp_path: Path) -> None:
    heard: list[object] = []
    async with open_harness(
        profile="demo", home=tmp_path / "home", cwd=tmp_path, environ=ENVIRONMENT
    ) as harness:

        @harness.on(ev.turn.END)
        def ended(event: Logged[ev.turn.End]) -> None:
            heard.append(event.data.reason)

        handle = await harness.agents.create("mine", options=SCRIPTED, cwd=str(tmp_path))
        outcome = await handle.agent.ask(user_message("hi"))
        await handle.aclose()
        assert harness.problems == ()
    assert heard == [outcome.reason] == [CompletedTurnEnd()]
    assert (tmp_path / "home/sessions").is_dir()
    assert list((tmp_path / "home/sessions").rglob("session.jsonl"))


@pytest.mark.holds("BO14")
@pytest.mark.parametrize("raises", [False, True])
async def test_leaving_the_block_unloads_everything_last_first(
    tmp_path: Path, *, raises: bool
) -> None:
    gone: list[str] = []

    def leaving(name: str) -> Plugin:
        @plugin(name=name)
        async def apply(ctx: Context) -> None:
            ctx.effect(lambda: lambda: gone.append(name), label=name)

        return apply

    async def use() -> None:
        async with open_harness(
            profile="demo",
            home=tmp_path,
            cwd=tmp_path,
            environ=ENVIRONMENT,
            plugins=[leaving("first"), leaving("second")],
        ) as harness:
            harness.context.effect(lambda: lambda: gone.append("program"), label="program")
            if raises:
                raise KeyError("the program's own")

    if raises:
        with pytest.raises(KeyError):
            await use()
    else:
        await use()
    assert gone == ["program", "second", "first"]


@pytest.mark.holds("BO14")
async def test_a_composition_file_of_a_program_is_accepted_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "house.yml"
    file.write_text("- {name: seen, id: mine, config: {}}\n", encoding="utf-8")
    made: list[str] = []

    @plugin(name="seen")
    async def seen(ctx: Context) -> None:
        made.append(ctx.plugin)

    async with open_harness(
        file, profile="demo", home=tmp_path, cwd=tmp_path, environ=ENVIRONMENT, plugins=[seen]
    ) as harness:
        assert "mine" in {fiber.id for fiber in harness.kernel.fibers}
    assert made == ["seen"]


@pytest.mark.holds("BO7", "case-071")
async def test_rows_that_are_not_active_are_problems_with_their_place(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "dsh.boot"):
        async with open_harness(
            profile="demo",
            home=tmp_path,
            cwd=tmp_path,
            environ=ENVIRONMENT,
            plugins=[waits, fails],
        ) as harness:
            pending, failed = sorted(harness.problems, reverse=True)
    assert "plugin 'waits' waits for service 'lost-and-found'" in pending
    assert "ValueError: no luck today" in failed
    for problem in (pending, failed):
        assert problem.startswith("plugins given to open_harness: ")
        assert problem in caplog.text


@pytest.mark.holds("BO7", "case-071")
async def test_a_strict_start_refuses_them_all_at_once_unless_optional(tmp_path: Path) -> None:
    rows = [Row(name="waits"), Row(name="fails", optional=True)]
    made = planned(
        profile="demo", rows=rows, home=tmp_path, cwd=tmp_path, environ=ENVIRONMENT,
        plugins=[waits, fails],
    )  # fmt: skip
    with pytest.raises(ConfigError) as caught:
        async with mounted(made, strict=True):
            raise AssertionError("never given to the block")
    (issue,) = caught.value.issues
    assert "plugin 'waits'" in issue
    assert "optional: true" in str(caught.value)


@pytest.mark.holds("BO7", "case-071")
async def test_an_apply_that_never_returns_does_not_hold_the_start(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_harness(
        profile="demo", home=tmp_path, cwd=tmp_path, environ=ENVIRONMENT, plugins=[hangs]
    ) as harness:
        (problem,) = harness.problems
    assert "plugin 'hangs' is still loading" in problem


async def test_a_cancelled_start_leaves_nothing(tmp_path: Path) -> None:
    with trio.CancelScope() as scope:

        @plugin(name="canceller")
        async def canceller(ctx: Context) -> None:
            scope.cancel()
            await trio.sleep_forever()

        async with open_harness(
            profile="demo", home=tmp_path, cwd=tmp_path, environ=ENVIRONMENT, plugins=[canceller]
        ):
            raise AssertionError("never given to the block")
    assert scope.cancelled_caught


@pytest.mark.holds("BO9")
async def test_the_house_provides_environment_and_keys(tmp_path: Path) -> None:
    async with open_harness(
        profile="headless", home=tmp_path, cwd=tmp_path, environ=ENVIRONMENT
    ) as harness:
        assert harness.service(ENVIRON).get("SOME") == "value"
        names = harness.service(CREDENTIALS).secret_names()
    assert {"A_TOKEN", "DEEPSEEK_API_KEY"} <= names


@pytest.mark.holds("BO2")
async def test_the_loop_may_be_replaced_by_a_row(tmp_path: Path) -> None:
    @plugin(name="my-loop")
    async def my_loop(ctx: Context) -> None:
        """No loop at all."""

    def fibers(harness: Harness) -> dict[str, str]:
        return {fiber.id: fiber.spec.plugin for fiber in harness.kernel.fibers}

    async with open_harness(
        profile="demo",
        home=tmp_path,
        cwd=tmp_path,
        environ=ENVIRONMENT,
        rows=[Row(name="my-loop", id="agent-loop")],
        plugins=[my_loop],
    ) as harness:
        assert fibers(harness)["agent-loop"] == "my-loop"


@pytest.mark.holds("BO2")
async def test_user_settings_lie_over_the_project_file_and_sets_over_both(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home/settings.yml").write_text(
        "- {id: agent-loop, config: {maxParallelToolCalls: 5}}\n", encoding="utf-8"
    )
    (tmp_path / "dsh.yml").write_text(
        "- {id: agent-loop, config: {maxParallelToolCalls: 3}}\n", encoding="utf-8"
    )

    def limit(*sets: str) -> object:
        made = planned(home=tmp_path / "home", cwd=tmp_path, environ=ENVIRONMENT, sets=sets)
        configs = {each.row.id: each.config for each in made.composition.mountables}
        return getattr(configs["agent-loop"], "max_parallel_tool_calls", None)

    assert limit() == 5
    assert limit("agent-loop.maxParallelToolCalls=7") == 7


def test_an_unknown_profile_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="did you mean 'demo'"):
        planned(profile="dmeo", home=tmp_path, cwd=tmp_path, environ=ENVIRONMENT)
