"""Composition files as text: YAML 1.2 scalars, places, and everything that is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dsh.boot.nodes import Place, plain
from dsh.boot.yaml_file import read_file, read_text
from dsh.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

PITFALLS = """\
models:
  - id: no
    version: 1.10
    region: NO
    aliases: [on, y, ~, 012, 0o14, 1e3, 12:30, 2026-01-01, .inf, 0x1F, 1_000]
    max_tokens: 8_192
"""


def refusals(text: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        read_text(text, "dsh.yml")
    return caught.value.issues


@pytest.mark.holds("BO1", "case-078")
def test_words_that_older_yaml_turns_into_something_else_stay_words() -> None:
    (model,) = read_text(PITFALLS, "dsh.yml").entries()["models"].items()
    assert plain(model) == {
        "id": "no",
        "version": 1.1,
        "region": "NO",
        "aliases": ["on", "y", None, "012", 12, 1000.0, "12:30", "2026-01-01", ".inf", 31, "1_000"],
        "max_tokens": "8_192",
    }


def test_the_spelling_of_a_scalar_is_kept_for_messages() -> None:
    assert read_text("1.10", "dsh.yml").raw == "1.10"


def test_quoted_scalars_are_text() -> None:
    assert plain(read_text("['1', \"true\", 'null']", "dsh.yml")) == ["1", "true", "null"]


def test_every_value_knows_its_place_and_keys_theirs() -> None:
    node = read_text("- name: fs\n  config: {a: 1}\n", "dsh.yml").items()[0]
    config = node.entries()["config"]
    assert config.key == Place("dsh.yml", 2, 3)
    assert config.entries()["a"].place == Place("dsh.yml", 2, 15)


@pytest.mark.holds("BO1", "case-078")
@pytest.mark.parametrize(
    ("text", "place", "word"),
    [
        ("retry: 1\nshell: 2\nretry: 3\n", "dsh.yml:3:1", "duplicate key 'retry'"),
        ("a: &x 1\n", "dsh.yml:1:4", "anchors"),
        ("<<: {a: 1}\n", "dsh.yml:1:1", "merge keys"),
        ("!!python/object:os.system x", "dsh.yml:1:1", "the tag"),
        ("a: !env X\n", "dsh.yml:1:4", "the tag '!env'"),
        ("--- 1\n--- 2\n", "dsh.yml:2:1", "a second document"),
        ("a:\n\tb: 1\n", "dsh.yml:2:1", "indent with spaces"),
        ("{a: [1, 2", "dsh.yml:1:10", "expected"),
        ("? [x]\n: 1\n", "dsh.yml:1:3", "a key must be plain text"),
        ("a: 1e999\n", "dsh.yml:1:4", "larger than any number"),
    ],
)
def test_what_is_refused_names_its_place(text: str, place: str, word: str) -> None:
    assert any(issue.startswith(f"{place}: ") and word in issue for issue in refusals(text))


def test_all_refusals_of_a_file_come_at_once() -> None:
    assert len(refusals("a: 1\na: 2\nb: &x 1\nc: !t 2\n")) == 3


def test_an_alias_is_refused_where_it_stands() -> None:
    assert any("dsh.yml:2:4" in issue for issue in refusals("a: &x 1\nb: *x\n"))


def test_an_empty_file_is_nothing() -> None:
    assert read_text("", "dsh.yml").value is None
    assert read_text("# only a comment\n", "dsh.yml").value is None


def test_a_very_deep_file_is_refused_and_not_a_stack_overflow() -> None:
    with pytest.raises(ConfigError, match="nested deeper"):
        read_text("[" * 5000 + "]" * 5000, "dsh.yml")


def test_a_file_that_is_no_utf8_or_cannot_be_read_says_so(tmp_path: Path) -> None:
    path = tmp_path / "dsh.yml"
    path.write_bytes(b"- name: \xff\n")
    with pytest.raises(ConfigError, match=r"is not UTF-8 \(byte 8\)"):
        read_file(path, "dsh.yml")
    with pytest.raises(ConfigError, match=r"cannot read dsh\.yml"):
        read_file(tmp_path, "dsh.yml")
