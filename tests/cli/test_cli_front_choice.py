"""The editor's library is an extra; a conversation does without it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from dsh.cli.chat.front_choice import editor_is_there

if TYPE_CHECKING:
    import pytest


def test_the_editor_is_there_exactly_when_its_library_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert editor_is_there()
    monkeypatch.setitem(sys.modules, "prompt_toolkit", None)
    assert not editor_is_there()
