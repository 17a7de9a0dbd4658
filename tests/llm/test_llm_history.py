"""Folds of histories: each message is taken once, whatever the requests are."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.catalog.records import AssistantMessage, ModelSource, TextBlock
from dsh.hooks import Line
from dsh.hooks.live import LlmRequest
from dsh.llm import HistoryFolds
from dsh.testing.effort import calls_of
from dsh.testing.model_seam import PartsAdapter, ask, open_seam, user

if TYPE_CHECKING:
    from dsh.catalog.records import Message


class Ids:
    """Remembers which messages it took; refuses the one that is called `bad`."""

    def __init__(self) -> None:
        self.taken: list[str] = []

    def add(self, message: Message) -> None:
        self.taken.append(message.id)
        if message.id == "bad":
            raise ValueError("bad")


def grown(count: int) -> Line[Message]:
    return Line(user("x", str(number)) for number in range(count))


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 5)), max_size=12))
def test_a_fold_is_always_that_of_the_whole_history(asked: list[tuple[int, int]]) -> None:
    """Of two lines that are asked about in turn, forwards and backwards."""
    folds = HistoryFolds(Ids)
    lines: tuple[Line[Message], Line[Message]] = (Line(), Line())
    held = [[line.so_far()] for line in lines]
    for number, (which, back) in enumerate(asked):
        lines[which].add(user("x", f"{which}.{number}"))
        held[which].append(lines[which].so_far())
        history = held[which][max(-1 - back, -len(held[which]))]
        assert folds.of(history).taken == [message.id for message in history]


def test_a_request_costs_what_it_adds() -> None:
    folds = HistoryFolds(Ids)

    def cost(line: Line[Message]) -> int:
        folds.of(line.so_far())
        line.add(user("x", "one more"))
        longer = line.so_far()
        return calls_of(lambda: folds.of(longer))

    assert cost(grown(10)) == cost(grown(5_000)) < 30


def test_what_could_not_take_a_message_is_not_used_again() -> None:
    folds = HistoryFolds(Ids)
    line = grown(2)
    folds.of(line.so_far())
    line.add(user("x", "bad"))
    for _ in range(2):
        with pytest.raises(ValueError, match="bad"):
            folds.of(line.so_far())
    assert folds.of(Line(line.so_far()[:2]).so_far()).taken == ["0", "1"]


def test_a_fold_goes_with_its_line_and_keeps_no_message_alive() -> None:
    begun: list[weakref.ref[Ids]] = []

    def begin() -> Ids:
        made = Ids()
        begun.append(weakref.ref(made))
        return made

    folds = HistoryFolds(begin)
    line = grown(2)
    message = weakref.ref(line.so_far()[0])
    folds.of(line.so_far())
    assert begun[0]() is not None
    del line
    gc.collect()
    assert (message(), begun[0]()) == (None, None)


class Replaying(PartsAdapter):
    reads_replay_state = True


@pytest.mark.holds("LS46")
async def test_replay_states_are_looked_at_once_while_a_conversation_grows() -> None:
    def reply(provider: str, name: str) -> AssistantMessage:
        source = ModelSource(provider=provider, model="m", replay_state="secret")
        return AssistantMessage(id=name, content=(TextBlock(text="t"),), source=source)

    async with open_seam() as seam:
        adapter = Replaying()
        seam.llm.register(seam.ctx, adapter, ("p",))
        line: Line[Message] = Line([user("hi"), reply("p", "a")])

        def request() -> LlmRequest:
            return LlmRequest(provider="p", model="m", messages=line.so_far())

        await seam.run(request())
        line.add(reply("q", "b"))
        await seam.run(request())
        line.add(user("and"))
        line.add(reply("q", "c"))
        await seam.run(request())
        first, second, third = (asked.messages for asked in adapter.requests)
        assert first[1] is second[1] is third[1] is line.so_far()[1]
        assert second.line is third.line
        assert second == third[:3]
        assert [getattr(m.source, "replay_state", None) for m in third] == [
            None, "secret", None, None, None,
        ]  # fmt: skip
        # Whose state it is may change with the routes.
        seam.llm.register(seam.ctx, adapter, ("q",))
        await seam.run(request())
        assert adapter.requests[-1].messages == line.so_far()
        assert adapter.requests[-1].messages.line is line.so_far().line
        short = ask(user("x"))
        await seam.run(short)
        assert adapter.requests[-1] is short
