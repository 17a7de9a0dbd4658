"""Lives in bad weather: every seed is one, and none of them may break a law."""

from __future__ import annotations

import pytest

from dsh.boot import process_environ
from dsh.testing import Life, live_through

#: `FIRST:AFTER` in DSH_SEEDS runs other seeds than those of every day.
FIRST, _, AFTER = (process_environ().get("DSH_SEEDS") or "0:300").partition(":")
SEEDS = range(int(FIRST), int(AFTER or int(FIRST) + 1))
#: So many seeds a test: a failing one is found quickly, and a thousand tests are not listed.
LOT = 25


def of(lives: list[Life]) -> str:
    return "\n".join(
        f"DSH_SEEDS={life.seed} python -m pytest {__name__.replace('.', '/')}.py: {life.broken}"
        for life in lives
        if life.broken
    )


@pytest.mark.holds("G6")
@pytest.mark.parametrize("first", SEEDS[::LOT])
def test_no_seed_breaks_a_law(first: int) -> None:
    lives = [live_through(seed) for seed in range(first, min(first + LOT, SEEDS.stop))]
    assert not any(life.broken for life in lives), f"\n{of(lives)}"


def test_a_seed_is_a_life() -> None:
    one, again, other = live_through(7), live_through(7), live_through(8)
    assert one.met == again.met
    assert one.met != other.met


def test_the_weather_is_bad_enough() -> None:
    met: dict[str, int] = {}
    for seed in range(100):
        for what, count in live_through(seed).met.items():
            met[what] = met.get(what, 0) + count
    due = {
        "rejected", "rewritten", "rerouted", "another prompt", "another runtime context",
        "kept going", "denied", "asked about", "rewritten arguments", "blocked", "retried",
        "assembly raised", "pre-step hung", "request raised", "middleware hung", "body raised",
        "wrapper raised", "review raised", "recovery hung", "an observer raised",
        "a plugin steered", "a plugin injected", "a plugin cancelled", "reload",
        "the model was reset", "the model failed", "the model limited us",
        "the history was too long", "the stream was cut off", "a call was cut off",
        "cut by the cap", "stream hung", "cancel", "cancelled by a listener",
        "cancelled at an insertion", "a bolt from the blue", "an end in the middle", "maintain",
        "steer", "a body shielded itself", "a body concluded", "a body left a context",
        "a body steered",
    }  # fmt: skip
    assert not due - met.keys(), f"never happened in 100 lives: {sorted(due - met.keys())}"
