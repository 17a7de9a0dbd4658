"""glob, grep and names: ignore files, bounds, and names that are no text."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
import trio

from dsh.hooks.live import ToolFailed, ToolSuccess
from dsh.seams.fs import Entry, FsError, Query
from dsh_plugins.fs.reading import alternatives
from dsh_plugins.fs.subjects import path_of
from dsh_plugins.fs_local.local import LocalFiles
from dsh_plugins.fs_local.names import locate

if TYPE_CHECKING:
    from pathlib import Path

    from dsh.tools import Subject
    from plugins.fs.tests.conftest import Desk


def tree(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"in {name}\n")


async def listed(desk: Desk, pattern: str, **more: object) -> list[str]:
    text = await desk.text("glob", pattern=pattern, **more)
    return text.split("\n")[:-1]


async def test_patterns_match_as_in_an_ignore_file(desk: Desk) -> None:
    tree(desk.path, "a.py", "src/b.py", "src/deep/c.py", "src/d.ts", "e.tsx", "docs/f.md")
    assert await listed(desk, "*.py") == ["a.py", "src/b.py", "src/deep/c.py"]
    assert await listed(desk, "/*.py") == ["a.py"]
    assert await listed(desk, "src/**/*.py") == ["src/b.py", "src/deep/c.py"]
    assert await listed(desk, "*.{ts,tsx}") == ["e.tsx", "src/d.ts"]
    assert await listed(desk, "*.py", path="src") == ["b.py", "deep/c.py"]
    assert await listed(desk, "*") == sorted(
        ["a.py", "src/b.py", "src/deep/c.py", "src/d.ts", "e.tsx", "docs/f.md"]
    )
    assert await desk.text("glob", pattern="*.rs") == "[0 files]"


async def test_nested_ignore_files_are_honoured_also_from_above_the_root(desk: Desk) -> None:
    tree(
        desk.path, "a.log", "keep.log", "build/x.py", "src/a.log", "src/b.py", "src/tmp/c.py",
        ".git/config", "src/.git/x",
    )  # fmt: skip
    (desk.path / ".gitignore").write_text("*.log\n!keep.log\nbuild/\n[bad\n")
    (desk.path / "src/.gitignore").write_text("/tmp\n!a.log\n")
    assert await listed(desk, "*") == [
        ".gitignore", "keep.log", "src/.gitignore", "src/a.log", "src/b.py",
    ]  # fmt: skip
    assert await listed(desk, "*", path="src") == [".gitignore", "a.log", "b.py"]
    assert await listed(desk, "*.py", path="build") == ["x.py"]  # asked for by name
    everything = await listed(desk, "*", include_ignored=True)
    assert "build/x.py" in everything
    assert ".git/config" not in everything


async def test_a_glob_is_bounded_with_the_exact_total(desk: Desk) -> None:
    tree(desk.path, *(f"f{n:03}" for n in range(50)))
    text = await desk.text("glob", pattern="f*", limit=3)
    assert text == (
        "f000\nf001\nf002\n[50 files; the first 3 are shown; narrow the pattern or raise the limit]"
    )


async def test_a_walk_does_not_follow_links_to_folders(desk: Desk) -> None:
    tree(desk.path, "a/b")
    (desk.path / "a/up").symlink_to("..")
    (desk.path / "outside").symlink_to("/etc")
    with trio.fail_after(10):
        assert await listed(desk, "*") == ["a/b"]


def test_braces_are_expanded_within_a_bound() -> None:
    assert alternatives("a{b,c}{d,e}") == ["abd", "abe", "acd", "ace"]
    assert alternatives("{a,{b,c}}") == ["a", "b", "c"] or set(alternatives("{a,{b,c}}")) == {
        "a", "b", "c",
    }  # fmt: skip
    assert alternatives("a{b}c") == ["a{b}c"]
    assert len(alternatives("{a,b}" * 20)) <= 200


async def test_grep_finds_lines_with_context_and_totals(desk: Desk) -> None:
    (desk.path / "a.txt").write_text("one\ntwo\nthree\nfour\ntwo again\n")
    (desk.path / "b.md").write_text("TWO\n")
    (desk.path / "bin").write_bytes(b"two\x00")
    assert await desk.text("grep", pattern="^two", context=1) == (
        "a.txt-1- one\na.txt:2: two\na.txt-3- three\na.txt-4- four\na.txt:5: two again\n"
        "[2 matches in 1 of 3 files; 1 files are not text]"
    )
    assert "b.md:1: TWO" in await desk.text("grep", pattern="two", ignore_case=True)
    assert await desk.text("grep", pattern="two", glob="*.md") == "[0 matches in 0 of 1 files]"
    assert (await desk.text("grep", pattern="two", path="a.txt")).endswith(
        "[2 matches in 1 of 1 files]"
    )
    bounded = await desk.text("grep", pattern=".", limit=1)
    assert bounded.startswith("a.txt:1: one\n[6 matches in 2 of 3 files; the first 1 are shown")


async def test_a_bad_or_endless_pattern_is_a_clear_failure(desk: Desk, tmp_path: Path) -> None:
    assert "no regular expression" in (await desk.call("grep", pattern="(")).text or not list(
        desk.path.iterdir()
    )
    (desk.path / "f").write_text("a" * 40 + "b\n")
    assert "no regular expression" in (await desk.call("grep", pattern="(")).text
    files = LocalFiles(search_seconds=0.5)
    root = locate(".", str(desk.path))
    with trio.fail_after(10), pytest.raises(FsError, match=r"took longer than 0\.5 s"):
        await files.search(root, [Entry(path="f", size=42)], Query(pattern=r"^(a+)+$"))


async def test_a_cancelled_search_is_over_at_once(desk: Desk) -> None:
    (desk.path / "f").write_text("a" * 40 + "b\n")
    with trio.fail_after(10), trio.move_on_after(0.3) as scope:
        await desk.call("grep", pattern=r"^(a+)+$")
    assert scope.cancelled_caught


# --- names ---------------------------------------------------------------------------------------

ODD = [
    os.fsdecode(b"caf\xe9.txt"),
    os.fsdecode(b"\xff\xfe"),
    "new\nline.txt",
    "-rf",
    "a b'c\".txt",
    "\u202egnp.txt",
]
SHOWN = [
    "caf\\xe9.txt", "\\xff\\xfe", "new\\nline.txt", "-rf", "a b'c\".txt", "\\u202egnp.txt",
]  # fmt: skip


@pytest.mark.holds("case-036")
async def test_odd_names_are_listed_found_and_opened_by_what_is_shown(desk: Desk) -> None:
    for name in ODD:
        with open(os.path.join(str(desk.path), name), "w") as file:  # noqa: ASYNC230, PTH118, PTH123 - a test's own small file
            file.write("needle\n")
    text = await desk.text("glob", pattern="*")
    assert sorted(text.split("\n")[:-1]) == sorted(SHOWN)
    text.encode()
    found = await desk.text("grep", pattern="needle")
    for shown in SHOWN:
        assert f"{shown}:1: needle" in found
        read = await desk.call("read_file", path=shown)
        assert isinstance(read.result, ToolSuccess), read.text
        assert read.text.startswith("1\tneedle")
    edit = {"path": SHOWN[0], "old_string": "needle", "new_string": "hay"}
    await desk.call("edit_file", **edit)
    with open(os.path.join(str(desk.path), ODD[0])) as file:  # noqa: ASYNC230, PTH118, PTH123 - a test's own small file
        assert file.read() == "hay\n"


@pytest.mark.parametrize("path", ["", "a\x00b"])
async def test_an_impossible_path_is_refused(desk: Desk, path: str) -> None:
    assert isinstance((await desk.call("read_file", path=path)).result, ToolFailed)


def test_the_subject_is_the_resolved_path(tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "sub").mkdir(parents=True)
    (work / "out").symlink_to("/etc")
    (tmp_path / "workshop").mkdir()
    cwd = str(work)
    subject_of = path_of(LocalFiles())

    def subject_at(path: str) -> Subject:
        return subject_of({"path": path}, cwd)

    for path in ("f", "./f", "sub/../f", str(work / "f")):
        subject = subject_at(path)
        assert (subject.text, subject.outside) == ("f", False)
        assert subject.absolute == str(work / "f")
    for path in ("../f", "/etc/passwd", "out/passwd", "../workshop/x", str(tmp_path)):
        assert subject_at(path).outside, path
    assert subject_at("out/passwd").absolute == "/etc/passwd"
    assert subject_of({}, cwd).text == "."
