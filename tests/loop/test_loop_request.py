"""Requests as pure functions: prompt reconciliation, series, headers, route facts, seed config."""

from __future__ import annotations

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from dsh import catalog as ev
from dsh.catalog import records
from dsh.loop.request import (
    AppendPrompt,
    PromptNode,
    PromptNodes,
    PromptOp,
    ReplacePrompt,
    effective_prompt,
    plan_context,
    plan_header,
    plan_prompt,
    request_header,
    seed_config,
    series_starts,
)
from dsh.testing import LogWriting

CONFIG = records.LlmCallConfig(provider="p", model="m")
TOOL_A = records.ToolSchema(name="a", description="A", parameters={"type": "object"})
TOOL_B = records.ToolSchema(name="b", description="B", parameters={"type": "object"})


def nodes(*texts: str) -> tuple[PromptNode, ...]:
    return tuple(PromptNode(10 + index, text) for index, text in enumerate(texts))


def applied(before: tuple[PromptNode, ...], ops: tuple[PromptOp, ...]) -> tuple[PromptNode, ...]:
    """The nodes after the ops; a replaced node keeps its place."""
    after = list(before)
    for op in ops:
        match op:
            case AppendPrompt(text=text):
                after.append(PromptNode(100 + len(after), text))
            case ReplacePrompt(seq=seq, text=text):
                place = next(i for i, node in enumerate(after) if node.seq == seq)
                after[place] = PromptNode(seq, text)
    return tuple(after)


@pytest.mark.holds("D6", "NEW-9a")
@pytest.mark.parametrize("text", ["", "You help."])
def test_the_first_request_reserves_a_node_even_for_an_empty_prompt(text: str) -> None:
    assert plan_prompt((), text, in_history=True, starts_series=False) == (AppendPrompt(text),)


@pytest.mark.holds("D6", "NEW-9b")
def test_an_incapable_route_replaces_the_head_in_place() -> None:
    ops = plan_prompt(nodes("old"), "new", in_history=False, starts_series=False)
    assert ops == (ReplacePrompt(10, "new"),)
    assert plan_prompt(nodes("new"), "new", in_history=False, starts_series=False) == ()


@pytest.mark.holds("D6", "NEW-9c")
def test_a_capable_route_appends_a_changed_prompt_and_nothing_for_an_equal_one() -> None:
    ops = plan_prompt(nodes("one", "two"), "three", in_history=True, starts_series=False)
    assert ops == (AppendPrompt("three"),)
    assert plan_prompt(nodes("one", "two"), "two", in_history=True, starts_series=False) == ()
    # The head's text coming back is a change too: the newest node is the effective one.
    again = plan_prompt(nodes("one", "two"), "one", in_history=True, starts_series=False)
    assert again == (AppendPrompt("one"),)


@pytest.mark.holds("D6", "NEW-9d")
def test_a_series_start_consolidates_into_the_head_also_when_the_text_is_the_same() -> None:
    ops = plan_prompt(nodes("one", "two", "three"), "three", in_history=True, starts_series=True)
    assert ops == (ReplacePrompt(11, ""), ReplacePrompt(12, ""), ReplacePrompt(10, "three"))


@pytest.mark.holds("D6", "NEW-9e", "M27")
def test_a_switch_to_an_incapable_route_consolidates_without_a_series() -> None:
    ops = plan_prompt(nodes("one", "two"), "two", in_history=False, starts_series=False)
    assert ops == (ReplacePrompt(11, ""), ReplacePrompt(10, "two"))


@pytest.mark.holds("D6", "NEW-9f")
@pytest.mark.parametrize("starts", [False, True])
@pytest.mark.parametrize("capable", [False, True])
def test_a_cleared_prompt_empties_every_node_once(*, capable: bool, starts: bool) -> None:
    before = nodes("one", "two", "three")
    ops = plan_prompt(before, "", in_history=capable, starts_series=starts)
    assert ops == (ReplacePrompt(11, ""), ReplacePrompt(12, ""), ReplacePrompt(10, ""))
    cleared = applied(before, ops)
    assert plan_prompt(cleared, "", in_history=capable, starts_series=starts) == ()
    supplied = plan_prompt(cleared, "four", in_history=capable, starts_series=starts)
    if capable and not starts:
        assert supplied == (AppendPrompt("four"),)
    else:
        assert supplied == (ReplacePrompt(10, "four"),)


@pytest.mark.holds("D6", "NEW-9g", "M26")
def test_a_dormant_tail_is_neither_effective_nor_emptied_again() -> None:
    dormant = nodes("head", "", "")
    assert effective_prompt(dormant) == "head"
    assert plan_prompt(dormant, "head", in_history=True, starts_series=False) == ()
    ops = plan_prompt(dormant, "new", in_history=False, starts_series=False)
    assert ops == (ReplacePrompt(10, "new"),)


@pytest.mark.holds("D6")
@given(
    texts=st.lists(st.sampled_from(["", "a", "b", "c"]), max_size=5),
    wanted=st.sampled_from(["", "a", "b"]),
    capable=st.booleans(),
    starts=st.booleans(),
)
def test_whatever_was_there_the_wanted_prompt_is_in_force_and_stays_so(
    texts: list[str], wanted: str, *, capable: bool, starts: bool
) -> None:
    before = nodes(*texts)
    after = applied(before, plan_prompt(before, wanted, in_history=capable, starts_series=starts))
    assert effective_prompt(after) == wanted
    assert [node.seq for node in after][: len(before)] == [node.seq for node in before]
    assert plan_prompt(after, wanted, in_history=capable, starts_series=starts) == ()


@pytest.mark.holds("D6", "NEW-9h")
def test_system_nodes_are_read_incrementally_and_anew_after_a_replacement() -> None:
    """Dormant ones are left out, so that a prompt that came and went costs nothing later."""
    log = LogWriting()
    session = log.session
    reader = PromptNodes()

    def read() -> list[str]:
        surface = session.surface
        return [n.text for n in reader.current(surface.nodes, surface.generation, session.events)]

    log.turn_start()
    log.step_start()
    first = log.system("one")
    log.user("hello")
    assert read() == ["one"]
    log.system("two")
    log.system("")
    assert read() == ["one", "two"]
    source = records.SystemPromptSource()
    session.append(
        ev.system.Message(
            turn=1,
            step=1,
            message=records.SystemMessage(
                id="new", content=(records.TextBlock(text="ONE"),), source=source
            ),
        ),
        surface=records.Replace(start_seq=first, end_seq=first),
        sources=(first,),
    )
    assert read() == ["ONE", "two"]
    assert [type(m).__name__ for m in session.derive_messages()] == [
        "SystemMessage",
        "UserMessage",
        "SystemMessage",
    ]


@pytest.mark.holds("D7", "NEW-10")
def test_each_trigger_alone_starts_a_series_and_nothing_else_does() -> None:
    logged = request_header(CONFIG, None, (TOOL_A,))

    def starts(
        *,
        declared: bool = False,
        generation: int = 4,
        tools: tuple[records.ToolSchema, ...] = (TOOL_A,),
        header: records.EpochHeader | None = logged,
    ) -> bool:
        return series_starts(
            declared=declared, generation=generation, remembered=4, tools=tools, logged=header
        )

    assert not starts()
    assert starts(declared=True)
    assert starts(generation=5)
    assert starts(tools=(TOOL_A, TOOL_B))
    assert starts(tools=())
    # Resuming or another route alone is none; nor is the first request of all.
    other = request_header(evolve(CONFIG, provider="q", model="n"), None, (TOOL_A,))
    assert not starts(header=other)
    assert not starts(header=None, tools=(TOOL_B,))


@pytest.mark.holds("D7", "D16")
def test_the_order_of_tools_matters_for_a_series() -> None:
    logged = request_header(CONFIG, None, (TOOL_A, TOOL_B))
    assert series_starts(
        declared=False, generation=0, remembered=0, tools=(TOOL_B, TOOL_A), logged=logged
    )


@pytest.mark.holds("D8", "NEW-11")
def test_header_reasons() -> None:
    header = request_header(CONFIG, None, ())
    changed = request_header(evolve(CONFIG, temperature=0.5), None, ())

    def reason(
        logged: records.EpochHeader | None, new: records.EpochHeader, *, first: bool, starts: bool
    ) -> tuple[str, bool] | None:
        plan = plan_header(logged, new, first=first, starts_series=starts)
        return None if plan is None else (plan.reason, plan.starts_series)

    assert reason(None, header, first=True, starts=False) == ("initial", False)
    assert reason(None, header, first=True, starts=True) == ("initial", True)
    assert reason(header, header, first=True, starts=False) == ("resume", False)
    assert reason(header, changed, first=True, starts=True) == ("resume", True)
    assert reason(header, changed, first=False, starts=False) == ("change", False)
    assert reason(header, changed, first=False, starts=True) == ("change", True)
    assert reason(header, header, first=False, starts=True) == ("series", False)
    assert reason(header, header, first=False, starts=False) is None


@pytest.mark.holds("D9")
def test_a_header_that_marks_nothing_has_no_marks_and_equals_one_without() -> None:
    empty = records.LlmCallConfigAdapterDefaults()
    marked = records.LlmCallConfigAdapterDefaults(max_tokens=True)
    assert request_header(CONFIG, empty, ()).adapter_defaults is None
    plain = request_header(CONFIG, None, ())
    assert (
        plan_header(plain, request_header(CONFIG, empty, ()), first=False, starts_series=False)
        is None
    )
    differing = [
        request_header(CONFIG, marked, ()),
        request_header(CONFIG, None, (TOOL_A,)),
        request_header(evolve(CONFIG, provider="q"), None, ()),
        request_header(evolve(CONFIG, model="n"), None, ()),
        request_header(evolve(CONFIG, reasoning_effort="high"), None, ()),
        request_header(evolve(CONFIG, temperature=0.1), None, ()),
        request_header(evolve(CONFIG, max_tokens=5), None, ()),
        request_header(evolve(CONFIG, stop=("x",)), None, ()),
    ]
    for header in differing:
        plan = plan_header(plain, header, first=False, starts_series=False)
        assert plan is not None
        assert plan.reason == "change"


@pytest.mark.holds("D10", "NEW-12")
def test_route_facts_are_due_when_any_of_the_four_differs() -> None:
    facts = records.RequestContext(provider="p", model="m", context_window=1000)
    assert plan_context(None, facts) == facts
    assert plan_context(facts, facts) is None
    for changed in (
        evolve(facts, provider="q"),
        evolve(facts, model="n"),
        evolve(facts, context_window=None),
        evolve(facts, system_prompt_update="in-history"),
    ):
        assert plan_context(facts, changed) == changed


@pytest.mark.holds("D1", "NEW-16")
def test_the_first_request_starts_from_the_options() -> None:
    options = records.AgentOptions(provider="p", model="m", reasoning_effort="high", max_tokens=99)
    assert seed_config(options, None, first=True) == records.LlmCallConfig(
        provider="p", model="m", reasoning_effort="high", max_tokens=99
    )
    bare = seed_config(records.AgentOptions(), None, first=True)
    assert (bare.provider, bare.model) == ("", "")


@pytest.mark.holds("D1", "D2")
def test_a_resumed_agent_gets_back_an_explicit_effort_of_exactly_its_route() -> None:
    options = records.AgentOptions(provider="p", model="m")
    explicit = request_header(evolve(CONFIG, reasoning_effort="low"), None, ())
    assert seed_config(options, explicit, first=True).reasoning_effort == "low"
    marks = records.LlmCallConfigAdapterDefaults(reasoning_effort=True)
    default = request_header(evolve(CONFIG, reasoning_effort="low"), marks, ())
    assert seed_config(options, default, first=True).reasoning_effort is None
    elsewhere = records.AgentOptions(provider="p", model="other")
    assert seed_config(elsewhere, explicit, first=True).reasoning_effort is None
    own = evolve(options, reasoning_effort="high")
    assert seed_config(own, explicit, first=True).reasoning_effort == "high"


@pytest.mark.holds("D1", "D2")
def test_later_requests_start_from_the_log_without_what_the_adapter_filled_in() -> None:
    options = records.AgentOptions(provider="p", model="m")
    config = evolve(CONFIG, model="switched", reasoning_effort="low", max_tokens=7)
    marks = records.LlmCallConfigAdapterDefaults(max_tokens=True)
    seed = seed_config(options, request_header(config, marks, ()), first=False)
    assert seed == evolve(config, max_tokens=None)
