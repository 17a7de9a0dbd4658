"""Where what is printed: terminals, pipes, JSON lines, readers that go away."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import orjson
import pytest
import trio

from dsh.llm import ScriptedCall, ScriptEntry
from dsh.testing.model_server import RecordedRequest, open_model_server
from dsh.wire import RowReader, encode_line

if TYPE_CHECKING:
    from pathlib import Path

    from dsh.testing.command_line import CommandLine

ANSWER = "Fixed: \x1b[31mred\x1b[0m and 中文 \u202e."
SHOWN = "Fixed: \\x1b[31mred\\x1b[0m and 中文 \\u202e."
READ = ScriptedCall(name="read_file", arguments='{"path": "a.txt"}')


def script() -> list[ScriptEntry]:
    return [ScriptEntry(text="I look.", tools=(READ,)), ScriptEntry(text=ANSWER)]


@pytest.fixture
def workspace(cli: CommandLine) -> Path:
    (cli.workspace / "a.txt").write_text("one\ntwo\n", encoding="utf-8")
    return cli.workspace


@pytest.mark.holds("CL5", "CL1")
async def test_in_a_pipe_the_answer_alone_stands_on_standard_output(
    cli: CommandLine, workspace: Path
) -> None:
    async with open_model_server(script(), strict=True) as server:
        ran = await cli.talking_to(server).run("run", "hi")
    assert (ran.code, ran.out) == (0, SHOWN + "\n")
    assert [line.split()[0] for line in ran.err.splitlines()] == ["session"]
    assert server.connections == 1


@pytest.mark.holds("CL5")
async def test_verbose_in_a_pipe_has_a_line_per_tool(cli: CommandLine, workspace: Path) -> None:
    async with open_model_server(script()) as server:
        ran = await cli.talking_to(server).run("run", "--verbose", "hi")
    assert any(line.startswith("1.1 read_file a.txt: ") for line in ran.err.splitlines())


@pytest.mark.holds("CL5", "CL1")
async def test_on_a_terminal_text_streams_and_foreign_controls_are_shown(
    cli: CommandLine, workspace: Path
) -> None:
    async with open_model_server(script()) as server:
        ran = await cli.talking_to(server).having(TERM="xterm").on_terminal("run", "hi")
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert "I look." in lines
    assert SHOWN in lines
    assert any("read_file" in line and "a.txt" in line for line in lines)
    assert any(line.startswith("-- turn 1 done") for line in lines)
    for forbidden in ("\x1b[31m", "\x1b[2J", "\x1b[?1049h", "\r"):
        assert forbidden not in ran.out


@pytest.mark.holds("CL5")
async def test_tools_go_to_standard_error_when_text_is_on_a_terminal(
    cli: CommandLine, workspace: Path
) -> None:
    async with open_model_server(script()) as server:
        ran = await cli.talking_to(server).on_terminal("run", "hi", split=True)
    assert ran.out == f"I look.\n{SHOWN}\n"
    assert "read_file" in ran.err


@pytest.mark.holds("CL3")
@pytest.mark.parametrize("variables", [{"NO_COLOR": "1", "TERM": "xterm"}, {"TERM": "dumb"}])
async def test_without_colours_there_is_no_escape_at_all(
    cli: CommandLine, workspace: Path, variables: dict[str, str]
) -> None:
    async with open_model_server(script()) as server:
        plain = await cli.talking_to(server).having(**variables).on_terminal("run", "hi")
    assert "\x1b" not in plain.out


@pytest.mark.holds("CL3", "case-085")
async def test_an_ascii_locale_gets_escapes_and_no_error(cli: CommandLine, workspace: Path) -> None:
    async with open_model_server(script()) as server:
        here = cli.talking_to(server).having(LC_ALL="C", PYTHONIOENCODING="ascii")
        ran = await here.run("run", "hi")
    assert ran.code == 0
    assert "\\u4e2d\\u6587" in ran.out


@pytest.mark.holds("CL11")
async def test_json_is_the_log_as_read_back_line_by_line(cli: CommandLine, workspace: Path) -> None:
    async with open_model_server(script() * 2) as server:
        here = cli.talking_to(server)
        first = await here.run("run", "--json", "--session", "s1", "hi")
        second = await here.run("run", "--json", "--resume", "s1", "again")
    assert (first.code, second.code) == (0, 0)
    (path,) = cli.home.rglob("s1*/*.jsonl")
    reader = RowReader()
    _header, *rows = path.read_bytes().splitlines()
    unpacked = [encode_line(event).decode() for row in rows for event in reader.read(row)]
    unsealed = [row for row in rows if row.startswith(b"{") or b"," in row]
    assert len(unpacked) > len(unsealed), "this log has packed rows"
    assert first.lines + second.lines == unpacked
    assert [orjson.loads(line)["seq"] for line in unpacked] == list(range(len(unpacked)))


@pytest.mark.holds("CL2", "case-085")
async def test_a_reader_that_goes_away_ends_the_run_and_the_log_is_whole(
    cli: CommandLine, workspace: Path
) -> None:
    long = ScriptEntry(text=" ".join(f"word{number}" for number in range(3000)))

    def answer(request: RecordedRequest) -> ScriptEntry:
        return ScriptEntry(text="later") if b"go on" in request.body else long

    async with open_model_server(answer, strict=True) as server:
        here = cli.talking_to(server)
        reader, writer = os.pipe()
        os.close(reader)
        ran = await here.run("run", "--json", "--session", "s1", "hi", stdout=writer)
        os.close(writer)
        assert (ran.code, "Traceback" in ran.err) == (141, False)
        assert (await here.run("sessions", "verify", "s1")).code == 0
        resumed = await here.run("run", "--resume", "s1", "go on")
    assert (resumed.code, resumed.out) == (0, "later\n")


@pytest.mark.holds("CL2", "case-085")
async def test_a_full_device_is_said_and_not_success(cli: CommandLine, workspace: Path) -> None:
    async with open_model_server(script()) as server:
        full = os.open("/dev/full", os.O_WRONLY)
        ran = await cli.talking_to(server).run("run", "hi", stdout=full)
        os.close(full)
    assert ran.code == 1
    assert "standard output: No space left on device" in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.holds("CL2", "case-085")
async def test_descriptors_that_are_closed_at_the_start_are_no_error(
    cli: CommandLine, workspace: Path
) -> None:
    async with open_model_server(script() * 3) as server:
        here = cli.talking_to(server)
        for closed in ("<&-", ">&-", "2>&-"):
            command = f'exec {sys.executable} -m dsh.cli run --session "$0" hi {closed}'
            done = await trio.run_process(
                ["sh", "-c", command, f"s{closed[0]}{len(closed)}"],
                capture_stdout=True,
                capture_stderr=True,
                check=False,
                cwd=workspace,
                env=here.environment(),
            )
            assert (done.returncode, b"Traceback" in done.stderr) == (0, False), done
            assert done.stdout.decode() == ("" if closed == ">&-" else SHOWN + "\n")


async def test_the_prompt_may_come_from_standard_input(cli: CommandLine, workspace: Path) -> None:
    async with open_model_server([ScriptEntry(text="ok")]) as server:
        ran = await cli.talking_to(server).run("run", "-", stdin="Zeile\n中".encode())
    assert ran.out == "ok\n"
    assert "Zeile\\n中" in server.requests[0].body.decode()
