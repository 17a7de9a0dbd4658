"""Seeded edits of a schema: each is told as exactly the changes it is, judged in every role.

The edits are data: `evolution/edits.yaml`, over the schema beside it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
import yaml

from codegen.evolve import changes_between, upcast_needed
from codegen.evolve_rules import ROLES, RULES
from codegen.generate import load
from codegen.lint import RULES as LINTS
from codegen.lock import lock_of, lock_text, read_lock

if TYPE_CHECKING:
    from collections.abc import Mapping

    from codegen.evolve_rules import Found
    from codegen.lock import Lock

HERE = Path(__file__).parent / "evolution"
SCHEMA: Mapping[str, str] = {
    "schema/domains.yaml": "domains:\n  demo: {title: Demo, doc: A domain to try things on.}\n",
    "schema/events/demo.yaml": (HERE / "events.yaml").read_text(encoding="utf-8"),
    "schema/records/demo.yaml": (HERE / "records.yaml").read_text(encoding="utf-8"),
    "schema/config/demo.yaml": (HERE / "config.yaml").read_text(encoding="utf-8"),
}
EDITS = cast(
    "list[dict[str, object]]", yaml.safe_load((HERE / "edits.yaml").read_text(encoding="utf-8"))
)
#: Rules that need a schema which has a past already: shown below the table of edits.
WITH_A_PAST = {"RESERVED_NO_DELETE", "PUBLIC_NO_DELETE", "EVENT_SAME_SURFACE", "DECISION_CHANGED"}


def edited(edits: list[dict[str, str]]) -> dict[str, str]:
    """The schema with some texts replaced, each of which stands in it once."""
    files = dict(SCHEMA)
    for edit in edits:
        text = files[edit["file"]]
        assert text.count(edit["replace"]) == 1, edit
        files[edit["file"]] = text.replace(edit["replace"], edit["by"])
    return files


def lock(root: Path, files: Mapping[str, str]) -> Lock:
    """The lock of a schema."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return lock_of(load(root).core)


def told(change: Found) -> str:
    """A change as the data has it."""
    levels = ", ".join(f"{role} {level}" for role, level in change.levels.items())
    return f"{change.level} {change.key} ({levels})"


def idfn(case: object) -> str:
    """The name of an edit in the report."""
    return str(cast("dict[str, object]", case)["id"])


@pytest.mark.holds("CAT12")
@pytest.mark.parametrize("case", EDITS, ids=idfn)
def test_an_edit_is_told_as_what_it_is(case: dict[str, object], tmp_path: Path) -> None:
    old = lock(tmp_path / "old", SCHEMA)
    new = lock(tmp_path / "new", edited(cast("list[dict[str, str]]", case["edits"])))
    changes = changes_between(old, new)
    assert [told(change) for change in changes] == case["changes"]
    assert [*upcast_needed(changes, old, new)] == case.get("bumps", [])


@pytest.mark.holds("CAT12")
def test_every_rule_is_shown_in_each_of_its_roles() -> None:
    shown: set[tuple[str, str]] = set()
    for case in EDITS:
        for line in cast("list[str]", case["changes"]):
            rule = line.split(" ")[1]
            roles = line.rpartition(" (")[2].rstrip(")").split(", ")
            shown |= {(rule, role.partition(" ")[0]) for role in roles}
    table = {(rule, role) for rule, row in RULES.items() for role in row}
    assert {pair for pair in table - shown if pair[0] not in WITH_A_PAST} == set()
    assert len(EDITS) >= 40


@pytest.mark.holds("CAT12")
def test_the_same_schema_has_no_change_and_the_lock_comes_back(tmp_path: Path) -> None:
    made = lock(tmp_path, SCHEMA)
    again = read_lock(lock_text(made, "x"), "catalog.lock.json")
    assert again == made
    assert changes_between(made, again) == ()


@pytest.mark.holds("CAT12")
def test_a_name_stays_reserved_and_a_public_record_public(tmp_path: Path) -> None:
    before, after = dict(SCHEMA), dict(SCHEMA)
    events, config = "schema/events/demo.yaml", "schema/config/demo.yaml"
    before[events] = before[events].replace(
        "    purpose: It is done.", "    reserved: [gone]\n    purpose: It is done."
    )
    before[config] = before[config].replace("doc: The row.", "reserved: [gone]\ndoc: The row.")
    # A section uses the record from now on, so that it need not be public.
    public = "    public: The first line of a file.\n"
    after["schema/records/demo.yaml"] = after["schema/records/demo.yaml"].replace(public, "")
    after[config] += "  head: {type: Head, optional: true, doc: A head.}\n"
    old, new = lock(tmp_path / "old", before), lock(tmp_path / "new", after)
    assert [told(change) for change in changes_between(old, new)] == [
        "BREAKING RESERVED_NO_DELETE config demo-row.gone: is no longer reserved (config BREAKING)",
        "BREAKING RESERVED_NO_DELETE event demo/done.gone: is no longer reserved (stored BREAKING)",
        "BREAKING PUBLIC_NO_DELETE record Head: is no longer public (stored BREAKING)",
        "COMPATIBLE FIELD_ADDED_OPTIONAL config demo-row.head: Head (config COMPATIBLE)",
    ]


@pytest.mark.holds("CAT12")
def test_a_message_for_the_model_stays_one_and_an_answer_s_type_stays(tmp_path: Path) -> None:
    old = lock(tmp_path, SCHEMA)
    new = read_lock(lock_text(old, "x"), "x")
    new["events"]["demo/done"]["surface"] = True
    new["events"]["demo/ask"]["returns"] = "Usage"
    assert [told(change) for change in changes_between(old, new)] == [
        (
            "BREAKING EVENT_SAME_SURFACE event demo/done: is now a message for the model "
            "(stored BREAKING)"
        ),
        "BREAKING DECISION_CHANGED event demo/ask: returns nothing is now Usage (output BREAKING)",
    ][::-1]


@pytest.mark.holds("CAT12")
def test_the_readme_has_the_tables_as_they_are() -> None:
    text = (Path(__file__).parents[2] / "schema" / "README.md").read_text(encoding="utf-8")
    for rule, row in RULES.items():
        levels = " | ".join(row.get(role, "-") for role in ROLES)
        assert f"| `{rule}` | {levels} |\n" in text, f"schema/README.md has another row for {rule}"
    for name, lint in LINTS.items():
        assert f"| `{name}` | {(lint.__doc__ or '').splitlines()[0]} |\n" in text, name
