"""An edit that takes the loop away, or restarts it, and other rows: agents end before all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from trio.testing import wait_all_tasks_blocked

from dsh import catalog as ev
from dsh.agent import AgentHandle, user_message
from dsh.boot import ProcessEnviron, open_harness
from dsh.catalog.records import AgentOptions
from dsh.kernel import Context, Plugin, plugin

if TYPE_CHECKING:
    from pathlib import Path

    from dsh.hooks import Logged, Next

SCRIPTED = AgentOptions(provider="scripted", model="scripted")


def companion(trail: list[str]) -> Plugin:
    """A plugin with a part in every turn and in its end, which is held up until it is cancelled."""

    @plugin(name="companion")
    async def apply(ctx: Context) -> None:
        @ctx.on(ev.agent.PRE_STEP)
        async def waits(
            step: ev.agent.PreStep, call_next: Next[ev.agent.PreStepDecision]
        ) -> ev.agent.PreStepDecision:
            await step.signal.wait()
            return await call_next()

        @ctx.on(ev.turn.END)
        def ended(event: Logged[ev.turn.End]) -> None:
            trail.append(type(event.data.reason).__name__)

        ctx.on(ev.agent.DISPOSED)(lambda _notice: trail.append("agent gone"))
        ctx.on_unload(lambda: trail.append("companion leaves"))

    return apply


@pytest.mark.holds("BO20", "KN39")
@pytest.mark.parametrize(
    "edit",
    [
        "- {name: reflect-loop, id: agent-loop}\n",
        "- {id: agent-loop, config: {agents: [{id: a, provider: scripted, model: scripted}]}}\n",
        "- {id: system-prompt, config: {includeHarnessIdentity: false}}\n",
    ],
    ids=["another loop", "another config of the loop", "another config below the loop"],
)
async def test_agents_end_before_any_row_that_an_edit_takes_away_while_the_loop_restarts(
    tmp_path: Path, edit: str
) -> None:
    trail: list[str] = []
    again: list[AgentHandle] = []
    path = tmp_path / "house.yml"
    path.write_text("- {name: companion}\n", encoding="utf-8")
    async with open_harness(
        path,
        profile="demo",
        home=tmp_path / "home",
        cwd=tmp_path,
        environ=ProcessEnviron({}),
        plugins=[companion(trail)],
    ) as harness:
        harness.live.restarts.resumed = again.append
        handle = await harness.agents.create("mine", options=SCRIPTED, cwd=str(tmp_path))
        handle.agent.followup(user_message("hi"))
        await wait_all_tasks_blocked()
        session = handle.agent.session
        path.write_text(f"- {{name: companion, disabled: true}}\n{edit}", encoding="utf-8")
        await harness.live.recompose()
        assert trail == ["AbortedTurnEnd", "agent gone", "companion leaves"]
        assert session.closed
        assert "companion" not in harness.rows
        assert [one.agent.id for one in again] == ["mine"]
        assert again[0].agent.session is not session
        assert (await again[0].agent.ask(user_message("and now?"))).reason is not None
