"""Configuration, strictly: what is accepted, and how everything else is named."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  # the classes below are resolved at run time
from typing import TYPE_CHECKING, ClassVar, Literal

import pytest
from attrs import field, frozen, validators

from dsh.boot.declared import field_at, node_of_text
from dsh.boot.nodes import Issue, Place, plain
from dsh.boot.structure import structured
from dsh.boot.yaml_file import read_text
from dsh.catalog.config import AgentLoopConfig, ConfiguredAgent

if TYPE_CHECKING:
    from dsh.hooks import JsonObject, JsonValue


@frozen(kw_only=True, slots=True)
class Normal:
    """One variant of a policy."""

    mode: ClassVar[Literal["normal"]] = "normal"
    max_retries: int = field(default=5, metadata={"wire": "maxRetries"})


@frozen(kw_only=True, slots=True)
class Always:
    """The other."""

    mode: ClassVar[Literal["always"]] = "always"


@frozen(kw_only=True, slots=True)
class Item:
    """A nested record."""

    id: str = field(metadata={"wire": "id"})
    effort: str | None = field(default=None, metadata={"wire": "reasoningEffort"})


@frozen(kw_only=True, slots=True)
class Config:
    """One field of every kind that a schema can declare."""

    limit: int = field(default=10, validator=validators.ge(1), metadata={"wire": "maxCalls"})
    ratio: float = field(default=0.5, metadata={"wire": "ratio"})
    flag: bool = field(default=False, metadata={"wire": "flag"})
    text: str = field(default="", metadata={"wire": "text"})
    kind: Literal["a", "b"] = field(default="a", metadata={"wire": "kind"})
    items: tuple[Item, ...] = field(default=(), metadata={"wire": "items"})
    table: Mapping[str, Item] = field(factory=dict[str, Item], metadata={"wire": "table"})
    policy: Normal | Always | None = field(default=None, metadata={"wire": "retryPolicy"})
    extra: JsonObject | None = field(default=None, metadata={"wire": "extra"})
    any: JsonValue = field(default=None, metadata={"wire": "any"})


def made(text: str) -> Config:
    issues: list[Issue] = []
    config = structured(Config, read_text(text, "dsh.yml"), "row", issues)
    assert issues == []
    assert config is not None
    return config


def mistakes(text: str, cls: type = Config) -> list[str]:
    issues: list[Issue] = []
    assert structured(cls, read_text(text, "dsh.yml"), "row", issues) is None
    return [str(issue) for issue in issues]


@pytest.mark.holds("BO5")
def test_every_kind_of_field_is_read_by_its_wire_name() -> None:
    config = made(
        "maxCalls: 3\nratio: 2\nflag: true\ntext: '5'\nkind: b\n"
        "items: [{id: x, reasoningEffort: high}]\ntable: {k: {id: z}}\n"
        "retryPolicy: {mode: always}\nextra: {camelCase: [1]}\nany: [null]\n"
    )
    assert config == Config(
        limit=3,
        ratio=2.0,
        flag=True,
        text="5",
        kind="b",
        items=(Item(id="x", effort="high"),),
        table={"k": Item(id="z")},
        policy=Always(),
        extra={"camelCase": [1]},
        any=[None],
    )
    assert type(config.ratio) is float


@pytest.mark.holds("BO5")
def test_nothing_given_is_every_default() -> None:
    assert made("{}") == Config()


@pytest.mark.holds("BO5", "case-078")
@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        (
            "maxCalls: '5'",
            "1:11: row.maxCalls: expected a whole number, got text '5'; write it without quotes",
        ),
        ("maxCalls: 5.0", "1:11: row.maxCalls: expected a whole number, got number 5.0"),
        ("maxCalls: true", "1:11: row.maxCalls: expected a whole number, got true"),
        ("maxCalls: ~", "1:11: row.maxCalls: expected a whole number, got null"),
        ("maxCalls: 0", "1:11: row.maxCalls: 'limit' must be >= 1: 0"),
        ("ratio: true", "1:8: row.ratio: expected a number, got true"),
        ("flag: 1", "1:7: row.flag: expected true or false, got number 1"),
        ("flag: on", "1:7: row.flag: expected true or false, got text 'on'"),
        ("text: 1.10", '1:7: row.text: expected text, got number 1.10; write it in quotes: "1.10"'),
        ("text: true", '1:7: row.text: expected text, got true; write it in quotes: "true"'),
        ("kind: c", "1:7: row.kind: expected one of a, b, got text 'c'"),
        ("items: {id: x}", "1:8: row.items: expected a list, got a mapping"),
        ("items: abc", "1:8: row.items: expected a list, got text 'abc'"),
        ("items: [{id: x}, 7]", "1:18: row.items[1]: expected a mapping, got number 7"),
        ("items: [{}]", "1:9: row.items[0].id: missing; it has no default, give a value"),
        ("table: [1]", "1:8: row.table: expected a mapping, got a list"),
        ("table: {k: {id: 5}}", "1:17: row.table.k.id: expected text, got number 5"),
        (
            "retryPolicy: {mode: norml}",
            "1:14: row.retryPolicy: expected a mapping with mode: normal or always",
        ),
        (
            "retryPolicy: {mode: normal, maxRetries: x}",
            "1:41: row.retryPolicy.maxRetries: expected a whole number",
        ),
        ("extra: 3", "1:8: row.extra: expected a mapping, got number 3"),
        (
            "maxcalls: 3",
            "1:1: row: unknown key 'maxcalls'; did you mean 'maxCalls'? It takes: maxCalls, ratio",
        ),
        ("max_calls: 3", "1:1: row: unknown key 'max_calls'; did you mean 'maxCalls'?"),
        (
            "items: [{id: x, reasoning_effort: high}]",
            "1:17: row.items[0]: unknown key 'reasoning_effort'; did you mean 'reasoningEffort'?",
        ),
    ],
)
def test_every_mismatch_names_place_path_expectation_and_value(text: str, mistake: str) -> None:
    found = mistakes(text)
    assert any(one.startswith(f"dsh.yml:{mistake}") for one in found), found


@pytest.mark.holds("BO4")
def test_all_mismatches_of_a_row_come_at_once() -> None:
    text = "maxCalls: x\nratio: x\nitems: [{id: 1}, {id: 2}]\nnope: 1\nnah: 2\n"
    assert len(mistakes(text)) == 6


@pytest.mark.holds("BO3")
def test_the_documented_sample_row_is_read_unchanged() -> None:
    text = (
        "maxParallelToolCalls: 10\nagents:\n"
        "  - {id: main, provider: deepseek, model: deepseek-chat, reasoningEffort: high, "
        "cwd: /workspace}\n"
    )
    issues: list[Issue] = []
    config = structured(AgentLoopConfig, read_text(text, "dsh.yml"), "agent-loop", issues)
    assert issues == []
    assert config == AgentLoopConfig(
        max_parallel_tool_calls=10,
        agents=(
            ConfiguredAgent(
                id="main",
                provider="deepseek",
                model="deepseek-chat",
                reasoning_effort="high",
                cwd="/workspace",
            ),
        ),
    )


PLACE = Place("--set x")


@pytest.mark.holds("BO6")
@pytest.mark.parametrize(
    ("path", "text", "value"),
    [
        ("maxCalls", "3", 3),
        ("maxCalls", "-3", -3),
        ("ratio", "0.5", 0.5),
        ("flag", "true", True),
        ("text", "5", "5"),
        ("text", "null", "null"),
        ("text", "", ""),
        ("kind", "b", "b"),
        ("items", '[{"id": "x"}]', [{"id": "x"}]),
        ("table.k.id", "5", "5"),
        ("table.k.reasoningEffort", "null", None),
        ("retryPolicy.maxRetries", "4", 4),
        ("extra", '{"a": 1}', {"a": 1}),
        ("extra", "null", None),
        ("maxCalls", "many", "many"),
        ("flag", "True", "True"),
        ("items", "[1", "[1"),
    ],
)
def test_set_reads_text_by_the_declared_type(path: str, text: str, value: object) -> None:
    declared = field_at(Config, tuple(path.split(".")), PLACE)
    assert not isinstance(declared, Issue), declared
    assert plain(node_of_text(text, declared, PLACE)) == value


@pytest.mark.holds("BO6")
@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("max_calls", "no field 'max_calls' in the row's config; did you mean 'maxCalls'?"),
        ("table.k.idd", "no field 'idd' in table.k; did you mean 'id'?"),
        ("ratio.x", "ratio is a number and has no parts"),
        ("items.0", "items is a list and has no parts; give the whole value as JSON"),
    ],
)
def test_set_names_a_path_that_is_not_there(path: str, problem: str) -> None:
    found = field_at(Config, tuple(path.split(".")), PLACE)
    assert isinstance(found, Issue)
    assert found.problem.startswith(problem)
