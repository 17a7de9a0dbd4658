"""Options of the fault tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--kills N`: how many houses to kill, in place of a few; `--doing WORD`: only such."""
    parser.addoption("--kills", type=int, default=None, help="houses to kill with kill -9, in all")
    parser.addoption("--doing", default=None, help="kill only houses that are doing this")
