"""`python -m codegen diff`: what changed since a git revision, or since a lock in a file."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest

from codegen.__main__ import main

if TYPE_CHECKING:
    from pathlib import Path

EVENTS = "schema/events/demo.yaml"
RECORDS = "schema/records/demo.yaml"
LOCK = "schema/catalog.lock.json"
GOOD = "      good: {doc: Well., fields: {}}"
USAGE = "      usage: {type: Usage, optional: true, doc: What it cost.}\n"


def edit(root: Path, name: str, old: str, new: str) -> None:
    """Replace a text that stands once in a file."""
    text = (root / name).read_text(encoding="utf-8")
    assert text.count(old) == 1, (name, old)
    (root / name).write_text(text.replace(old, new), encoding="utf-8")


def git(root: Path, *arguments: str) -> None:
    """Run git in a repository that knows nobody."""
    names = ["-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *names, *arguments], cwd=root, check=True, capture_output=True)


@pytest.mark.holds("CAT12")
def test_diff_tells_what_changed_since_a_revision_or_a_file(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    git(made, "init", "-q")
    git(made, "add", ".")
    git(made, "commit", "-q", "-m", "first")
    copy = tmp_path / "old.json"
    copy.write_bytes((made / LOCK).read_bytes())
    root = ["--root", str(made)]
    assert main(["diff", "--against", "HEAD", *root]) == 0
    assert capsys.readouterr().out == "no change against HEAD\n"

    note = "      note: {type: string, optional: true, doc: A remark.}\n"
    edit(made, EVENTS, USAGE, USAGE + note)
    assert main([*root]) == 1
    edit(made, RECORDS, GOOD, f"{GOOD}\n      odd: {{doc: Oddly., fields: {{}}}}")
    capsys.readouterr()
    for against in ("HEAD", str(copy)):
        assert main(["diff", "--against", against, *root]) == 1
        report = capsys.readouterr().out
        assert report.startswith(
            "REVIEW (needs an entry in changes.yaml)\n"
            "  VARIANT_ADDED  union Outcome.odd: OddOutcome is new\n"
            "      stored REVIEW\n"
            "      stored by demo/done\n"
            "COMPATIBLE (old logs, plugins and configuration go on)\n"
            "  FIELD_ADDED_OPTIONAL  event demo/done.note: string\n"
            "      stored COMPATIBLE\n"
            "open: schema/records/demo.yaml:"
        )
        assert "\nadd to schema/changes.yaml, under changes:\n\n- rule: VARIANT_ADDED\n" in report

    assert main(["diff", "--json", "--against", "HEAD", *root]) == 1
    document = json.loads(capsys.readouterr().out)
    assert [each["rule"] for each in document[0]["changes"]] == [
        "VARIANT_ADDED",
        "FIELD_ADDED_OPTIONAL",
    ]
    assert document[0]["changes"][0]["roles"] == {"stored": "REVIEW"}
    assert document[0]["versionBumps"] == {}
    assert len(document[0]["open"]) == 1

    assert main(["diff", "--against", "nowhere", *root]) == 2
    assert "'nowhere' is neither a file nor a git revision here" in capsys.readouterr().err
    assert main(["diff", "--against", str(made / EVENTS), *root]) == 2
    assert "not JSON" in capsys.readouterr().err
