"""The demo, and what a run costs: no key, no network, real work, nothing imported in vain."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
import pytest

if TYPE_CHECKING:
    from dsh.testing.command_line import CommandLine

#: Packages whose modules a run of the demo may load, besides the standard library.
ALLOWED = {
    "attr",
    "attrs",
    "cattr",
    "cattrs",
    "dsh",
    "dsh_plugins",
    "idna",
    "orjson",
    "outcome",
    "sniffio",
    "sortedcontainers",
    "trio",
    "typing_extensions",
}


def logs(cli: CommandLine) -> list[Path]:
    return list(cli.home.rglob("session.jsonl"))


def demo_workspace(err: str) -> Path:
    line = next(line for line in err.splitlines() if line.startswith("workspace "))
    return Path(line.removeprefix("workspace "))


@pytest.mark.holds("CL15")
async def test_the_demo_works_without_key_and_says_what_it_is(
    cli: CommandLine, tmp_path: Path
) -> None:
    ran = await cli.having(TMPDIR=str(tmp_path)).run("run", "--profile", "demo")
    assert ran.code == 0, ran
    said = ran.err.splitlines()
    assert said[0].startswith("demo: the model is scripted")
    workspace = demo_workspace(ran.err)
    assert workspace.parent == tmp_path
    assert sorted(path.name for path in workspace.iterdir()) == ["notes.txt", "summary.md"]
    assert "summary.md says what happened" in ran.out
    assert "denied" not in ran.err
    assert Path(said[-1].removeprefix("log ")) in logs(cli)
    session = next(line.split()[1] for line in said if line.startswith("session "))
    assert (await cli.run("sessions", "verify", session)).out.startswith(f"ok {session}: ")


@pytest.mark.holds("CL15")
async def test_on_a_terminal_the_demo_shows_every_tool(cli: CommandLine, tmp_path: Path) -> None:
    ran = await cli.having(TMPDIR=str(tmp_path)).on_terminal("run", "--profile", "demo")
    assert ran.code == 0
    for tool in ("read_file", "write_file", "bash"):
        assert any(line.split()[:1] == [tool] for line in ran.out.splitlines()), tool
    assert "-- turn 1 done" in ran.out


@pytest.mark.holds("CL15")
async def test_the_demo_works_in_a_directory_that_is_given(cli: CommandLine) -> None:
    here = str(cli.workspace)
    ran = await cli.run("run", "--profile", "demo", "--cwd", here, "anything at all")
    assert ran.code == 0
    assert (cli.workspace / "summary.md").is_file()


@pytest.mark.holds("CL9")
async def test_messages_are_the_requests_that_the_model_recorded(
    cli: CommandLine, tmp_path: Path
) -> None:
    record = tmp_path / "requests.jsonl"
    ran = await cli.run(
        "run", "--profile", "demo", "--session", "s1", "--set", f"scripted.record={record}",
        "--cwd", str(cli.workspace),
    )  # fmt: skip
    assert ran.code == 0, ran
    recorded = [orjson.loads(line)["messages"] for line in record.read_bytes().splitlines()]
    assert len(recorded) == 4
    for step, messages in enumerate(recorded, start=1):
        printed = await cli.run("sessions", "messages", "s1", "--step", f"1.{step}")
        assert [orjson.loads(line) for line in printed.lines] == messages
    now = await cli.run("sessions", "messages", "s1")
    *sent, reply = [orjson.loads(line) for line in now.lines]
    assert sent == recorded[-1]
    assert (reply["role"], reply["content"][0]["text"]) == ("assistant", ran.out.rstrip("\n"))


@pytest.mark.holds("CL16")
def test_what_a_demo_run_imports(cli: CommandLine) -> None:
    program = (
        "import sys\nfrom dsh.cli import main\n"
        f"code = main(['run', '--profile', 'demo', '--cwd', {str(cli.workspace)!r}])\n"
        "sys.stderr.write('loaded ' + ' '.join(sorted(sys.modules)) + '\\n')\n"
        "sys.exit(code)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env=cli.environment(),
        cwd=cli.workspace,
    )
    loaded = done.stderr.splitlines()[-1].split()[1:]
    tops = {name.partition(".")[0] for name in loaded} - set(sys.stdlib_module_names)
    foreign = {name for name in tops if not name.startswith(("_", "sitecustomize"))}
    assert foreign <= ALLOWED, sorted(foreign - ALLOWED)
    for absent in ("yaml", "httpx", "rich", "prompt_toolkit", "jinja2", "asyncio", "pathspec"):
        assert absent not in loaded, absent
    rooms = {name.split(".")[1] for name in loaded if name.startswith("dsh.")}
    assert "testing" not in rooms


@pytest.mark.holds("CL16")
def test_version_imports_next_to_nothing() -> None:
    program = (
        "import sys\nfrom dsh.cli import main\nmain(['--version'])\n"
        "sys.stderr.write(' '.join(sys.modules))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = done.stderr.split()
    assert done.stdout.startswith("dsh ")
    for absent in ("trio", "attrs", "attr", "orjson", "argparse", "logging", "dsh.kernel"):
        assert absent not in loaded, absent
