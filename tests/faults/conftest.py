"""Options of the fault tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--kills N`: how many houses to kill in all, in place of a few."""
    parser.addoption("--kills", type=int, default=None, help="houses to kill with kill -9, in all")
