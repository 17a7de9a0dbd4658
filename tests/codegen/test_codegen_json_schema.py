"""The generated JSON Schemas, applied by a validator that shares nothing with the generator.

What the codec writes fits the schema of the log; what it refuses does not. What boot mounts fits
the schema of compositions.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import jsonschema_rs
import pytest

from dsh.boot.names import DOCUMENTED, ROOMS
from dsh.catalog import codec, registry
from dsh.catalog.records import SessionHeader

ROOT = Path(__file__).parents[2]
Node = Mapping[str, object]


def loaded(name: str) -> dict[str, object]:
    """One of the two documents."""
    path = ROOT / "docs" / "schema" / f"{name}.schema.json"
    return cast("dict[str, object]", json.loads(path.read_text(encoding="utf-8")))


LOG = jsonschema_rs.validator_for(loaded("log"))
COMPOSITION = jsonschema_rs.validator_for(loaded("composition"))
CORE = sorted((ROOT / "schema" / "golden").rglob("*.jsonl"))
SURFACES = {"user/message", "system/message", "assistant/message", "tool/result"}


def lines(path: Path) -> list[dict[str, object]]:
    """The golden records of one file, each as a line of a log."""
    name, _, version = path.relative_to(ROOT / "schema" / "golden").as_posix().rpartition(".v")
    old = {} if version == "1.jsonl" else {"v": int(version.removesuffix(".jsonl"))}
    made: list[dict[str, object]] = []
    for text in path.read_text(encoding="utf-8").splitlines():
        line: dict[str, object] = {"type": name, "seq": 1, "time": 2, "data": json.loads(text)}
        token = registry.DURABLES.get(name)
        if token is not None and token.ignorable:
            line["ignorable"] = True
        made.append(line | old | ({"surfaceOp": "append"} if name in SURFACES else {}))
    return made


@pytest.mark.holds("CAT18")
@pytest.mark.parametrize("path", CORE, ids=lambda path: path.stem)
def test_every_golden_record_is_a_line_of_a_log(path: Path) -> None:
    for line in lines(path):
        assert LOG.is_valid(line)
        assert LOG.is_valid({**line, "sourceEventSeqs": [[0, 0]]})
        token = registry.DURABLES.get(str(line["type"]))
        if token is None or line.get("v", 1) != token.version:
            continue  # of an older version only the envelope is known
        assert not LOG.is_valid({**line, "seq": -1})
        assert not LOG.is_valid({**line, "sourceEventSeqs": [0]})
        assert not LOG.is_valid({**line, "more": 1})
        data = cast("dict[str, object]", line["data"])
        assert not LOG.is_valid({**line, "data": {**data, "notDeclared": 1}})
        assert not LOG.is_valid({key: value for key, value in line.items() if key != "time"})


@pytest.mark.holds("CAT18")
def test_headers_packed_rows_and_strangers_are_lines_of_a_log() -> None:
    header = SessionHeader(version=1, id="s", created_at=5, cwd="/w")
    assert LOG.is_valid({"type": "session", **cast("Node", codec.encode_record(header))})
    assert not LOG.is_valid({"type": "session", "id": "s"})
    assert LOG.is_valid([7, 20, "text", 30, " more"])
    assert not LOG.is_valid([7, 20])
    assert LOG.is_valid({"type": "acme.deploy/finished", "seq": 1, "time": 2, "data": 3})
    assert not LOG.is_valid({"type": "turn/start", "seq": 1, "time": 2, "data": {"turn": "1"}})


@pytest.mark.holds("CAT18")
@pytest.mark.parametrize(
    ("row", "good"),
    [
        ({"name": "agent-loop", "config": {"maxParallelToolCalls": 4}}, True),
        ({"name": "agent-loop", "config": {"maxParallelToolCalls": 0}}, False),
        ({"name": "agent-loop", "config": {"maxParalelToolCalls": 4}}, False),
        ({"name": "@deepseek-ai/dsh-agent-loop", "config": {"maxParallelToolCalls": "4"}}, False),
        ({"id": "agent-loop", "config": {"maxParallelToolCalls": "4"}}, False),
        ({"name": "token-budget", "config": {"maxTurnTokens": 9}, "disabled": True}, True),
        ({"name": "token-budget", "config": {"max_turn_tokens": 9}}, False),
        ({"name": "acme-deploy", "config": {"anything": [1]}}, True),
        ({"name": "acme-deploy", "disabled": "yes"}, False),
        ({"name": "session-persistence-jsonl", "config": {"root": "/s"}}, True),
        ({"name": "session-persistence-jsonl", "config": {"rooot": "/s"}}, False),
        ({"name": "@deepseek-ai/dsh-llm-deepseek", "config": {"providers": 3}}, False),
        ({"id": "user-approval", "config": {"anything": 1}}, False),
        ({"config": {}}, False),
        (
            {
                "name": "@deepseek-ai/dsh-agent-loop",
                "config": {
                    "maxParallelToolCalls": 10,
                    "agents": [
                        {
                            "id": "main",
                            "provider": "deepseek",
                            "model": "deepseek-chat",
                            "reasoningEffort": "high",
                            "cwd": "/workspace",
                        }
                    ],
                },
            },
            True,
        ),
    ],
)
def test_rows_of_a_composition(row: Node, *, good: bool) -> None:
    assert COMPOSITION.is_valid([row]) is good


@pytest.mark.holds("CAT18")
def test_the_documents_are_json_schemas() -> None:
    for name in ("log", "composition"):
        jsonschema_rs.meta.validate(loaded(name))


@pytest.mark.holds("CAT18")
def test_every_plugin_of_ours_can_be_completed() -> None:
    items = cast("Node", loaded("composition")["items"])
    name = cast("Node", cast("Node", items["properties"])["name"])
    offered = {each.get("const") for each in cast("list[Node]", name["anyOf"])}
    ours = {path.parent.name for path in ROOT.glob("plugins/*/plugin.toml")}
    assert ours <= offered


@pytest.mark.holds("CAT18")
def test_names_that_a_composition_may_use_for_ours_are_completed_and_checked() -> None:
    """What boot understands, and what editors are told, is one list."""
    said = {
        other: path.parent.name
        for path in ROOT.glob("plugins/*/plugin.toml")
        for other in tomllib.loads(path.read_text(encoding="utf-8")).get("known_as", ())
    }
    rooms = {other: ours for other, ours in DOCUMENTED.items() if ours in ROOMS}
    assert said | rooms == DOCUMENTED, "set `known_as` in plugin.toml and DOCUMENTED in boot/names"
    items = cast("Node", loaded("composition")["items"])
    name = cast("Node", cast("Node", items["properties"])["name"])
    offered = {each.get("const") for each in cast("list[Node]", name["anyOf"])}
    assert set(said) <= offered
