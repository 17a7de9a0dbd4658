"""A small valid schema in a folder of its own, for tests that break or grow it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from codegen.__main__ import main
from codegen.faults import SchemaError
from codegen.generate import load

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

HERE = Path(__file__).parent
SMALL: Mapping[str, str] = {
    "schema/domains.yaml": "domains:\n  demo: {title: Demo, doc: A domain to try things on.}\n",
    "schema/records/demo.yaml": (HERE / "usage.yaml").read_text(encoding="utf-8"),
    "schema/events/demo.yaml": """\
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
""",
}


def write(root: Path, files: Mapping[str, str | bytes]) -> None:
    """Write files below `root`."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A repository with the small schema."""
    write(tmp_path, SMALL)
    return tmp_path


@pytest.fixture
def faults_of(small: Path) -> Callable[[Mapping[str, str | bytes]], list[str]]:
    """The faults of the small schema with some files replaced or added, one line each."""

    def faults(files: Mapping[str, str | bytes]) -> list[str]:
        write(small, files)
        try:
            load(small)
        except SchemaError as error:
            return [fault.text for fault in error.faults]
        return []

    return faults


@pytest.fixture
def made(small: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """The small schema, generated once: its lock is the reviewed state."""
    assert main(["--root", str(small)]) == 1
    assert main(["--check", "--root", str(small)]) == 0
    mark = "generated: catalog -->\n"
    (small / "CHANGELOG.md").write_text(f"# Changes\n<!-- >>> {mark}\n<!-- <<< {mark}", "utf-8")
    capsys.readouterr()
    return small
