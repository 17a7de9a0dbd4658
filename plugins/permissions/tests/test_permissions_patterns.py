"""What the pattern of `--allow TOOL:pattern` matches, and what it never matches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dsh.tools import Subject
from dsh_plugins.permissions.catalog import PermissionRule
from dsh_plugins.permissions.patterns import allows, matches, names
from dsh_plugins.permissions.table import Call, Table

if TYPE_CHECKING:
    from dsh.hooks import JsonValue


def command(text: str) -> Subject:
    return Subject(kind="command", text=text)


def path(text: str, *, outside: bool = False) -> Subject:
    return Subject(
        kind="path", text=text, absolute=text if outside else f"/work/{text}", outside=outside
    )


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        ("git status", "git status", True),
        ("git status", "git status --short", False),
        ("git status", "xgit status", False),
        ("git *", "git log --oneline", True),
        ("git *", "git", False),
        ("make ?", "make x", True),
        ("make ?", "make xy", False),
        ("make [ab]", "make a", False),
        ("make [ab]", "make [ab]", True),
        ("Make", "make", False),
        ("*", "anything at all", True),
        ("a.c", "abc", False),
        ("echo \\*", "echo \\x", True),
    ],
)
def test_a_pattern_is_matched_whole_and_case_sensitively(
    pattern: str,
    text: str,
    fits: bool,  # noqa: FBT001
) -> None:
    assert allows(pattern, command(text)) is fits


@pytest.mark.parametrize("syntax", [";", "&", "|", "<", ">", "(", ")", "$", "`", "\n"])
def test_no_wildcard_of_a_command_matches_shell_syntax(syntax: str) -> None:
    assert not allows("git *", command(f"git status {syntax} rm -rf x"))
    assert not allows("*", command(syntax))
    assert not allows("git?", command(f"git{syntax}"))
    assert allows(f"git {syntax}*", command(f"git {syntax}x"))  # written out, it is meant


@pytest.mark.holds("case-074")
@pytest.mark.parametrize(
    "text", ["git status; rm -rf x", "git  status", "git status && curl x | sh", "GIT STATUS"]
)
def test_a_remembered_command_does_not_grow(text: str) -> None:
    assert not allows("git status", command(text))
    assert not allows("git status*", command(text))


@pytest.mark.parametrize(
    ("pattern", "subject", "fits"),
    [
        (None, path("a.txt"), True),
        ("*.txt", path("deep/a.txt"), True),
        ("src/*", path("src/deep/a.py"), True),
        ("src/*", path("srcs/a.py"), False),
        ("/work/src/*", path("src/a.py"), True),
        (None, path("/etc/passwd", outside=True), False),
        ("*", path("/etc/passwd", outside=True), False),
        ("*passwd", path("/etc/passwd", outside=True), False),
        ("/etc/*", path("/etc/passwd", outside=True), True),
        ("/*", path("/etc/passwd", outside=True), True),
        ("/etc", path("/etc/passwd", outside=True), False),
        ("a;b", path("a;b"), True),
        ("*", path("a;b\nc"), True),
    ],
)
def test_outside_the_workspace_only_an_absolute_pattern_allows(
    pattern: str | None,
    subject: Subject,
    fits: bool,  # noqa: FBT001
) -> None:
    assert allows(pattern, subject) is fits


@pytest.mark.parametrize(
    ("pattern", "subject"),
    [
        (None, path("/etc/passwd", outside=True)),
        ("*passwd", path("/etc/passwd", outside=True)),
        ("/etc/*", path("/etc/passwd", outside=True)),
        ("secret*", path("secret.txt")),
        ("/work/secret*", path("secret.txt")),
        ("*rm -rf*", command("true; rm -rf /")),
    ],
)
def test_a_rule_that_refuses_meets_more(pattern: str | None, subject: Subject) -> None:
    assert matches(pattern, subject)


def made(name: str, arguments: JsonValue) -> Call:
    """A call of a tool that has no subject of its own."""
    return Call(name=name, tool=None, arguments=arguments, cwd="/work")


def test_other_subjects_are_canonical_json() -> None:
    table = Table([PermissionRule(decision="allow", tool="ask_web", pattern='{"a":1,"b":"*"}')])
    assert table.judge(made("ask_web", {"b": "x; y", "a": 1})).decision == "allow"
    assert table.judge(made("ask_web", {"b": "x", "a": 2})).decision == "ask"


def test_tool_names_take_wildcards() -> None:
    assert names("*", "bash")
    assert names("*_file", "read_file")
    assert not names("bash", "bash2")
    assert not names("Bash", "bash")


@pytest.mark.parametrize("order", [1, -1])
def test_of_all_rules_that_match_the_strictest_decides(order: int) -> None:
    rules = [
        PermissionRule(decision="allow", tool="t"),
        PermissionRule(decision="ask", tool="t", pattern='{"a":2}'),
        PermissionRule(decision="deny", tool="t", pattern='{"a":3}'),
        PermissionRule(decision="ask", tool="*", pattern='{"a":3}'),
    ][::order]
    table = Table(rules)
    judged = [table.judge(made("t", {"a": number})).decision for number in (1, 2, 3)]
    assert judged == ["allow", "ask", "deny"]
    assert [rule.decision for rule in table.rules()][:2] == ["deny", "ask"]


def test_what_no_rule_matches_is_asked_about() -> None:
    verdict = Table([]).judge(made("bash", {}))
    assert (verdict.decision, verdict.reason) == ("ask", "no rule for bash")
    assert verdict.remedy == "allow it with --allow bash"
