"""Stories are told by the real command: a process of its own, a home of its own, real sockets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dsh.testing.command_line import CommandLine

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    home, workspace = tmp_path / "home", tmp_path / "workspace"
    home.mkdir()
    workspace.mkdir()
    return CommandLine(home, workspace)
