"""Every scene, interrupted at its moments, in every way: the log is always lawful.

`DSH_CANCELS=all` interrupts at each moment in each way; otherwise a few of each scene are taken,
always the same.
"""

from __future__ import annotations

import random
from functools import cache
from typing import TYPE_CHECKING

import orjson
import pytest

from dsh import catalog as ev
from dsh.boot import process_environ
from dsh.catalog.registry import TOKENS
from dsh.hooks import Parallel, Serial, Stream, Waterfall
from dsh.testing import SCENES, WAYS, interrupted, refusal_of, uninterrupted
from dsh_plugins.openai_chat.catalog import ProviderProfile
from dsh_plugins.openai_chat.families import server_of
from dsh_plugins.openai_chat.history import BodyEncoder

if TYPE_CHECKING:
    from dsh.hooks import live
    from dsh.testing import Interrupted, Scene, Way

ALL = process_environ().get("DSH_CANCELS") == "all"
#: How many moments of each scene an ordinary run takes.
FEW = 8


def refusal(request: live.LlmRequest) -> str | None:
    """What a strict provider would say to the bytes of a request."""
    body = BodyEncoder(server_of("generic", ProviderProfile())).body(request)
    return refusal_of(orjson.loads(bytes(body)))


@cache
def played(scene: Scene) -> Interrupted:
    return uninterrupted(scene, refusal)


def chosen(scene: Scene) -> list[tuple[int, Way]]:
    """The moments and ways of this run."""
    every = [(at, way) for at in range(1, played(scene).count + 1) for way in WAYS]
    return every if ALL else random.Random(scene.name).sample(every, FEW)


#: What became of each scene: its points, and the violations.
TALLY: list[tuple[int, int]] = []


@pytest.mark.holds("G1", "G2", "G6", "G8", "A12", "C15", "C20", "F8", "E6", "I6", "M13")
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
def test_an_interruption_at_any_moment_leaves_a_log_that_goes_on(scene: Scene) -> None:
    assert played(scene).broken == ()
    runs = chosen(scene)
    broken = [text for at, way in runs for text in interrupted(scene, at, way, refusal).broken]
    TALLY.append((len(runs), len(broken)))
    assert not broken, "\n".join(broken)


def test_the_scenes_enter_every_extension_point_of_the_catalog() -> None:
    """The registry says which there are; one that a plugin dispatches is that plugin's to test."""
    kinds: set[type] = {Waterfall, Serial, Stream, Parallel}
    due = {n for n, token in TOKENS.items() if type(token) in kinds and token.owner == "core"}
    assert {ev.agent.PRE_STEP.name, ev.llm.STREAM.name, ev.session.FLUSH.name} < due
    assert not due - met(), f"no scene enters {sorted(due - met())}; write one"


#: Events of the core that no turn can have; all others happen in some scene.
ELSEWHERE = {
    ev.agent_loop.CONFIG_START_FAILED.name: "an agent that did not start has no turn",
    ev.approval.POLICY.name: "a person changes it, between turns",
    ev.compaction.PRUNE.name: "the scene has no tool result that is long enough",
    ev.llm.ADAPTERS_UPDATED.name: "routes are registered before",
    ev.session.END_SEED.name: "resuming and forking write it, before",
    ev.session.TITLE.name: "what a session is called is no part of its turns",
    ev.system_prompt.CHANGE.name: "sections are registered before",
}


def test_every_event_of_a_turn_happens_in_some_scene() -> None:
    due = {name for name, token in TOKENS.items() if token.owner == "core"}
    assert due - met() == ELSEWHERE.keys()


def met() -> frozenset[str]:
    """All that is dispatched while scenes play."""
    return frozenset[str]().union(*(played(scene).met for scene in SCENES))


def test_there_are_scenes_enough() -> None:
    points = sum(played(scene).count for scene in SCENES)
    interruptions, violations = (sum(column) for column in zip(*TALLY, strict=True))
    print(  # noqa: T201 - figures for `pytest -s`
        f"\n{len(SCENES)} scripts, {points} points, {len(WAYS)} ways to interrupt: "
        f"{interruptions} interruptions, {violations} violations"
    )
    assert len({scene.name for scene in SCENES}) == len(SCENES) >= 20
    assert points > 100 * len(SCENES)
