"""Hot reload: in place, from source, whole or not at all."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING

import pytest
import trio
from attrs import frozen

from dsh.boot import Harness, News, ProcessEnviron, open_harness
from dsh.hooks import Emit, Notice
from dsh.kernel import Plugin

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path


@frozen
class Asked(Notice):
    """Who answers, in the order of the chain."""

    answers: list[str]


ASKED: Emit[Asked] = Emit("test/reload-asked", Asked, errors="veto", scope_of=None, owner="core")

PLUGIN = """
from dsh import Context, plugin
from test_boot_reload_tokens import ASKED
from {package}.words import WORD

@plugin(name="{name}")
async def entry(ctx: Context) -> None:
    {first}
    ctx.on(ASKED)(lambda asked: asked.answers.append(WORD))
"""


class Author:
    """Writes the source of one plugin package, and edits it."""

    def __init__(self, folder: Path, package: str) -> None:
        self.folder = folder / package
        self.package = package
        self.folder.mkdir()
        self.write("words.py", 'WORD = "one"\n')
        self.entry("pass")

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def entry(self, first: str) -> None:
        self.write(
            "__init__.py",
            PLUGIN.format(package=self.package, name=self.package.replace("_", "-"), first=first),
        )

    def plugin(self) -> Plugin:
        found: object = import_module(self.package).entry
        assert isinstance(found, Plugin)
        return found


Make = Callable[[str], Author]


@pytest.fixture
def author(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    folder = tmp_path / "src"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))  # pyright: ignore[reportUnknownMemberType]
    monkeypatch.setitem(sys.modules, "test_boot_reload_tokens", sys.modules[__name__])
    made: list[str] = []

    def make(package: str) -> Author:
        made.append(package)
        return Author(folder, package)

    yield make
    for name in tuple(sys.modules):
        if name.partition(".")[0] in made:
            del sys.modules[name]


@asynccontextmanager
async def house(
    tmp_path: Path, *authors: Author, told: list[News] | None = None
) -> AsyncGenerator[Harness]:
    async with open_harness(
        profile="demo",
        home=tmp_path / "home",
        cwd=tmp_path,
        environ=ProcessEnviron({}),
        plugins=[one.plugin() for one in authors],
    ) as harness:
        if told is not None:
            harness.live.tell = told.append
        yield harness


def answers(harness: Harness) -> list[str]:
    asked = Asked([])
    harness.context.emit(asked)
    return asked.answers


@pytest.mark.holds("BO15", "case-069")
async def test_three_edits_and_the_newest_answers_once_in_its_old_place(
    tmp_path: Path, author: Make
) -> None:
    first, second = author("first_one"), author("second_one")
    second.write("words.py", 'WORD = "second"\n')
    async with house(tmp_path, first, second) as harness:
        count = len(harness.kernel.listeners())
        # Every edit has the size of the one before and follows within the same second.
        for word in ("two", "3rd", "4th"):
            first.write("words.py", f'WORD = "{word}"\n')
            news = await harness.live.reload("first_one")
            assert news == News("reloaded", "'first-one' reloaded")
            assert answers(harness) == [word, "second"]
            assert len(harness.kernel.listeners()) == count
        fiber = harness.live.rows["first-one"].fiber
        assert fiber.path == "first-one"
        await fiber.dispose()
        assert answers(harness) == ["second"]
    assert sys.modules["first_one"].__name__ == "first_one"


@pytest.mark.holds("BO16")
@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("words.py", "WORD = = 1\n", ("words.py:1: SyntaxError: invalid syntax",)),
        ("words.py", 'raise KeyError("no")\n', ("words.py:1: KeyError: 'no'",)),
        ("words.py", "", ("ImportError: cannot import name 'WORD'",)),
        ("__init__.py", "", ("has no plugin 'entry' any more",)),
    ],
)
async def test_an_import_that_fails_changes_nothing(
    tmp_path: Path, author: Make, file: str, text: str, said: tuple[str, ...]
) -> None:
    one = author("broken_one")
    told: list[News] = []
    async with house(tmp_path, one, told=told) as harness:
        fiber = harness.live.rows["broken-one"].fiber
        modules = {name: sys.modules[name] for name in ("broken_one", "broken_one.words")}
        one.write(file, text)
        news = await harness.live.reload("broken_one")
        assert news.kind == "kept"
        assert "'broken-one' not reloaded, what ran before runs on" in news.text
        for words in said:
            assert words in news.text
        assert told == [news]
        assert harness.live.rows["broken-one"].fiber is fiber
        assert answers(harness) == ["one"]
        assert {name: sys.modules[name] for name in modules} == modules
        assert sys.modules["broken_one"].words is modules["broken_one.words"]


@pytest.mark.holds("BO16")
async def test_an_apply_that_raises_swaps_back_and_both_errors_are_told(
    tmp_path: Path, author: Make
) -> None:
    one = author("raising_one")
    async with house(tmp_path, one) as harness:
        old = sys.modules["raising_one"]
        one.write("words.py", 'WORD = "new"\n')
        one.entry('raise ValueError("no luck")')
        news = await harness.live.reload("raising_one")
        assert news.kind == "kept"
        assert "what ran before runs again" in news.text
        assert "raising_one/__init__.py:8: ValueError: no luck" in news.text
        assert answers(harness) == ["one"]
        assert sys.modules["raising_one"] is old
        assert sys.modules["raising_one.words"].WORD == "one"
        # The repaired file is taken up again.
        one.entry("pass")
        assert (await harness.live.reload("raising_one")).kind == "reloaded"
        assert answers(harness) == ["new"]


@pytest.mark.holds("BO16")
async def test_when_the_version_before_fails_too_both_reasons_are_told(
    tmp_path: Path, author: Make
) -> None:
    one = author("fragile_one")
    flag = tmp_path / "flag"
    flag.touch()
    check = f"import pathlib; pathlib.Path({str(flag)!r}).stat()"
    one.entry(check)
    async with house(tmp_path, one) as harness:
        flag.unlink()
        one.entry('raise ValueError("no luck")')
        news = await harness.live.reload("fragile_one")
        assert news.kind == "kept"
        for words in ("ValueError: no luck", "before: ", "FileNotFoundError", "fails, too"):
            assert words in news.text


@pytest.mark.holds("BO15")
async def test_modules_that_import_each_other_are_exchanged_whole(
    tmp_path: Path, author: Make
) -> None:
    one = author("circle_one")
    one.write("words.py", "from circle_one import sounds\nWORD = 'a'\ndef say(): return sounds.S\n")
    one.write("sounds.py", "from circle_one import words\nS = 'x'\ndef back(): return words.WORD\n")
    one.write("lazy.py", "LATE = 'l1'\n")
    async with house(tmp_path, one) as harness:
        one.write(
            "words.py", "from circle_one import sounds\nWORD = 'b'\ndef say(): return sounds.S\n"
        )
        one.write(
            "sounds.py", "from circle_one import words\nS = 'y'\ndef back(): return words.WORD\n"
        )
        assert (await harness.live.reload("circle_one")).kind == "reloaded"
        words, sounds = import_module("circle_one.words"), import_module("circle_one.sounds")
        assert (words.say(), sounds.back()) == ("y", "b")
        assert words.sounds is sounds
        assert answers(harness) == ["b"]
        # A module that is imported later than the reload is read from its source, too.
        assert import_module("circle_one.lazy").LATE == "l1"
        one.write("lazy.py", "LATE = 'l2'\n")
        assert (await harness.live.reload("circle_one")).kind == "reloaded"
        assert import_module("circle_one.lazy").LATE == "l2"


@pytest.mark.holds("BO17")
async def test_a_changed_catalog_needs_a_restart(tmp_path: Path, author: Make) -> None:
    one = author("schema_one")
    one.write("catalog/__init__.py", "class Vocabulary: ...\n")
    one.entry("import schema_one.catalog as c; assert c.Vocabulary")
    async with house(tmp_path, one) as harness:
        assert harness.live.packages()[-1] == "schema_one"
        vocabulary = import_module("schema_one.catalog")
        one.write("words.py", 'WORD = "two"\n')
        assert (await harness.live.reload("schema_one")).kind == "reloaded"
        assert import_module("schema_one.catalog") is vocabulary
        assert sys.modules["schema_one"].catalog is vocabulary
        one.write("catalog/__init__.py", "class Vocabulary: more = 1\n")
        one.write("words.py", 'WORD = "three"\n')
        news = await harness.live.reload("schema_one")
        assert news == News(
            "restart", "'schema-one': its catalog has changed, which needs a restart of dsh"
        )
        assert answers(harness) == ["two"]


@pytest.mark.holds("BO15")
async def test_a_running_call_ends_with_the_code_it_began_with(
    tmp_path: Path, author: Make
) -> None:
    one = author("running_one")
    one.write(
        "words.py",
        "import trio\nWORD = 'one'\nGO = trio.Event()\nasync def body():\n"
        "    await GO.wait()\n    return WORD\n",
    )
    async with house(tmp_path, one) as harness, trio.open_nursery() as nursery:
        old = import_module("running_one.words")
        results: list[str] = []

        async def call() -> None:
            results.append(await old.body())

        nursery.start_soon(call)
        await trio.testing.wait_all_tasks_blocked()
        one.write("words.py", "WORD = 'two'\n")
        assert (await harness.live.reload("running_one")).kind == "reloaded"
        old.GO.set()
        await trio.testing.wait_all_tasks_blocked()
        assert results == ["one"]
        assert answers(harness) == ["two"]


@pytest.mark.holds("BO15")
async def test_rooms_of_dsh_and_strange_packages_are_not_reloaded(
    tmp_path: Path, author: Make
) -> None:
    async with house(tmp_path, author("only_one")) as harness:
        assert "dsh" not in harness.live.packages()
        news = await harness.live.reload("nobody")
        assert news == News("kept", "no mounted row is of the package 'nobody'")
