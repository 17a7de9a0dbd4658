"""Failures in words: one paragraph each, the right code, groups taken apart."""

from __future__ import annotations

import logging

import pytest

from dsh.cli.failures import ContainedFailures, explained
from dsh.errors import (
    ConfigError,
    InvariantError,
    MissingCredential,
    SessionBusy,
    SessionCorrupt,
    StorageFailed,
    UsageError,
)


@pytest.mark.holds("CL10")
@pytest.mark.parametrize(
    ("error", "before", "code"),
    [
        (UsageError("x"), False, 2),
        (ConfigError("x"), False, 2),
        (MissingCredential("x"), False, 2),
        (SessionBusy("x"), False, 2),
        (SessionCorrupt("x"), True, 2),
        (SessionCorrupt("x"), False, 1),
        (StorageFailed("x"), False, 1),
        (InvariantError("x"), False, 1),
        (KeyboardInterrupt(), True, 130),
        (ValueError("x"), True, 1),
    ],
)
def test_every_error_has_its_code(error: BaseException, code: int, *, before: bool) -> None:
    text, found = explained(error, debug=False, before_session=before)
    assert found == code
    assert text.startswith("dsh: ")
    assert text.endswith("\n")
    assert "Traceback" not in text


@pytest.mark.holds("CL10", "CL1")
def test_groups_are_taken_apart_and_said_once() -> None:
    inner = BaseExceptionGroup("inner", [UsageError("same"), ConfigError("other \x1b[2J")])
    group = BaseExceptionGroup("outer", [UsageError("same"), inner])
    text, code = explained(group, debug=False, before_session=False)
    assert text == "dsh: same\ndsh: other \\x1b[2J\n"
    assert code == 2


@pytest.mark.holds("CL17")
def test_what_nobody_foresaw_names_its_place_and_the_way_to_more() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        print(1 / int("0"))  # noqa: T201  # never reached
    text, code = explained(caught.value, debug=False, before_session=False)
    more, _ = explained(caught.value, debug=True, before_session=False)
    assert code == 1
    for word in ("unexpected ZeroDivisionError", "test_cli_failures.py:", "by zero", "--debug"):
        assert word in text
    assert "Traceback" in more


@pytest.mark.holds("CL17")
@pytest.mark.parametrize("debug", [False, True])
def test_contained_failures_are_a_line_each(*, debug: bool) -> None:
    said: list[str] = []
    logger = logging.getLogger("dsh.plugin.acme.test")
    handler = ContainedFailures(said.append, debug=debug)
    logger.addHandler(handler)
    try:
        error = ExceptionGroup("several", [ValueError("one \x07"), ValueError("two")])
        logger.warning("failed in a listener", exc_info=error)
    finally:
        logger.removeHandler(handler)
    first = "warning: plugin acme.test: failed in a listener"
    if debug:
        assert said[0] == f"{first}\n"
        assert "ValueError: two" in said[1]
    else:
        assert said == [f"{first}: one \\x07: two\n"]
