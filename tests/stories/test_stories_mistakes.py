"""Every mistake a plugin author can make: what the type checkers say, and what the run says.

`docs/plugin-mistakes.md` is the table of cases: the code, and three quotations. They are made anew
and compared here; `DSH_WRITE_PAGE=1` writes them into the page instead.
"""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
import trio
from attrs import frozen
from typing_extensions import override

from dsh import catalog as ev
from dsh.agent import user_message
from dsh.boot import ProcessEnviron, mounted, planned, process_environ
from dsh.catalog import records
from dsh.errors import HarnessError, UsageError
from dsh.kernel import in_a_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "plugin-mistakes.md"
SECTION = re.compile(r"^## (.*)$", re.MULTILINE)
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)
SAYS = ("mypy", "basedpyright", "run")
#: What the matrix of generated cases is checked with, too.
STRICTNESS = {"typeCheckingMode": "standard", "reportUnusedCoroutine": "error"}


@frozen
class Case:
    """One section of the page. `said`: the quotations of mypy, basedpyright and the run."""

    title: str
    code: str
    rows: str
    said: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name of its module."""
        return "_".join(re.findall(r"\w+", self.title.lower()))


def cases() -> list[Case]:
    _, *parts = SECTION.split(PAGE.read_text(encoding="utf-8"))
    found: list[Case] = []
    for title, body in zip(parts[::2], parts[1::2], strict=True):
        blocks = BLOCK.findall(body)
        texts = tuple(text for kind, text in blocks if kind == "text")
        (code,) = (text for kind, text in blocks if kind == "python")
        rows = [text for kind, text in blocks if kind == "yaml"]
        assert len(texts) == len(SAYS), title
        found.append(Case(title, code, rows[0] if rows else "- name: my-plugin\n", texts))
    return found


CASES = cases()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every case as a module `<name>/plugin_<name>.py`, installed under its own folder."""
    top = tmp_path_factory.mktemp("mistakes")
    for case in CASES:
        home = top / case.name
        meta = home / "mistakes-1.0.dist-info"
        meta.mkdir(parents=True)
        (home / f"plugin_{case.name}.py").write_text(case.code, encoding="utf-8")
        (home / "dsh.yml").write_text(case.rows, encoding="utf-8")
        (meta / "METADATA").write_text("Metadata-Version: 2.1\nName: my-plugins\nVersion: 1.0\n")
        entry = f"[dsh.plugins]\nmy-plugin = plugin_{case.name}:my_plugin\n"
        (meta / "entry_points.txt").write_text(entry)
    return top


@pytest.fixture(scope="module")
def checked(folder: Path) -> Mapping[str, tuple[str, str]]:
    """What mypy and basedpyright say of each case, by its name."""
    mypy, pyright = _mypy(folder), _basedpyright(folder)
    return {case.name: (mypy[case.name], pyright[case.name]) for case in CASES}


def _mypy(folder: Path) -> Mapping[str, str]:
    # One invocation each would start the whole catalog anew; a syntax error ends a whole run.
    broken = [case for case in CASES if "syntax" in case.name]
    groups = [[case for case in CASES if case not in broken], broken]
    said: defaultdict[str, str] = defaultdict(str)
    for group in groups:
        files = [str(folder / case.name / f"plugin_{case.name}.py") for case in group]
        command = [sys.executable, "-m", "mypy", "--output", "json", "--no-error-summary"]
        command += ["--cache-dir", str(folder / "mypy"), *files]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode in {0, 1, 2}, done.stderr
        for line in done.stdout.splitlines():
            error = cast("dict[str, object]", json.loads(line))
            if error["severity"] == "error":
                name = Path(str(error["file"])).stem.removeprefix("plugin_")
                text = f"plugin.py:{error['line']}: {error['message']}  [{error['code']}]\n"
                said[name] += text
    return said


def _basedpyright(folder: Path) -> Mapping[str, str]:
    config = {
        "include": [str(folder)],
        "pythonVersion": "3.11",
        "extraPaths": [str(ROOT / "src"), str(ROOT), *map(str, ROOT.glob("plugins/*"))],
        **STRICTNESS,
    }
    project = folder / "pyrightconfig.json"
    project.write_text(json.dumps(config), encoding="utf-8")
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "-p", str(project)]
    command += ["--pythonpath", sys.executable]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in {0, 1}, done.stderr
    report = cast("dict[str, list[dict[str, object]]]", json.loads(done.stdout))
    said: defaultdict[str, str] = defaultdict(str)
    for error in report["generalDiagnostics"]:
        if error["severity"] == "error":
            start = cast("dict[str, dict[str, int]]", error["range"])["start"]
            name = Path(str(error["file"])).stem.removeprefix("plugin_")
            rule = f"  ({error['rule']})" if "rule" in error else ""
            first = str(error["message"]).splitlines()[0]
            said[name] += f"plugin.py:{start['line'] + 1}: {first}{rule}\n"
    return said


class Lines(logging.Handler):
    """What the loggers of dsh say."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    @override
    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


async def run(home: Path) -> Iterator[str]:
    """One turn of the demo with the plugin of `home`: everything that a person would read."""
    said: list[str] = []
    try:
        plan = planned(
            home / "dsh.yml", profile="demo", home=home / "state", cwd=home,
            environ=ProcessEnviron({}),
        )  # fmt: skip
        async with mounted(plan, strict=True) as harness:

            @harness.on(ev.agent.ERROR)
            def failed(payload: ev.agent.Error) -> None:
                said.append(in_a_line(payload.error))
                if not isinstance(payload.error, HarnessError):
                    said.append(f"raised by {harness.blamed(payload.error)}")

            options = records.AgentOptions(provider="scripted", model="scripted")
            handle = await harness.agents.create("mine", options=options, cwd=str(home))
            outcome = await handle.agent.ask(user_message("go"))
            said.append(f"turn {outcome.reason.kind}")
            await handle.aclose()
    except UsageError as error:
        said += str(error).splitlines()
    return iter(said)


def shortened(text: str, home: Path, name: str) -> str:
    """The text with the places of this machine left out."""
    text = text.replace(f"{home}/plugin_{name}.py", "plugin.py").replace(f"{home}/", "")
    text = text.replace(f"plugin_{name}", "my_plugin").replace(f"{ROOT}/", "")
    # What is installed beside it is no matter of this page.
    return re.sub(r"Installed: .*", "Installed: …", text)


@pytest.mark.holds("BO25", "KN19", "KN20", "KN21", "case-071")
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_each_mistake_is_named_with_its_place_and_its_remedy(
    case: Case,
    folder: Path,
    checked: Mapping[str, tuple[str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    home = folder / case.name
    monkeypatch.syspath_prepend(str(home))  # pyright: ignore[reportUnknownMemberType]
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    heard = Lines()
    logger = logging.getLogger("dsh")
    logger.addHandler(heard)
    try:
        said = [*trio.run(run, home)]
    finally:
        logger.removeHandler(heard)
        sys.modules.pop(f"plugin_{case.name}", None)
    text = "".join(f"{line}\n" for line in [*heard.lines, *said])
    found = (*checked[case.name], shortened(text, home, case.name))
    if process_environ().get("DSH_WRITE_PAGE"):
        write(case, found)
        return
    for who, now, quoted in zip(SAYS, found, case.said, strict=True):
        assert now == quoted, f"{case.title}: {who} says something else now"


def write(case: Case, found: tuple[str, ...]) -> None:
    """Put the quotations of one case into the page."""
    page = PAGE.read_text(encoding="utf-8")
    begin = page.index(f"## {case.title}\n")
    end = page.find("\n## ", begin)
    section = page[begin:] if end < 0 else page[begin:end]
    texts = iter(found)
    renewed = re.sub(
        r"```text\n.*?```", lambda _: f"```text\n{next(texts)}```", section, flags=re.DOTALL
    )
    PAGE.write_text(page.replace(section, renewed), encoding="utf-8")


def test_the_run_always_says_where_and_a_checker_sees_what_it_can() -> None:
    for case in CASES:
        assert case.said[2].strip(), case.title
        # A place of the plugin or of its row, and who it is.
        assert re.search(r"plugin\.py:\d+|dsh\.yml:\d+:\d+", case.said[2]), case.title
        assert "my-pl" in case.said[2], case.title
        assert "Traceback" not in case.said[2], case.title
        # What both checkers see, they see in the same line.
        lines = [re.findall(r"^plugin\.py:(\d+)", text, re.MULTILINE) for text in case.said[:2]]
        if all(lines):
            assert set(lines[0]) & set(lines[1]), case.title
