"""Faults of the schema: each broken input gives exactly the lines that its case expects.

The cases are data: `grammar.yaml` has broken YAML and broken grammar, `lints.yaml` what reads well
and is refused all the same. Inputs that YAML cannot carry are spelt out here.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
import yaml

from codegen.lint import RULES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    FaultsOf = Callable[[Mapping[str, str | bytes]], list[str]]

HERE = Path(__file__).parent
EVENTS = "schema/events/demo.yaml"
DONE = """\
domain: demo
events:
  done:
    kind: durable
    since: "0.1"
    emitter: loop
    emit: core
    purpose: It is done.
    payload:
      outcome: {type: Outcome, doc: How it went.}
      usage: {type: Usage, optional: true, doc: What it cost.}
"""
ASK = """\
  ask:
    kind: waterfall
    since: "0.1"
    emitter: loop
    scope: agent
    errors: propagate
    purpose: Ask.
    default: Yes.
    payload:
      agent: {type: live<Agent>, doc: Who asks.}
    answers:
      Yes: {doc: Yes., fields: {}}
      No: {doc: No., fields: {}}
"""


class Case:
    """One broken input and the lines it gives."""

    def __init__(self, data: Mapping[str, object], bases: Mapping[str, str]) -> None:
        self.id = str(data["id"])
        self.file = str(data["file"])
        self.faults = cast("list[str]", data["faults"])
        self.content = str(data.get("text", "")) or bases[str(data.get("base", "none"))]
        self.content += str(data.get("append", ""))
        if "replace" in data:
            assert self.content.count(str(data["replace"])) == 1, self.id
            self.content = self.content.replace(str(data["replace"]), str(data["by"]))


def cases(name: str) -> list[Case]:
    """The cases of one data file."""
    records = (HERE / "usage.yaml").read_text(encoding="utf-8")
    bases = {"done": DONE, "ask": DONE + ASK, "usage": records, "none": ""}
    data = cast(
        "list[dict[str, object]]", yaml.safe_load((HERE / name).read_text(encoding="utf-8"))
    )
    return [Case(each, bases) for each in data]


def idfn(case: Case) -> str:
    """The name of a case in the report."""
    return case.id


@pytest.mark.holds("case-078", "CAT01")
@pytest.mark.parametrize("case", cases("grammar.yaml"), ids=idfn)
def test_broken_grammar(case: Case, faults_of: FaultsOf) -> None:
    assert faults_of({case.file: case.content}) == case.faults


@pytest.mark.holds("CAT02")
@pytest.mark.parametrize("case", cases("lints.yaml"), ids=idfn)
def test_lint(case: Case, faults_of: FaultsOf) -> None:
    assert faults_of({case.file: case.content}) == case.faults


@pytest.mark.holds("CAT02")
def test_every_lint_of_the_table_is_shown_to_refuse_something() -> None:
    shown = {fault.split(": ")[1] for case in cases("lints.yaml") for fault in case.faults}
    plugins = {"event-twice", "loop-phase-closed", "module-clash"}  # test_codegen_plugins.py
    assert set(RULES) - shown == {*plugins, "foreign-domain"}  # test_codegen_foreign.py


@pytest.mark.holds("case-078")
def test_on_and_no_are_words(faults_of: FaultsOf) -> None:
    text = DONE.replace("  done:", "  on:").replace("It is done.", "no")
    assert faults_of({EVENTS: text}) == []


@pytest.mark.holds("case-078")
def test_a_tab(faults_of: FaultsOf) -> None:
    assert faults_of({EVENTS: DONE.replace("    purpose", "\tpurpose")}) == [
        f"{EVENTS}:8:1: tab: a tab in the indentation; indent with spaces"
    ]


@pytest.mark.holds("CAT01")
def test_a_byte_that_is_not_utf_8(faults_of: FaultsOf) -> None:
    assert faults_of({EVENTS: DONE.encode() + b"# \xff\n"}) == [
        f"{EVENTS}:12:3: encoding: byte 0xff is not UTF-8; save as UTF-8"
    ]


@pytest.mark.holds("CAT01")
def test_a_byte_order_mark(faults_of: FaultsOf) -> None:
    assert faults_of({EVENTS: "\ufeff" + DONE}) == [
        f"{EVENTS}:1:1: encoding: a byte order mark; save as UTF-8 without one"
    ]


@pytest.mark.holds("CAT01")
def test_faults_of_all_files_are_told_at_once_in_order(faults_of: FaultsOf) -> None:
    faults = faults_of(
        {
            EVENTS: DONE.replace("It is done.", "true").replace("emitter: loop", "emitter: lop"),
            "schema/config/demo.yaml": "- a\n",
            "schema/records/more.yaml": "ids: {A: }\n",
        }
    )
    assert [fault.split(": ")[0:2] for fault in faults] == [
        ["schema/config/demo.yaml:1:1", "not-a-mapping"],
        [f"{EVENTS}:6:14", "unknown-emitter"],
        [f"{EVENTS}:8:14", "quote-this"],
        ["schema/records/more.yaml:1:10", "no-value"],
    ]


@pytest.mark.holds("case-078")
def test_nothing_of_the_file_is_run(faults_of: FaultsOf, tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    text = DONE.replace("It is done.", f"!!python/object/apply:pathlib.Path.touch [{trap}]")
    assert any(": tag: " in fault for fault in faults_of({EVENTS: text}))
    assert not trap.exists()
