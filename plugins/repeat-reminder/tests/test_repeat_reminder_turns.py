"""Repetition in the real loop: reminders, the limit, and what is no repetition at all."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import pytest
from attrs import frozen

from dsh import catalog as ev
from dsh import define_tool, user_message
from dsh.catalog import records
from dsh.testing import call, calls, open_test_house, says
from dsh_plugins.repeat_reminder import repeat_reminder
from dsh_plugins.repeat_reminder.catalog import RepeatReminderConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dsh.agent import AgentHandle
    from dsh.hooks.live import ToolRun, TurnOutcome
    from dsh.testing import ScriptEntry, TestHouse
    from dsh.tools import Tool


@frozen
class Args:
    """Which job."""

    job: int = 1


def tool(name: str, *, changes: bool = False) -> Tool:
    numbers = count()

    async def body(_args: Args, _run: ToolRun) -> str:
        return f"{next(numbers)} lines" if changes else "the same"

    return define_tool(name=name, description="", args=Args, output=str, execute=body)


async def run(
    replies: Sequence[ScriptEntry], config: RepeatReminderConfig | None = None
) -> tuple[TurnOutcome, list[str], int]:
    """The outcome, the reminders, and how many results there are."""
    made = [tool("same"), tool("poll", changes=True)]
    async with open_test_house(replies=replies, tools=made) as house:
        await house.kernel.mount(repeat_reminder, config or RepeatReminderConfig()).ready()
        handle = await house.agent()
        outcome = await handle.agent.ask(user_message("go"))
        return outcome, reminders(house, handle), house.names(handle).count(ev.tool.RESULT.name)


def reminders(house: TestHouse, handle: AgentHandle) -> list[str]:
    found: list[str] = []
    for event in house.session(handle).events:
        if isinstance(event.data, ev.user.Message):
            message = event.data.message
            if isinstance(message.source, records.PluginSource):
                assert message.source.plugin == "repeat-reminder"
                found += [b.text for b in message.content if isinstance(b, records.TextBlock)]
    return found


async def test_equal_calls_in_a_row_are_told_of_at_the_thresholds() -> None:
    outcome, told, _ = await run([*[calls(call("same"))] * 9, says("ready")])
    assert outcome.text == "ready"
    assert [text.split(" times")[0].rsplit(" ", 1)[1] for text in told] == ["3", "5", "8"]
    assert "the same arguments: {}" not in told[0]
    assert "the same arguments: {}" in told[1]


async def test_the_order_of_keys_does_not_make_a_call_another_one() -> None:
    one, other = '{"job": 1}', '{ "job":1 }'
    replies = [calls(call("same", one)), calls(call("same", other)), calls(call("same", one))]
    assert len((await run([*replies, says("ready")]))[1]) == 1


async def test_other_arguments_or_another_tool_begin_a_new_row() -> None:
    replies = [calls(call("same", f'{{"job": {number % 2}}}')) for number in range(12)]
    outcome, told, _ = await run([*replies, says("ready")])
    assert (outcome.text, told) == ("ready", [])


async def test_excluded_tools_are_not_seen() -> None:
    replies = [calls(call("same"), call("poll")) for _ in range(3)]
    config = RepeatReminderConfig(exclude=("po*",))
    assert len((await run([*replies, says("ready")], config))[1]) == 1


@pytest.mark.holds("case-084", "case-077")
@pytest.mark.parametrize("kind", ["missing", "same", "two-in-turn"])
async def test_a_turn_in_which_nothing_is_new_ends_with_the_reason(kind: str) -> None:
    wanted = {"missing": ["gone"], "same": ["same"], "two-in-turn": ["same", "gone"]}[kind]
    replies = [calls(call(wanted[number % len(wanted)])) for number in range(40)]
    outcome, _, results = await run(replies)
    assert outcome.reason == records.BlockedTurnEnd(
        reason="20 tool calls in a row brought nothing new", plugin="repeat-reminder"
    )
    assert results == 20 + len(wanted)


@pytest.mark.holds("case-084")
async def test_a_poll_of_thirty_whose_output_changes_goes_on() -> None:
    outcome, _, results = await run([*[calls(call("poll"))] * 30, says("ready")])
    assert (outcome.text, results) == ("ready", 30)


@pytest.mark.holds("case-084")
async def test_two_hundred_calls_in_one_message_all_get_results_and_then_it_ends() -> None:
    outcome, _, results = await run([calls(*[call("same")] * 200), says("never")])
    assert results == 200
    assert isinstance(outcome.reason, records.BlockedTurnEnd)


async def test_what_the_user_says_starts_anew_and_zero_never_stops() -> None:
    replies = [*[calls(call("same"))] * 2, says("one"), *[calls(call("same"))] * 2, says("two")]
    async with open_test_house(replies=replies, tools=[tool("same")]) as house:
        await house.kernel.mount(repeat_reminder, RepeatReminderConfig()).ready()
        handle = await house.agent()
        assert (await handle.agent.ask(user_message("go"))).text == "one"
        assert (await handle.agent.ask(user_message("again"))).text == "two"
        assert reminders(house, handle) == []
    config = RepeatReminderConfig(stop_after=0)
    assert (await run([*[calls(call("same"))] * 60, says("ready")], config))[0].text == "ready"
