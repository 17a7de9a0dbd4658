"""A composition that is edited while the house runs: rows follow, one by one, or nothing does."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Literal

import pytest
import trio
from attrs import field, frozen, validators

from dsh import catalog as ev
from dsh.agent import AgentHandle, user_message
from dsh.boot import Harness, News, ProcessEnviron, open_harness, watching
from dsh.catalog.records import AgentOptions, CompletedTurnEnd
from dsh.hooks import Emit, Notice
from dsh.kernel import Context, Fiber, FiberState, Plugin, plugin
from dsh.session import SESSIONS

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

SCRIPTED = AgentOptions(provider="scripted", model="scripted")


@frozen
class Asked(Notice):
    answers: list[str]


ASKED: Emit[Asked] = Emit("test/live-asked", Asked, errors="veto", scope_of=None, owner="core")


@frozen(kw_only=True)
class Settings:
    word: str = field(default="one", metadata={"wire": "word", "live": True})
    size: int = field(
        default=1, validator=validators.ge(1), metadata={"wire": "size", "live": False}
    )


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may take its time here: deadlines are not the subject."""
    monkeypatch.setattr("dsh.boot.harness.START_SECONDS", 120)
    monkeypatch.setattr("dsh.boot.live.READY_SECONDS", 120)


def answering(name: str) -> Plugin:
    """A plugin that answers with its word, takes a new word in place, and dislikes size 13."""

    @plugin(name=name, config=Settings)
    async def apply(ctx: Context, config: Settings) -> None:
        if config.size == 13:
            raise ValueError("thirteen brings no luck")
        word = [config.word]
        ctx.on(ASKED)(lambda asked: asked.answers.append(f"{name}:{word[0]}"))

        async def accept(new: Settings, old: Settings) -> Literal["applied", "restart"]:
            if new.size != old.size:
                return "restart"
            word[0] = new.word
            return "applied"

        ctx.on_config(accept)

    return apply


@asynccontextmanager
async def house(
    tmp_path: Path, text: str, told: list[News] | None = None
) -> AsyncGenerator[Harness]:
    write(tmp_path, text)
    async with open_harness(
        tmp_path / "house.yml",
        profile="demo",
        home=tmp_path / "home",
        cwd=tmp_path,
        environ=ProcessEnviron({}),
        plugins=[answering(name) for name in ("alpha", "beta", "gamma")],
    ) as harness:
        if told is not None:
            harness.live.tell = told.append
        yield harness


def write(tmp_path: Path, text: str) -> None:
    (tmp_path / "house.yml").write_text(text, encoding="utf-8")


def answers(harness: Harness) -> list[str]:
    asked = Asked([])
    harness.context.emit(asked)
    return asked.answers


def fibers(harness: Harness) -> dict[str, Fiber]:
    return {name: one.fiber for name, one in harness.live.rows.items()}


def logged(harness: Harness) -> int:
    session = harness.service(SESSIONS).get("mine")
    assert session is not None
    return len(session.events)


@pytest.mark.holds("BO18")
async def test_a_live_field_is_applied_at_once_and_any_other_restarts_its_row_alone(
    tmp_path: Path,
) -> None:
    async with house(tmp_path, "- {name: alpha}\n- {name: beta}\n") as harness:
        before = fibers(harness)
        lives = {name: fiber.activation for name, fiber in before.items()}
        write(tmp_path, "- {name: alpha, config: {word: two}}\n- {name: beta}\n")
        assert await harness.live.recompose() == (
            News("changed", "'alpha': word changed, applied at once"),
        )
        assert answers(harness)[:2] == ["alpha:two", "beta:one"]
        assert {name: fiber.activation for name, fiber in fibers(harness).items()} == lives
        write(tmp_path, "- {name: alpha, config: {word: two, size: 2}}\n- {name: beta}\n")
        assert await harness.live.recompose() == (
            News("changed", "'alpha': size changed, restarted with it"),
        )
        assert answers(harness)[:2] == ["alpha:two", "beta:one"]
        changed = {n for n, fiber in fibers(harness).items() if fiber.activation is not lives[n]}
        assert changed == {"alpha"}
        assert fibers(harness) == before
        assert await harness.live.recompose() == ()


@pytest.mark.holds("BO18")
async def test_rows_come_and_go_in_their_places(tmp_path: Path) -> None:
    async with house(tmp_path, "- {name: alpha}\n- {name: beta}\n") as harness:
        assert [word.partition(":")[0] for word in answers(harness)] == ["alpha", "beta", "gamma"]
        write(tmp_path, "- {name: alpha}\n- {name: gamma, id: new}\n- {name: beta}\n")
        news = await harness.live.recompose()
        # The third plugin was mounted by itself while no row named it.
        assert News("changed", "'new' mounted") in news
        assert News("changed", "'gamma' unloaded") in news
        assert [word.partition(":")[0] for word in answers(harness)] == ["alpha", "gamma", "beta"]
        write(tmp_path, "- {name: alpha, disabled: true}\n- {name: beta}\n")
        await harness.live.recompose()
        assert [word.partition(":")[0] for word in answers(harness)] == ["beta", "gamma"]


@pytest.mark.holds("BO19")
async def test_a_bad_layer_keeps_the_last_good_value_and_says_where(tmp_path: Path) -> None:
    told: list[News] = []
    async with house(tmp_path, "- {name: alpha, config: {word: good}}\n", told) as harness:
        before = fibers(harness)
        for text, said in (
            ("- {name: alpha, config: {word: 5}}\n", "house.yml:1:32: "),
            ("- {name: alpha, config: {wrod: x}}\n", "did you mean 'word'?"),
            ("- {name: alpha\n", "house.yml:2:1: "),
            ("- {name: alhpa}\n", "no plugin named 'alhpa'"),
            ("- {name: alpha, config: {size: 0}}\n", "house.yml:1:32: "),
        ):
            write(tmp_path, text)
            (news,) = await harness.live.recompose()
            assert news.kind == "kept"
            assert said in news.text
            assert answers(harness)[0] == "alpha:good"
            assert fibers(harness) == before
        assert [news.kind for news in told] == ["kept"] * 5
        # What parses but cannot start is taken back, too.
        write(tmp_path, "- {name: alpha, config: {word: bad, size: 13}}\n")
        (news,) = await harness.live.recompose()
        assert news.kind == "kept"
        assert "'alpha' keeps its configuration" in news.text
        assert "ValueError: thirteen brings no luck" in news.text
        assert answers(harness)[0] == "alpha:good"
        assert fibers(harness)["alpha"].state is FiberState.ACTIVE


@pytest.mark.holds("BO18")
async def test_the_loop_takes_a_new_limit_without_a_restart(tmp_path: Path) -> None:
    async with house(tmp_path, "") as harness:
        handle = await harness.agents.create("mine", options=SCRIPTED, cwd=str(tmp_path))
        write(tmp_path, "- {id: agent-loop, config: {maxParallelToolCalls: 3}}\n")
        assert await harness.live.recompose() == (
            News("changed", "'agent-loop': maxParallelToolCalls changed, applied at once"),
        )
        assert harness.agents.get("mine") is handle.agent
        outcome = await handle.agent.ask(user_message("hi"))
        assert outcome.reason == CompletedTurnEnd()


@pytest.mark.holds("BO20")
async def test_a_restart_of_the_loop_is_said_first_and_its_agents_live_on(tmp_path: Path) -> None:
    told: list[News] = []
    again: list[AgentHandle] = []
    async with house(tmp_path, "", told) as harness:
        harness.live.restarts.resumed = again.append
        heard: list[str] = []
        helped = trio.Event()
        harness.on(ev.agent.SESSION_START)(
            lambda p: helped.set() if p.agent.id == "helper" else None
        )
        harness.on(ev.agent.DISPOSED)(lambda _p: heard.append(told[-1].kind))
        old = await harness.agents.create("mine", options=SCRIPTED, cwd=str(tmp_path))
        await old.agent.ask(user_message("hi"))
        events = logged(harness)
        write(
            tmp_path,
            "- id: agent-loop\n  config:\n    agents:\n"
            "    - {id: helper, provider: scripted, model: scripted, sessionId: helper}\n",
        )
        news = await harness.live.recompose()
        with trio.fail_after(90):
            await helped.wait()
        assert heard == ["agents"]
        assert told[0].text == (
            "the edited composition restarts the loop: 'mine' stop now and are resumed"
        )
        assert news == (News("changed", "'agent-loop': agents changed, restarted with it"),)
        (handle,) = again
        assert handle.agent is harness.agents.get("mine")
        assert handle.agent is not old.agent
        assert logged(harness) >= events
        outcome = await handle.agent.ask(user_message("and now?"))
        assert outcome.reason is not None
        assert harness.agents.get("helper") is not None


@pytest.mark.holds("BO20")
async def test_a_declared_agent_without_an_id_keeps_its_session_over_a_restart(
    tmp_path: Path,
) -> None:
    agents = (
        "- id: agent-loop\n  config:\n    agents:\n"
        "    - {{id: helper, provider: scripted, model: scripted, maxTokens: {0}}}\n"
    )
    async with house(tmp_path, agents.format(5)) as harness:
        started, failed = trio.Event(), list[str]()
        harness.on(ev.agent.SESSION_START)(lambda _p: started.set())
        harness.on(ev.agent_loop.CONFIG_START_FAILED)(lambda p: failed.append(p.session_id))
        with trio.fail_after(10):
            while not harness.agents.live():
                await started.wait()
                started = trio.Event()
            (before,) = harness.agents.live()
            await before.ask(user_message("hi"))
            started = trio.Event()
            write(tmp_path, agents.format(7))
            await harness.live.recompose()
            await started.wait()
        (after,) = harness.agents.live()
        assert after is not before
        assert (after.id, after.turn) == (before.id, 1)
        assert after.id.startswith("helper-session-")
        assert failed == []


@pytest.mark.holds("BO21")
async def test_the_watcher_follows_the_composition_and_the_settings(tmp_path: Path) -> None:
    send, receive = trio.open_memory_channel[News](10)
    (tmp_path / "home").mkdir()
    with trio.fail_after(90):
        async with house(tmp_path, "- {name: alpha}\n") as harness:
            harness.live.tell = send.send_nowait
            async with watching(harness):
                write(tmp_path, "- {name: alpha, config: {word: two}}\n")
                assert "word changed" in (await receive.receive()).text
                settings = tmp_path / "home/settings.yml"
                new = settings.with_suffix(".new")
                new.write_text("- {id: alpha, config: {word: 3rd}}\n", encoding="utf-8")
                new.rename(settings)  # as an editor saves
                assert "word changed" in (await receive.receive()).text
                assert answers(harness)[0] == "alpha:3rd"
                (tmp_path / "other.yml").write_text("- {", encoding="utf-8")
                write(tmp_path, "- {name: alpha, config: [}\n")
                assert (await receive.receive()).kind == "kept"
                assert answers(harness)[0] == "alpha:3rd"
