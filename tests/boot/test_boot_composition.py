"""Compositions: all rows right or none used, `--set`, and what a found project file may say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from attrs import field, frozen

from dsh.boot.composition import Composition, composed, key_variables
from dsh.boot.nodes import Issue, Place
from dsh.boot.rows import Row, layer_of_node, layer_of_rows
from dsh.boot.tighten import GUARDS
from dsh.boot.yaml_file import read_text
from dsh.errors import ConfigError
from dsh.kernel import Context, Plugin, plugin

if TYPE_CHECKING:
    from collections.abc import Sequence


@frozen(kw_only=True, slots=True)
class Server:
    """A provider's profile."""

    base_url: str | None = field(default=None, metadata={"wire": "baseUrl"})
    api_key_env: str | None = field(default=None, metadata={"wire": "apiKeyEnv"})
    timeout: int = field(default=1, metadata={"wire": "timeout"})


@frozen(kw_only=True, slots=True)
class Config:
    """A config with something of everything that matters here."""

    limit: int = field(default=10, metadata={"wire": "limit", "limit": True})
    cap: float | None = field(default=None, metadata={"wire": "cap", "limit": True})
    size: int = field(default=10, metadata={"wire": "size"})
    root: str | None = field(default=None, metadata={"wire": "root"})
    flag: bool = field(default=False, metadata={"wire": "flag"})
    ask: str = field(default="ask", metadata={"wire": "ask"})
    persona: str = field(default="", metadata={"wire": "persona"})
    rules: tuple[dict[str, str], ...] = field(default=(), metadata={"wire": "rules"})
    providers: dict[str, Server] = field(factory=dict[str, Server], metadata={"wire": "providers"})


@plugin(name="configured", config=Config)
async def configured(ctx: Context, config: Config) -> None:
    """Does nothing."""


@plugin(name="bare")
async def bare(ctx: Context) -> None:
    """Does nothing."""


def load(name: str, place: Place) -> Plugin | Issue:
    if name == "missing":
        return Issue(place, "no plugin named 'missing'")
    return bare if name == "bare" else configured


PROFILE = layer_of_rows(
    "profile",
    [
        Row(name="agent-loop"),
        Row(name="permissions"),
        Row(name="openai-chat"),
        Row(name="session-jsonl"),
        Row(name="system-prompt"),
        Row(name="bare"),
        Row(name="mcp", disabled=True),
    ],
)


def compose(
    *texts: str, sets: Sequence[str] = (), trusted: bool = True, only: frozenset[str] | None = None
) -> Composition:
    issues: list[Issue] = []
    layers = [PROFILE]
    layers += [
        layer_of_node("dsh.yml", read_text(text, "dsh.yml"), issues, trusted=trusted)
        for text in texts
    ]
    return composed(layers, sets, load, issues=issues, only=only)


def configs(composition: Composition) -> dict[str, object]:
    return {one.row.id: one.config for one in composition.mountables}


def refusals(*texts: str, sets: Sequence[str] = (), trusted: bool = True) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        compose(*texts, sets=sets, trusted=trusted)
    return caught.value.issues


@pytest.mark.holds("BO2")
def test_slots_are_positions_whatever_is_disabled() -> None:
    slots = {
        one.row.id: one.slot for one in compose("- {id: permissions, disabled: true}").mountables
    }
    assert slots == {
        "agent-loop": 0, "openai-chat": 2, "session-jsonl": 3, "system-prompt": 4, "bare": 5,
    }  # fmt: skip


@pytest.mark.holds("BO4")
def test_mistakes_of_all_rows_come_at_once_in_order_and_nothing_is_used() -> None:
    text = (
        "- {name: missing}\n- {id: openai-chat, config: {limit: x}}\n- {id: bare, config: {a: 1}}\n"
    )
    found = refusals(text, sets=["permisions.limit=1"])
    assert found[0].startswith(
        "--set permisions.limit=1: no row with the id 'permisions'; did you mean 'permissions'? "
        "Rows: agent-loop, permissions, openai-chat, "
    )
    assert found[1:] == (
        "dsh.yml:1:3: no plugin named 'missing'",
        "dsh.yml:2:37: openai-chat.limit: expected a whole number, got text 'x'",
        "dsh.yml:3:23: bare: unknown key 'a'. bare takes no configuration",
    )


@pytest.mark.holds("BO7")
def test_an_optional_row_whose_plugin_is_missing_is_skipped_and_reported() -> None:
    composition = compose("- {name: missing, optional: true}")
    assert "missing" not in configs(composition)
    assert [str(one) for one in composition.skipped] == ["dsh.yml:1:3: no plugin named 'missing'"]


def test_a_disabled_row_is_neither_loaded_nor_judged() -> None:
    assert "missing" not in configs(compose("- {name: missing, disabled: true, config: {a: 1}}"))


def test_a_room_cannot_be_disabled() -> None:
    (found,) = refusals("- {id: agent-loop, disabled: true}")
    assert "'agent-loop' is a room of dsh and cannot be disabled" in found


@pytest.mark.holds("BO6")
def test_set_is_the_uppermost_layer_and_the_later_one_wins() -> None:
    composition = compose(
        "- {id: openai-chat, config: {limit: 3, providers: {a: {baseUrl: low}}}}",
        sets=["openai-chat.limit=4", "openai-chat.limit=5", "openai-chat.providers.a.timeout=9"],
    )
    config = configs(composition)["openai-chat"]
    assert isinstance(config, Config)
    assert config.limit == 5
    assert config.providers == {"a": Server(base_url="low", timeout=9)}


@pytest.mark.holds("BO6")
@pytest.mark.parametrize(
    ("argument", "problem"),
    [
        ("openai-chat.limit", "write --set ID.path=value"),
        ("openai-chat=3", "write --set ID.path=value"),
        ("openai-chat.=3", "write --set ID.path=value"),
        ("openai-chat.limt=3", "no field 'limt' in the row's config; did you mean 'limit'?"),
        ("openai-chat.limit=many", "openai-chat.limit: expected a whole number, got text 'many'"),
        ("bare.x=1", "bare takes no configuration"),
    ],
)
def test_a_bad_set_names_itself(argument: str, problem: str) -> None:
    (found,) = refusals(sets=[argument])
    assert found.startswith(f"--set {argument}: {problem}")


def test_only_looks_at_the_rows_asked_for() -> None:
    composition = compose(
        "- {name: missing}\n- {id: openai-chat, config: {limit: x}}",
        sets=["openai-chat.limit=x", "session-jsonl.root=/r"],
        only=frozenset({"session-jsonl"}),
    )
    assert configs(composition) == {"session-jsonl": Config(root="/r")}
    assert composition.mountables[0].slot == 3


def test_variables_named_as_keys_are_found_wherever_they_stand() -> None:
    composition = compose(
        "- {id: openai-chat, config: {providers: {a: {apiKeyEnv: KEY_A}, b: {apiKeyEnv: B}}}}"
    )
    assert key_variables(composition.mountables) == {"KEY_A", "B"}


@pytest.mark.holds("BO8")
@pytest.mark.parametrize(
    "text",
    [
        "- {id: openai-chat, config: {limit: 3}}",
        "- {id: openai-chat, disabled: true}",
        "- {id: permissions, config: {ask: deny}}",
        "- {id: permissions, config: {rules: [{decision: deny, tool: bash}]}}",
        "- {id: permissions, config: {rules: [{decision: ask, tool: '*', pattern: '/etc/*'}]}}",
        "- {id: system-prompt, config: {persona: You are terse.}}",
        "- {name: token-budget, config: {limit: 3}}",
        "- {id: mcp, disabled: true}",
    ],
)
def test_a_found_project_file_may_tighten(text: str) -> None:
    compose(text, trusted=False)


@pytest.mark.holds("BO8")
@pytest.mark.parametrize(
    ("file", "settings"),
    [
        ("- {id: openai-chat, config: {limit: 10}}", ""),
        ("- {id: openai-chat, config: {cap: 900.5}}", ""),
        ("- {name: token-budget, config: {limit: 900}}", ""),
        ("- {name: budget, config: {limit: 900}}", ""),
        (
            "- {name: token-budget, config: {limit: 900}}",
            "- {name: token-budget, config: {limit: 20}}",
        ),
        ("- {id: openai-chat, config: {limit: 900}}", "- {id: openai-chat, config: {limit: 20}}"),
        ("- {id: openai-chat, config: {limit: 900}}", "- {id: openai-chat, disabled: true}"),
    ],
)
def test_a_found_project_file_may_set_a_limit_that_raises_none(file: str, settings: str) -> None:
    found = layer_of_node("dsh.yml", read_text(file, "dsh.yml"), [], trusted=False)
    above = layer_of_node("settings.yml", read_text(settings, "settings.yml"), [])
    composed([PROFILE, found, above], (), load, issues=[])


@pytest.mark.holds("BO8")
@pytest.mark.parametrize(
    ("below", "file", "settings", "what"),
    [
        (
            "",
            "- {id: openai-chat, config: {limit: 11}}",
            "",
            "raise openai-chat.limit from 10 to 11",
        ),
        (
            "- {id: openai-chat, config: {limit: 3, cap: 0.5}}",
            "- {id: openai-chat, config: {limit: 4, cap: 0.75}}",
            "",
            "raise openai-chat.cap from 0.5 to 0.75",
        ),
        (
            "- {id: openai-chat, config: {limit: 3}}\n- {id: bare}",
            "- {id: openai-chat, config: {limit: 4}}",
            "- {id: openai-chat, config: {size: 4}}",
            "raise openai-chat.limit from 3 to 4",
        ),
        (
            "",
            "- {name: token-budget, config: {limit: 11}}",
            "- {name: token-budget}",
            "raise token-budget.limit from 10 to 11",
        ),
        ("", "- {id: openai-chat, config: {size: 3}}", "", "set openai-chat.size"),
        ("", "- {id: bare, config: {size: 3}}", "", "set bare.size"),
        (
            "",
            "- {name: token-budget, disabled: true}",
            "- {name: token-budget}",
            "disable 'token-budget'",
        ),
    ],
)
def test_a_found_project_file_may_not_raise_a_limit(
    below: str, file: str, settings: str, what: str
) -> None:
    texts = {"dsh.yml": file, "below.yml": below, "settings.yml": settings}
    lower, found, above = (
        layer_of_node(name, read_text(texts[name], name), [], trusted=name != "dsh.yml")
        for name in ("below.yml", "dsh.yml", "settings.yml")
    )
    with pytest.raises(ConfigError) as caught:
        composed([PROFILE, lower, found, above], (), load, issues=[])
    told = [one for one in caught.value.issues if f"may not {what}; " in one]
    assert len(told) == 1, caught.value.issues
    assert told[0].startswith("dsh.yml:1:")
    assert told[0].endswith("; to accept the file as it is, run with --config dsh.yml")
    composed([PROFILE, lower, above], (), load, issues=[])


@pytest.mark.holds("BO8")
@pytest.mark.parametrize("name", sorted(GUARDS))
def test_a_found_project_file_disables_no_guard(name: str) -> None:
    guarded = layer_of_rows("profile", [Row(name=name)])
    text = read_text(f"- {{id: {name}, disabled: true}}", "dsh.yml")
    with pytest.raises(ConfigError, match="one mistake") as caught:
        composed([guarded, layer_of_node("dsh.yml", text, [], trusted=False)], (), load, issues=[])
    assert f"may not disable {name!r}; " in caught.value.issues[0]


@pytest.mark.holds("BO8")
@pytest.mark.parametrize(
    ("text", "what"),
    [
        (
            "- {id: permissions, config: {rules: [{decision: allow, tool: bash}]}}",
            "set permissions.rules.decision",
        ),
        ("- {id: permissions, config: {ask: ask}}", "set permissions.ask"),
        ("- {id: permissions, config: {flag: true}}", "set permissions.flag"),
        ("- {id: permissions, disabled: true}", "disable 'permissions'"),
        ("- {id: permissions, optional: true}", "make 'permissions' optional"),
        ("- {name: bare, id: permissions}", "replace the plugin of the row 'permissions'"),
        (
            "- {id: openai-chat, config: {providers: {deepseek: {baseUrl: 'http://x'}}}}",
            "set openai-chat.providers",
        ),
        (
            "- {id: openai-chat, config: {providers: {deepseek: {apiKeyEnv: PATH}}}}",
            "set openai-chat.providers",
        ),
        (
            "- {id: openai-chat, config: {providers: {new: {timeout: 3}}}}",
            "set openai-chat.providers",
        ),
        ("- {id: mcp, config: {servers: {a: {timeout: 3}}}}", "set mcp.servers"),
        ("- {id: session-jsonl, config: {root: /tmp}}", "set session-jsonl.root"),
        ("- {id: session-jsonl, config: {flag: true}}", "set session-jsonl.flag"),
        ("- {name: acme.deploy}", "add the plugin 'acme.deploy'"),
        ("- {name: bare, id: second}", "add the plugin 'bare'"),
        ("- {id: mcp, disabled: false}", "enable 'mcp'"),
    ],
)
def test_a_found_project_file_may_not_loosen(text: str, what: str) -> None:
    found = refusals(text, trusted=False)
    assert any(f"may not {what}; " in one for one in found), found
    assert all(one.startswith("dsh.yml:1:") for one in found)
    assert all("run with --config dsh.yml" in one for one in found)
    compose(text, trusted=True)
