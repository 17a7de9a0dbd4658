"""From an edit of the schema to a green run: what is asked for, and that it is enough.

Each edit is one red run that says what to add; with exactly that added, the next run writes, and
the one after it has nothing to do.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

import pytest

from codegen.__main__ import main
from codegen.generate import load
from codegen.lock import read_lock

EVENTS = "schema/events/demo.yaml"
RECORDS = "schema/records/demo.yaml"
CHANGES = "schema/changes.yaml"
LOCK = "schema/catalog.lock.json"
GOOD = "      good: {doc: Well., fields: {}}"
GOOD_AND_ODD = f"{GOOD}\n      odd: {{doc: Oddly., fields: {{}}}}"
USAGE = "      usage: {type: Usage, optional: true, doc: What it cost.}\n"


@pytest.fixture
def run(made: Path, capsys: pytest.CaptureFixture[str]) -> Callable[[], tuple[int, str]]:
    """`python -m codegen`: its exit code and what it says about the schema."""

    def run_once() -> tuple[int, str]:
        code = main(["--root", str(made)])
        return code, capsys.readouterr().err

    return run_once


Run = Callable[[], tuple[int, str]]


def edit(root: Path, name: str, old: str, new: str) -> None:
    """Replace a text that stands once in a file."""
    text = (root / name).read_text(encoding="utf-8")
    assert text.count(old) == 1, (name, old)
    (root / name).write_text(text.replace(old, new), encoding="utf-8")


def list_as_proposed(root: Path, said: str, why: str = "It must be.") -> None:
    """Add what a run proposes to changes.yaml, with a reason."""
    _, _, proposed = said.partition("under changes:, and say why:\n\n")
    entries = proposed.partition("\n\n")[0].replace("why: …", f"why: {why}")
    path = root / CHANGES
    before = path.read_text(encoding="utf-8") if path.exists() else "changes:\n"
    path.write_text(f"{before}{entries}\n", encoding="utf-8")


def assert_green(root: Path, run: Run) -> None:
    """One run writes, and there is nothing left to do."""
    code, said = run()
    assert code == 1, said
    assert re.fullmatch(r"codegen: wrote \d+ files?\n", said), said
    assert run() == (0, "")
    assert main(["--check", "--root", str(root)]) == 0


def add_field(root: Path, field: str) -> None:
    """A further field of demo/done."""
    edit(root, EVENTS, USAGE, f"{USAGE}      {field}\n")


@pytest.mark.holds("CAT13")
def test_a_compatible_change_moves_the_lock_by_itself(made: Path, run: Run) -> None:
    add_field(made, "note: {type: string, optional: true, doc: A remark.}")
    assert_green(made, run)
    lock = read_lock((made / LOCK).read_text("utf-8"), LOCK)
    assert lock["events"]["demo/done"]["payload"]["note"] == {"type": "string", "optional": True}


@pytest.mark.holds("CAT13")
def test_a_change_for_review_is_refused_until_it_is_listed(made: Path, run: Run) -> None:
    edit(made, RECORDS, GOOD, GOOD_AND_ODD)
    before = {path: path.read_bytes() for path in made.rglob("*") if path.is_file()}
    code, said = run()
    assert code == 1
    where = said.split(": ")[0]
    assert said == (
        f"{where}: unlisted-change: REVIEW VARIANT_ADDED union Outcome.odd: OddOutcome is new "
        f"(stored REVIEW); undo it, or list it in schema/changes.yaml as below\n"
        "\nadd to schema/changes.yaml, under changes:, and say why:\n\n"
        "- rule: VARIANT_ADDED\n"
        '  where: "union Outcome.odd"\n'
        '  what: "OddOutcome is new"\n'
        "  level: REVIEW\n"
        '  since: "0"\n'
        "  why: …\n\n"
        "codegen: 1 thing is to be said about changes of the schema; nothing was written\n"
    )
    assert where.startswith(f"{RECORDS}:")
    assert {path: path.read_bytes() for path in made.rglob("*") if path.is_file()} == before
    list_as_proposed(made, said)
    assert_green(made, run)
    log = (made / "CHANGELOG.md").read_text("utf-8")
    assert "### Catalog, 0\n\n- union Outcome.odd: OddOutcome is new. It must be.\n" in log
    accounted = read_lock((made / LOCK).read_text("utf-8"), LOCK)["accounted"]
    assert accounted == ["VARIANT_ADDED union Outcome.odd: OddOutcome is new"]


@pytest.mark.holds("CAT13")
def test_an_entry_without_a_reason_or_with_another_level_is_no_entry(made: Path, run: Run) -> None:
    edit(made, RECORDS, GOOD, GOOD_AND_ODD)
    list_as_proposed(made, run()[1], why="…")
    assert "entry-why: no reason for VARIANT_ADDED union Outcome.odd" in run()[1]
    edit(made, CHANGES, "why: …", "why: It must be.")
    edit(made, CHANGES, "level: REVIEW", "level: BREAKING")
    code, said = run()
    assert code == 1
    assert "entry-level: VARIANT_ADDED union Outcome.odd: OddOutcome is new is listed as " in said
    assert "write level: REVIEW" in said


@pytest.mark.holds("CAT13")
def test_an_entry_counts_once_and_an_unneeded_one_is_refused(made: Path, run: Run) -> None:
    edit(made, RECORDS, GOOD, GOOD_AND_ODD)
    list_as_proposed(made, run()[1])
    assert_green(made, run)
    # Back, and forth again: what was said once is not said for the second time.
    edit(made, RECORDS, GOOD_AND_ODD, GOOD)
    edit(made, EVENTS, "emit: core\n", "emit: core\n    version: 2\n    upcast: {1: {}}\n")
    code, said = run()
    assert code == 1
    assert "name-not-reserved: 'odd' is gone from union Outcome" in said
    text = (made / CHANGES).read_text("utf-8")
    (made / CHANGES).write_text(text + text.removeprefix("changes:\n"), "utf-8")
    assert "unknown-entry: no such change: VARIANT_ADDED union Outcome.odd" in run()[1]


@pytest.mark.holds("CAT13")
def test_a_change_of_stored_data_asks_for_a_version_a_name_and_a_step(made: Path, run: Run) -> None:
    edit(made, EVENTS, "      outcome: {type: Outcome", "      ending: {type: Outcome")
    code, said = run()
    assert code == 1
    lines = said.splitlines()
    assert (
        f"{EVENTS}:3:3: version-missing: demo/done has version 1, and old records need a step: "
        "FIELD_ADDED_REQUIRED event demo/done.ending: Outcome; "
        "FIELD_NO_DELETE event demo/done.outcome: Outcome is gone; write version: 2"
    ) in lines
    assert (
        f"{EVENTS}:3:3: name-not-reserved: 'outcome' is gone from event demo/done, and old data "
        "has it; add reserved: [outcome] to event demo/done"
    ) in lines
    assert lines[-1].startswith("codegen: 2 things are to be said")

    more = "    emit: core\n    version: 2\n    reserved: [outcome]\n"
    edit(made, EVENTS, "    emit: core\n", f"{more}    upcast: {{1: {{}}}}\n")
    assert "upcast-incomplete: upcast demo/done@1 leaves open: FIELD_ADDED_REQUIRED" in run()[1]
    edit(made, EVENTS, "{1: {}}", "{1: {rename: {outcome: ending}}}")
    assert_green(made, run)
    old = json.loads((made / "schema/history/demo/done.v1.json").read_text("utf-8"))
    assert [*old["payload"]] == ["outcome", "usage"]
    assert (made / "schema/golden/demo/done.v1.jsonl").exists()
    assert (made / "schema/golden/demo/done.v2.jsonl").exists()

    namespace: dict[str, object] = {}
    exec((made / "src/dsh/catalog/history.py").read_text("utf-8"), namespace)
    declared = cast("Mapping[str, Callable[[object], object]]", namespace["DECLARED"])
    data = {"outcome": {"kind": "good"}, "usage": {}}
    assert declared["demo/done@1"](data) == {"ending": {"kind": "good"}, "usage": {}}
    assert data == {"outcome": {"kind": "good"}, "usage": {}}


@pytest.mark.holds("CAT13")
def test_a_version_is_not_raised_for_nothing(made: Path, run: Run) -> None:
    edit(made, EVENTS, "    emit: core\n", "    emit: core\n    version: 2\n")
    code, said = run()
    assert code == 1
    assert (
        f"{EVENTS}:3:3: version-idle: demo/done has version 2, and no old record needs a step; "
        "remove version:"
    ) in said


@pytest.mark.holds("CAT13")
def test_a_reserved_name_is_not_used_again(made: Path, run: Run) -> None:
    edit(made, EVENTS, "    emit: core\n", "    emit: core\n    reserved: [usage]\n")
    code, said = run()
    assert code == 2
    assert "reserved-reused: event demo/done has 'usage', which is reserved" in said


@pytest.mark.holds("CAT14")
def test_what_is_written_once_is_not_edited_removed_or_added(made: Path, run: Run) -> None:
    golden = made / "schema/golden/demo/done.v1.jsonl"
    good = golden.read_bytes()
    golden.write_bytes(good.replace(b"good", b"goot"))
    name = "schema/golden/demo/done.v1.jsonl"
    code, said = run()
    assert code == 2
    assert said.startswith(f"{name}:1:1: sealed-file: was edited, and is written once; run: git c")
    golden.unlink()
    assert run()[1].startswith(f"{name}:1:1: sealed-file: is gone, and records of that version")
    golden.write_bytes(good)
    (golden.parent / "done.v7.jsonl").write_text("{}\n", "utf-8")
    assert "done.v7.jsonl:1:1: sealed-file: does not stand in the lock" in run()[1]


@pytest.mark.holds("CAT13")
def test_a_retired_event_is_listed_and_its_name_is_gone_for_ever(made: Path, run: Run) -> None:
    text = (made / EVENTS).read_text("utf-8")
    other = text.replace("  done:", "  finished:").partition("events:\n")[2]
    (made / EVENTS).write_text(text + other, "utf-8")
    list_as_proposed(made, run()[1])
    assert_green(made, run)

    (made / EVENTS).write_text(f"domain: demo\nevents:\n{other}", "utf-8")
    code, said = run()
    assert code == 1
    assert "BREAKING EVENT_NO_DELETE event demo/done: the durable event is gone" in said
    retired = (
        "retired:\n"
        '  done: {since: "0.2", doc: Now demo/finished., version: 1, becomes: demo/finished@1, '
        "upcast: {1: {}}}\n"
    )
    (made / EVENTS).write_text(f"domain: demo\n{retired}events:\n{other}", "utf-8")
    assert_green(made, run)
    assert '"demo/done": (1, "demo/finished", 1),' in (
        made / "src/dsh/catalog/history.py"
    ).read_text("utf-8")
    assert (made / "schema/history/demo/done.v1.json").exists()
    document = (made / "docs/events.md").read_text("utf-8")
    assert "- `demo/done` (until 0.2, read as `demo/finished`): Now demo/finished.\n" in document

    done = text.removeprefix("domain: demo\n")
    (made / EVENTS).write_text(f"domain: demo\n{retired}{done}{other}", "utf-8")
    code, said = run()
    assert code == 2
    assert "reserved-reused: demo/done is retired at schema/events/demo.yaml:3:3" in said


@pytest.mark.holds("CAT13")
def test_a_retired_event_names_its_last_version_and_a_successor_that_is(
    made: Path, run: Run
) -> None:
    text = (made / EVENTS).read_text("utf-8").replace("  done:", "  finished:")
    events = text.partition("events:\n")[2]
    retired = 'retired:\n  done: {since: "0.2", doc: Gone., version: 3, becomes: demo/finish@1}\n'
    (made / EVENTS).write_text(f"domain: demo\n{retired}events:\n{events}", "utf-8")
    said = run()[1]
    assert "retired-version: demo/done is retired at version 3; write version: 1, its last" in said
    edit(made, EVENTS, "version: 3", "version: 1")
    said = run()[1]
    assert "retired-successor: demo/done becomes demo/finish@1, which never was" in said
    assert "name a durable event of this schema" in said


@pytest.mark.holds("CAT13")
def test_a_step_that_nobody_wrote_is_a_type_error(made: Path, run: Run) -> None:
    edit(made, EVENTS, "      outcome: {type: Outcome", "      ending: {type: Outcome")
    more = "    emit: core\n    version: 2\n    reserved: [outcome]\n"
    edit(made, EVENTS, "    emit: core\n", more)
    assert_green(made, run)
    history = (made / "src/dsh/catalog/history.py").read_text("utf-8")
    folder = made / "typed"
    folder.mkdir()
    (folder / "history.py").write_text(history, "utf-8")
    (folder / "upcasters.py").write_text(UPCASTERS, "utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary"]
    command += ["--cache-dir", str(made / "mypy"), "history.py", "upcasters.py"]
    told = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout
    assert [re.sub(r":\d+", "", line) for line in told.splitlines() if "error" in line] == [
        (
            'upcasters.py: error: Missing key "demo/done@1" for TypedDict "Upcasters"  '
            "[typeddict-item]"
        ),
        'upcasters.py: error: TypedDict "DemoDoneV1" has no key "outcom"  [typeddict-item]',
    ]


UPCASTERS = """\
from history import DemoDoneV1, DemoDoneV2, Upcasters

none: Upcasters = {}


def step(old: DemoDoneV1) -> DemoDoneV2:
    return {"ending": old["outcom"]}


def good(old: DemoDoneV1) -> DemoDoneV2:
    new: DemoDoneV2 = {"ending": old["outcome"]}
    if "usage" in old:
        new["usage"] = old["usage"]
    return new


all_of_them: Upcasters = {"demo/done@1": good}
"""


@pytest.mark.holds("CAT13")
def test_faults_of_changes_yaml_have_a_place(made: Path, run: Run) -> None:
    (made / CHANGES).write_text(
        "changes:\n- rule: FIELD_ADED\n  where: x\n  what: y\n  level: ALL\n"
        '  since: "0.1"\n  why: z\n- {rule: FIELD_NO_DELETE}\n',
        "utf-8",
    )
    code, said = run()
    assert code == 2
    assert said.splitlines()[:2] == [
        (
            f"{CHANGES}:2:9: unknown-rule: rule of an entry of changes is 'FIELD_ADED'; "
            "did you mean 'FIELD_LIVE_ADDED'?"
        ),
        (
            f"{CHANGES}:5:10: unknown-value: level of an entry of changes is 'ALL'; "
            "one of REVIEW, BREAKING"
        ),
    ]
    assert f"{CHANGES}:8:3: missing-why: an entry of changes has no 'why'; add why:" in said
    for empty in ("changes:\n", "changes: []\n"):
        (made / CHANGES).write_text(empty, "utf-8")
        assert run() == (0, "")


@pytest.mark.holds("CAT13")
def test_a_lock_that_cannot_be_read_is_no_lock(made: Path, run: Run) -> None:
    good = (made / LOCK).read_text("utf-8")
    (made / LOCK).write_text(good[:40], "utf-8")
    assert "lock: schema/catalog.lock.json:1: not JSON" in run()[1]
    (made / LOCK).write_text(good.replace('"lock": 1', '"lock": 9'), "utf-8")
    assert "a lock of format 9, this generator has 1" in run()[1]


@pytest.mark.holds("CAT13")
def test_nothing_of_the_repository_is_left_to_say() -> None:
    loaded = load(Path(__file__).parents[2])
    assert [demand.text for demand in loaded.demands] == []
