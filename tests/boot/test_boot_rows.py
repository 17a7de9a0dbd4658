"""Rows: their form, their layers, and how one layer lies over another."""

from __future__ import annotations

import pytest

from dsh.boot.names import canonical
from dsh.boot.nodes import Issue, plain
from dsh.boot.rows import Layer, PlacedRow, Row, combined, layer_of_node, layer_of_rows
from dsh.boot.yaml_file import read_text


def file_layer(text: str, issues: list[Issue], source: str = "dsh.yml") -> Layer:
    return layer_of_node(source, read_text(text, source), issues)


def effective(*texts: str) -> dict[str, PlacedRow]:
    issues: list[Issue] = []
    layers = [file_layer(text, issues, f"{place}.yml") for place, text in enumerate(texts)]
    rows = combined(layers, issues)
    assert issues == []
    return {row.id: row for row in rows}


def mistakes(*texts: str) -> list[str]:
    issues: list[Issue] = []
    layers = [file_layer(text, issues, f"{place}.yml") for place, text in enumerate(texts)]
    combined(layers, issues)
    return [str(issue) for issue in issues]


@pytest.mark.holds("BO2")
def test_the_id_is_the_name_unless_given() -> None:
    rows = effective("- name: fs\n- {name: fs, id: second}\n")
    assert [(row.id, row.name) for row in rows.values()] == [("fs", "fs"), ("second", "fs")]


@pytest.mark.holds("BO3")
@pytest.mark.parametrize(
    ("written", "ours"),
    [
        ("@deepseek-ai/dsh-agent-loop", "agent-loop"),
        ("@deepseek-ai/dsh-session-persistence-jsonl", "session-jsonl"),
        ("session-checkpoint-policy", "checkpoint"),
        ("user-approval", "approval"),
        ("compaction-basic", "compaction"),
        ("llm-deepseek", "openai-chat"),
        ("llm-openai-compatible", "openai-chat"),
        ("tool-call-timeout-policy", "tool-timeout"),
        ("fs-local", "fs-local"),
        ("fs-observation-policy", "fs"),
        ("acme.deploy", "acme.deploy"),
    ],
)
def test_documented_names_mean_ours(written: str, ours: str) -> None:
    assert canonical(written) == ours


@pytest.mark.holds("BO3")
def test_two_documented_names_of_one_plugin_are_one_row() -> None:
    rows = effective("- {name: llm-deepseek}\n- {name: llm-openai-compatible, config: {x: 1}}\n")
    assert list(rows) == ["openai-chat"]
    assert plain(rows["openai-chat"].config) == {"x": 1}


@pytest.mark.holds("BO3")
def test_the_documented_deepseek_row_configures_that_provider() -> None:
    rows = effective("- {name: llm-deepseek, config: {apiKeyEnv: KEY}}\n")
    assert plain(rows["openai-chat"].config) == {"providers": {"deepseek": {"apiKeyEnv": "KEY"}}}


@pytest.mark.holds("BO2")
def test_layers_merge_by_id_mappings_deep_lists_whole() -> None:
    rows = effective(
        "- {name: a, config: {m: {x: 1, y: 2}, l: [1, 2], s: low}, optional: true}\n",
        "- {id: a, config: {m: {y: 3}, l: [9]}}\n",
        "- {name: a, disabled: true}\n",
    )
    assert plain(rows["a"].config) == {"m": {"x": 1, "y": 3}, "l": [9], "s": "low"}
    assert (rows["a"].disabled, rows["a"].optional) == (True, True)


@pytest.mark.holds("BO2")
def test_the_order_is_that_of_first_appearance() -> None:
    assert list(effective("- name: a\n- name: b\n", "- name: c\n- {id: a}\n")) == ["a", "b", "c"]


@pytest.mark.holds("BO2")
def test_another_plugin_under_the_same_id_replaces_config_and_all() -> None:
    rows = effective(
        "- {name: agent-loop, config: {maxParallelToolCalls: 3}, optional: true}\n",
        "- {name: my-loop, id: agent-loop, config: {x: 1}}\n",
    )
    assert rows["agent-loop"].name == "my-loop"
    assert plain(rows["agent-loop"].config) == {"x": 1}
    assert not rows["agent-loop"].optional


@pytest.mark.holds("BO2")
def test_permission_rules_only_grow() -> None:
    rows = effective(
        "- {name: permissions, config: {ask: ask, rules: [{decision: deny, tool: bash}]}}\n",
        "- {id: permissions, config: {rules: [{decision: allow, tool: bash}]}}\n",
        "- {id: permissions, config: {rules: []}}\n",
    )
    config = plain(rows["permissions"].config)
    assert config == {
        "ask": "ask",
        "rules": [{"decision": "deny", "tool": "bash"}, {"decision": "allow", "tool": "bash"}],
    }


@pytest.mark.holds("BO4", "case-078")
@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("name: fs\n", "0.yml:1:1: a composition is a list of rows"),
        ("- fs\n", "0.yml:1:3: a row is a mapping"),
        ("- {nmae: fs, id: x}\n", "0.yml:1:4: unknown key 'nmae' in a row; did you mean 'name'?"),
        ("- {disabled: true}\n", "0.yml:1:3: a row needs a name"),
        (
            "- {name: 1.10}\n",
            '0.yml:1:10: name must be text that is not empty; write it in quotes: "1.10"',
        ),
        ("- {name: fs, disabled: yes}\n", "0.yml:1:24: disabled must be true or false, not yes"),
        ("- {name: fs, config: [1]}\n", "0.yml:1:22: config is a mapping"),
        ("- name: fs\n- name: fs\n", "0.yml:2:3: the id 'fs' is taken by the row at 0.yml:1:3"),
        ("- {id: fz, config: {}}\n", "0.yml:1:3: no layer below has a row with the id 'fz'"),
    ],
)
def test_mistakes_of_form_name_their_place(text: str, mistake: str) -> None:
    assert any(found.startswith(mistake) for found in mistakes(text)), mistakes(text)


@pytest.mark.holds("BO4")
def test_all_bad_rows_are_named_at_once() -> None:
    assert len(mistakes("- fs\n- {disabled: 3, name: a}\n- {name: a}\n", "- {id: zz}\n")) == 4


def test_rows_of_a_program_are_a_layer_like_any_other() -> None:
    issues: list[Issue] = []
    layers = [layer_of_rows("profile x", [Row(name="a", config={"k": [1]})])]
    (row,) = combined(layers, issues)
    assert (plain(row.config), str(row.place)) == ({"k": [1]}, "profile x")


def test_what_no_composition_can_hold_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="set cannot stand in a composition"):
        layer_of_rows("x", [Row(name="a", config={"k": {1}})])
