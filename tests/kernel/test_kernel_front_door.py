"""The package's own front door: lazy, complete, and hidden from type checkers where it must be."""

from __future__ import annotations

import subprocess
import sys

import pytest

import dsh


def test_importing_dsh_loads_no_room() -> None:
    code = "import sys, dsh; print([m for m in sys.modules if m.startswith(('dsh.', 'trio'))])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


def test_each_name_is_its_rooms_own() -> None:
    from dsh import hooks, kernel

    for name in ("Context", "plugin", "required", "optional", "late"):
        assert getattr(dsh, name) is getattr(kernel, name)
    for name in ("Logged", "Next"):
        assert getattr(dsh, name) is getattr(hooks, name)
    assert dsh.catalog.__name__ == "dsh.catalog"
    assert set(dsh.__all__) <= set(dir(dsh))
    assert list(dsh.__all__) == sorted(dsh.__all__, key=lambda name: (not name[0].isupper(), name))


def test_a_misspelt_name_says_what_there_is() -> None:
    with pytest.raises(AttributeError, match=r"'Contxt'; it has Context, "):
        _ = dsh.Contxt  # type: ignore[attr-defined]
