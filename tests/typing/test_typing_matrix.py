"""The typing matrix: every marked line gives exactly its one error, every other line none.

The cases are generated from the schema (`tests/typing/generated`); they are checked, never run.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "tests" / "typing" / "generated").glob("*.py"))
MARK = re.compile(r"# E: (\S+) (\S+)$")
CASE = re.compile(r"^# ([a-z]+(-[a-z]+)*)$", re.MULTILINE)

Found = dict[tuple[str, int], list[str]]


def expected(column: int) -> Found:
    """What the marks say: file and line → error codes of one of the two checkers."""
    marks: Found = {}
    for path in FILES:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            match = MARK.search(line)
            if match and match[column] != "-":
                marks[path.name, number] = [match[column]]
    return marks


def kinds() -> list[str]:
    """The kind of every case."""
    return [m[1] for path in FILES for m in CASE.finditer(path.read_text(encoding="utf-8"))]


def compared(wanted: Found, found: Found, texts: dict[tuple[str, int], str]) -> list[str]:
    """One line for each place where the two differ."""
    return [
        f"{place[0]}:{place[1]}: wanted {wanted.get(place, [])}, got {found.get(place, [])} "
        f"{texts.get(place, '')}"
        for place in sorted({*wanted, *found})
        if wanted.get(place) != found.get(place)
    ]


def mypy_errors(output: str) -> Iterator[tuple[str, int, str, str]]:
    """File, line, code and text of each error that mypy reports in the matrix."""
    for line in output.splitlines():
        error = cast("dict[str, object]", json.loads(line))
        path = Path(str(error["file"]))
        if error["severity"] == "error" and path.parent.name == "generated":
            yield path.name, int(str(error["line"])), str(error["code"]), str(error["message"])


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for what the checkers keep between files."""
    return tmp_path_factory.mktemp("checkers")


@pytest.mark.holds("CAT11")
def test_every_misuse_is_one_error_under_mypy(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [sys.executable, "-m", "mypy", "--output", "json", "--no-error-summary"]
    command += ["--cache-dir", str(cache / "mypy"), *map(str, FILES)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode in {0, 1}, run.stderr
    found: Found = defaultdict(list)
    texts: dict[tuple[str, int], str] = {}
    for name, line, code, text in mypy_errors(run.stdout):
        found[name, line].append(code)
        texts[name, line] = text
    wanted = expected(1)
    assert not compared(wanted, found, texts)
    cases, wrong = len(kinds()), len(wanted)
    with capsys.disabled():
        print(f"\ntyping matrix: {cases} cases of {len(set(kinds()))} kinds, {wrong} wrong ones")  # noqa: T201


@pytest.mark.holds("CAT11")
def test_every_misuse_is_one_error_under_basedpyright(cache: Path) -> None:
    config = {
        "include": [str(path) for path in FILES],
        "typeCheckingMode": "standard",
        "reportUnusedCoroutine": "error",
        "pythonVersion": "3.11",
        "extraPaths": [str(ROOT / "src"), str(ROOT), *map(str, ROOT.glob("plugins/*"))],
    }
    project = cache / "pyrightconfig.json"
    project.write_text(json.dumps(config), encoding="utf-8")
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "-p", str(project)]
    command += ["--pythonpath", sys.executable]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode in {0, 1}, run.stderr
    report = cast("dict[str, list[dict[str, object]]]", json.loads(run.stdout))
    found: Found = defaultdict(list)
    texts: dict[tuple[str, int], str] = {}
    for error in report["generalDiagnostics"]:
        if error["severity"] == "error":
            start = cast("dict[str, dict[str, int]]", error["range"])["start"]
            place = Path(str(error["file"])).name, start["line"] + 1
            found[place].append(str(error.get("rule")))
            texts[place] = str(error["message"])
    assert not compared(expected(2), found, texts)


def test_every_event_has_every_kind_of_misuse_that_fits_it() -> None:
    # What the issue of a misuse would be, were it not in the matrix: it would pass unseen.
    common = {"listen", "unknown-event", "event-as-text", "payload-for-token", "wrong-payload"}
    common |= {"extra-parameter", "no-parameter", "unknown-field", "make", "make-unknown-field"}
    waterfall = {"missing-next", "wrong-next", "next-not-awaited", "next-dropped", "wrong-return"}
    counts = {kind: kinds().count(kind) for kind in {*kinds()}}
    events = sum(counts[kind] for kind in ("listen",))
    assert all(counts[kind] >= events for kind in common), counts
    assert len({counts[kind] for kind in waterfall}) == 1
    assert counts["sync-listener"] == counts["missing-next"] + 2  # one serial, one parallel event
    assert counts["not-logged"] == counts["append-core-only"] + counts["append"]
