"""Golden renderings of a small schema: a change of the generator shows in its output."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from codegen.generate import load, wanted_files

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

GOLDEN = Path(__file__).parent / "golden"
FILES: Mapping[str, str] = {
    "schema/events/demo.yaml": (GOLDEN / "demo.yaml").read_text(encoding="utf-8"),
    "schema/config/demo-row.yaml": (GOLDEN / "demo-row.yaml").read_text(encoding="utf-8"),
}


@pytest.mark.holds("CAT04")
@pytest.mark.parametrize("name", ["demo", "records", "config", "codec"])
def test_rendering(
    name: str, faults_of: Callable[[Mapping[str, str]], list[str]], small: Path
) -> None:
    assert faults_of(FILES) == []
    made = wanted_files(load(small), small)[f"src/dsh/catalog/{name}.py"]
    assert made == (GOLDEN / f"{name}.py.txt").read_text(encoding="utf-8"), (
        f"the generator renders {name}.py otherwise; if that is meant, copy the new text to "
        f"{GOLDEN.name}/{name}.py.txt"
    )
