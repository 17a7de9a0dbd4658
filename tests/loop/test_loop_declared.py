"""Declared agents: started with the loop, by label and identity; failures are contained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pytest
from trio.testing import wait_all_tasks_blocked
from typing_extensions import override

from dsh import catalog as ev
from dsh.agent import IDENTITIES, user_message
from dsh.catalog.config import AgentLoopConfig, ConfiguredAgent
from dsh.errors import ConfigError, StorageFailed
from dsh.kernel import Context, FiberState, Kernel, plugin
from dsh.loop.declared import declared_agents
from dsh.seams.persistence import PERSISTENCE
from dsh.testing import MemoryStore, TestHouse, open_test_house, says
from dsh.testing.house import OPTIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dsh.seams.persistence import WriteHandle


def agent(label: str, **more: object) -> ConfiguredAgent:
    return ConfiguredAgent(id=label, provider="test", model="m", **more)  # type: ignore[arg-type]


def config(*agents: ConfiguredAgent) -> AgentLoopConfig:
    return AgentLoopConfig(agents=agents)


async def reload(house: TestHouse, new: AgentLoopConfig) -> None:
    """Give the loop a config that restarts it, and wait until its agents have started."""
    await house.loop.update(new)
    await wait_all_tasks_blocked()


def ids(house: TestHouse) -> list[str]:
    return sorted(live.id for live in house.agents.live())


@pytest.mark.holds("A30", "LP48", "LP49", "NEW-16")
async def test_every_listed_agent_starts_with_the_loop() -> None:
    agents = config(
        agent("main", session_id="one", cwd="/workspace", reasoning_effort="high", max_tokens=9),
        agent("other", session_id="two"),
    )
    async with open_test_house(replies=[says("a")], loop=agents) as house:
        await wait_all_tasks_blocked()
        assert ids(house) == ["one", "two"]
        one = house.agents.get("one")
        assert one is not None
        assert one.session.header.cwd == "/workspace"
        await one.ask(user_message("go"))
        request = house.model.requests[0]
        assert (request.reasoning_effort, request.max_tokens) == ("high", 9)


@pytest.mark.holds("A31", "CF12")
async def test_without_an_id_a_new_one_is_minted_at_each_start() -> None:
    async with open_test_house(loop=config(agent("main"))) as house:
        await wait_all_tasks_blocked()
        [first] = ids(house)
        assert first.startswith("main-session-")
        await reload(house, config(agent("main", max_tokens=5)))
        [second] = ids(house)
        assert second.startswith("main-session-")
        assert second != first


@pytest.mark.holds("A32", "CF05")
async def test_an_exact_id_is_created_on_first_use_and_resumed_after_a_reload() -> None:
    store = MemoryStore()
    first = config(agent("main", session_id="exact"))
    async with open_test_house(replies=[says("a"), says("b")], loop=first, store=store) as house:
        await wait_all_tasks_blocked()
        live = house.agents.get("exact")
        assert live is not None
        await live.ask(user_message("one"))
        await reload(house, config(agent("main", session_id="exact", max_tokens=7)))
        again = house.agents.get("exact")
        assert again is not None
        assert again is not live
        assert again.turn == 1
        outcome = await again.ask(user_message("two"))
        assert outcome.turn == 2
        assert [m.role for m in house.model.requests[1].messages] == ["user", "assistant", "user"]


@pytest.mark.holds("A32", "CF08", "A35", "M20")
async def test_a_store_that_fails_is_loud_and_creates_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def broken(session_id: str, mode: Literal["write"]) -> WriteHandle:
        raise StorageFailed("the disk is gone")

    store = MemoryStore()
    store.open = broken  # type: ignore[method-assign]
    failures: list[tuple[str, str]] = []

    @plugin(name="watch")
    async def watch(ctx: Context) -> None:
        ctx.on(ev.agent_loop.CONFIG_START_FAILED)(
            lambda n: failures.append((n.session_id, str(n.error)))
        )

        def worse(notice: ev.agent_loop.ConfigStartFailed) -> None:
            raise RuntimeError("listener")

        ctx.on(ev.agent_loop.CONFIG_START_FAILED)(worse)

    agents = config(agent("main", session_id="exact"))
    async with open_test_house(store=store, plugins=[watch]) as house:
        await reload(house, agents)
        assert ids(house) == []
        assert failures == [("exact", "the disk is gone")]
        warnings = [r for r in caplog.records if "was not started" in r.getMessage()]
        assert len(warnings) == 1
        assert "the disk is gone" in warnings[0].getMessage()
        assert house.loop.state is FiberState.ACTIVE


@pytest.mark.holds("A35", "CF09")
async def test_a_failure_whose_text_cannot_be_made_is_still_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class HostileError(Exception):
        @override
        def __str__(self) -> str:
            raise RuntimeError

    async def hostile(session_id: str, mode: Literal["write"]) -> WriteHandle:
        raise HostileError

    store = MemoryStore()
    store.open = hostile  # type: ignore[method-assign]
    async with open_test_house(store=store) as house:
        await reload(house, config(agent("main", session_id="exact")))
        assert ids(house) == []
        assert any("HostileError" in r.getMessage() for r in caplog.records)


@pytest.mark.holds("A33", "CF13")
async def test_a_resumed_identity_continues_its_conversation() -> None:
    store = MemoryStore()
    async with open_test_house(replies=[says("a")], store=store) as house:
        handle = await house.agent("stored")
        await handle.agent.ask(user_message("one"))
    loop = config(agent("main", resume_session_id="stored"))
    async with open_test_house(replies=[says("b")], store=store, loop=loop) as house:
        await wait_all_tasks_blocked()
        live = house.agents.get("stored")
        assert live is not None
        assert (await live.ask(user_message("two"))).turn == 2


@pytest.mark.holds("A33", "CF14", "RS28", "CF15")
async def test_an_identity_that_must_exist_and_does_not_is_a_warning() -> None:
    failures: list[str] = []

    @plugin(name="watch")
    async def watch(ctx: Context) -> None:
        ctx.on(ev.agent_loop.CONFIG_START_FAILED)(lambda n: failures.append(n.session_id))

    async with open_test_house(store=MemoryStore(), plugins=[watch]) as house:
        await reload(house, config(agent("main", resume_session_id="ghost")))
        assert ids(house) == []
        assert failures == ["ghost"]
        assert house.loop.state is FiberState.ACTIVE


@pytest.mark.holds("A33", "CF11")
async def test_a_resumption_waits_for_a_store_below_its_labelled_owner() -> None:
    store = MemoryStore()
    async with open_test_house(replies=[says("a")], store=store) as house:
        handle = await house.agent("stored")
        await handle.agent.ask(user_message("one"))

    @plugin(name="late-store", provides=(PERSISTENCE,))
    async def late_store(ctx: Context) -> None:
        ctx.provide(PERSISTENCE, store)

    loop = config(agent("main", resume_session_id="stored"))
    async with open_test_house(loop=loop) as house:
        await wait_all_tasks_blocked()
        assert ids(house) == []
        waiting = [f for f in house.kernel.fibers if f.state is FiberState.PENDING]
        assert [fiber.path for fiber in waiting] == ["agent-loop/declared main/resume-declared"]
        await house.kernel.mount(late_store).ready()
        await wait_all_tasks_blocked()
        assert ids(house) == ["stored"]


@pytest.mark.holds("A33", "CF03", "CF04", "A32")
@pytest.mark.parametrize(
    ("agents", "complaint"),
    [
        ([agent("a", session_id="x", resume_session_id="y")], "has sessionId and resumeSessionId"),
        ([agent("a", session_id="x"), agent("b", session_id="x")], "more than one agent"),
        ([agent("a", session_id="x"), agent("b", resume_session_id="x")], "more than one agent"),
    ],
)
async def test_clashing_identities_are_refused_before_any_agent_starts(
    agents: list[ConfiguredAgent], complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        declared_agents(agents)
    async with open_test_house() as house:
        await reload(house, config(*agents))
        assert house.loop.state is FiberState.FAILED
        assert ids(house) == []


@pytest.mark.holds("A33", "CF02", "CF13", "CF03")
def test_an_empty_resume_id_counts_as_absent_and_an_empty_exact_id_is_refused() -> None:
    [declared] = declared_agents([agent("a", session_id="x", resume_session_id="")])
    assert (declared.session_id, declared.must_exist) == ("x", False)
    with pytest.raises(ValueError, match="session_id"):
        agent("a", session_id="")
    with pytest.raises(ValueError, match="reasoning_effort"):
        agent("a", reasoning_effort="")
    with pytest.raises(ValueError, match="max_tokens"):
        agent("a", max_tokens=0)


@pytest.mark.holds("A34", "CF01")
async def test_a_launchers_identities_override_those_of_matching_entries() -> None:
    given: Mapping[str, str] = {"main": "launched"}

    @plugin(name="launcher", provides=(IDENTITIES,))
    async def launcher(ctx: Context) -> None:
        ctx.provide(IDENTITIES, given)

    async with open_test_house() as house:
        await house.kernel.mount(launcher).ready()
        await reload(
            house,
            config(agent("main", resume_session_id="other"), agent("second", session_id="kept")),
        )
        assert ids(house) == ["kept", "launched"]


@pytest.mark.holds("SL29")
async def test_a_vetoed_declared_agent_is_rolled_back_and_told() -> None:
    failures: list[str] = []

    @plugin(name="watch")
    async def watch(ctx: Context) -> None:
        ctx.on(ev.agent_loop.CONFIG_START_FAILED)(lambda n: failures.append(str(n.error)))

        def veto(notice: ev.session.Created) -> None:
            raise ValueError("not today")

        ctx.on(ev.session.CREATED)(veto)

    async with open_test_house(plugins=[watch]) as house:
        await reload(house, config(agent("main", session_id="one")))
        assert failures == ["not today"]
        assert house.sessions.live() == ()
        assert OPTIONS.provider == "test"


async def test_the_audit_is_clean_with_declared_agents() -> None:
    async with open_test_house(loop=config(agent("main"))) as house:
        kernel: Kernel = house.kernel
        await wait_all_tasks_blocked()
        assert kernel.audit() == []
