"""What each provider of the file seam promises its consumers: the disk, and files in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dsh.seams.fs import Condition, FileSystem, FsError, Query, Target
from dsh.testing import MemoryFiles
from dsh_plugins.fs_local.local import LocalFiles

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(params=[LocalFiles, MemoryFiles])
def files(request: pytest.FixtureRequest) -> FileSystem:
    made: object = request.param()
    assert isinstance(made, FileSystem)
    return made


@pytest.fixture
def cwd(tmp_path: Path) -> str:
    return str(tmp_path)


async def put(files: FileSystem, cwd: str, path: str, text: str) -> Target:
    target = await files.locate(path, cwd)
    await files.write(target, text, None)
    return target


async def text_of(files: FileSystem, target: Target) -> list[str]:
    page = await files.read(target, start=1, count=100, line_max=100, byte_max=10_000)
    return list(page.lines)


async def test_a_target_is_placed_alike_with_and_without_blocking(
    files: FileSystem, cwd: str
) -> None:
    assert files.place("sub/../a.txt", cwd) == await files.locate("a.txt", cwd)
    assert not files.place("a.txt", cwd).outside
    assert files.place("../a.txt", cwd).outside


async def test_a_file_has_a_new_version_whenever_it_is_written(files: FileSystem, cwd: str) -> None:
    target = await files.locate("new/a.txt", cwd)
    assert await files.stat(target) is None
    first = await files.write(target, "one\n", Condition(version=None))
    assert (first.created, first.size) == (True, 4)
    second = await files.write(target, "two\n", Condition(version=first.version))
    assert not second.created
    assert second.version != first.version
    found = await files.stat(target)
    assert found is not None
    assert (found.kind, found.size, found.version) == ("file", 4, second.version)


@pytest.mark.parametrize("change", ["write", "edit"])
async def test_a_condition_that_does_not_hold_changes_nothing(
    files: FileSystem, cwd: str, change: str
) -> None:
    target = await files.locate("a.txt", cwd)
    first = await files.write(target, "one\n", None)
    second = await files.write(target, "one, two\n", None)

    async def changed(condition: Condition) -> None:
        if change == "write":
            await files.write(target, "three\n", condition)
        else:
            await files.edit(target, "two", "three", every=False, condition=condition)

    with pytest.raises(FsError) as stale:
        await changed(Condition(version=first.version))
    with pytest.raises(FsError) as unread:
        await changed(Condition(version=None))
    assert (stale.value.code, unread.value.code) == ("FS_STALE_VERSION", "FS_NOT_OBSERVED")
    assert await text_of(files, target) == ["one, two"]
    await changed(Condition(version=second.version))
    assert "three" in (await text_of(files, target))[0]


async def test_an_edit_is_unique_or_of_every_place(files: FileSystem, cwd: str) -> None:
    target = await put(files, cwd, "a.txt", "x\ny\nx\n")
    with pytest.raises(FsError) as twice:
        await files.edit(target, "x", "z", every=False, condition=None)
    with pytest.raises(FsError) as nowhere:
        await files.edit(target, "q", "z", every=True, condition=None)
    assert (twice.value.code, nowhere.value.code) == ("FS_AMBIGUOUS_EDIT", "FS_EDIT_NOT_FOUND")
    edited = await files.edit(target, "x", "z", every=True, condition=None)
    assert (edited.replaced, edited.line) == (2, 1)
    assert await text_of(files, target) == ["z", "y", "z"]


async def test_a_page_says_where_it_is_and_what_it_left_out(files: FileSystem, cwd: str) -> None:
    target = await put(files, cwd, "a.txt", "one\n" + "t" * 12 + "\nthree\nfour\n")
    page = await files.read(target, start=2, count=2, line_max=5, byte_max=10_000)
    assert (page.start, page.lines, page.cut) == (2, ("ttttt", "three"), ((2, 12),))
    assert (page.total_lines, page.total_bytes) == (4, 28)
    assert (page.encoding, page.crlf) == ("utf-8", False)


async def test_what_is_not_there_is_said_so(files: FileSystem, cwd: str) -> None:
    target = await put(files, cwd, "sub/a.txt", "one\n")
    folder = await files.locate("sub", cwd)
    absent = await files.locate("b.txt", cwd)
    with pytest.raises(FsError) as missing:
        await text_of(files, absent)
    with pytest.raises(FsError) as directory:
        await text_of(files, folder)
    with pytest.raises(FsError) as file:
        await files.list(target)
    codes = [raised.value.code for raised in (missing, directory, file)]
    assert codes == ["FS_NOT_FOUND", "FS_NOT_REGULAR_FILE", "FS_NOT_DIRECTORY"]


async def test_folders_are_listed_and_walked_by_name(files: FileSystem, cwd: str) -> None:
    for path in ("b.txt", "sub/c.txt", "a.txt"):
        await put(files, cwd, path, "one\n")
    root = await files.locate(".", cwd)
    listed = [(entry.path, entry.size) for entry in await files.list(root)]
    assert listed == [("a.txt", 4), ("b.txt", 4), ("sub/", 0)]
    walk = await files.walk(root, workspace=cwd, ignored=False)
    assert walk.complete
    assert [entry.path for entry in walk.files] == ["a.txt", "b.txt", "sub/c.txt"]


async def test_a_search_counts_what_it_does_not_show(files: FileSystem, cwd: str) -> None:
    for path, text in (("a.txt", "one\nTwo\n"), ("b.txt", "two\nthree\ntwo\n")):
        await put(files, cwd, path, text)
    root = await files.locate(".", cwd)
    found = (await files.walk(root, workspace=cwd, ignored=False)).files
    matches = await files.search(root, found, Query(pattern="^two$", ignore_case=True, limit=2))
    assert (matches.matches, matches.files) == (3, 2)
    assert matches.lines == ((0, 2, "Two", True), (1, 1, "two", True))
    with pytest.raises(FsError, match="no regular expression"):
        await files.search(root, found, Query(pattern="("))
