"""`dsh view` and `dsh sessions show` as people run them: files, refusals, damage, following."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING, cast

import h11
import orjson
import pytest
import trio

from dsh.llm import ScriptEntry
from dsh.testing.command_line import CommandLine, Ran, refused
from dsh.testing.model_server import open_model_server
from dsh.testing.trajectory_samples import parallel_log
from dsh_plugins.session_jsonl.store import JsonlStore

if TYPE_CHECKING:
    from pathlib import Path

    from dsh.testing.command_line import Running


async def stored(cli: CommandLine) -> Path:
    """A session of three turns in the command's store; gives the place of its log."""
    log = parallel_log()
    store = JsonlStore(cli.home / "sessions", now_ms=lambda: 0)
    handle = await store.create(log.session.header)
    await handle.append(tuple(log.session.events))
    await handle.aclose()
    (path,) = (cli.home / "sessions").rglob("*.jsonl")
    return path


def damage(path: Path) -> None:
    """Break a line in the middle of a log."""
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join((*lines[:20], b'{"garbage\n', *lines[21:])))


@pytest.mark.holds("VW1")
async def test_the_page_is_a_file_of_the_owner_alone_and_its_path_is_printed(
    cli: CommandLine,
) -> None:
    await stored(cli)
    ran = await cli.run("view", "s7")
    path = cli.home / "views" / "s7f3.html"
    assert (ran.code, ran.out) == (0, f"{path}\n")
    assert "mind whom you give it to" in ran.err
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")
    before = path.read_bytes()
    assert (await cli.run("view", "s7")).code == 0
    assert path.read_bytes() == before
    assert [one.name for one in path.parent.iterdir()] == ["s7f3.html"]


@pytest.mark.holds("VW1")
async def test_the_page_goes_where_it_is_wanted(cli: CommandLine) -> None:
    await stored(cli)
    assert (await cli.run("view", "s7", "-o", "page.html")).code == 0
    printed = await cli.run("view", "s7", "-o", "-")
    assert printed.out == (cli.workspace / "page.html").read_text(encoding="utf-8")
    assert (await cli.run("view", "s7", "-o", "/dev/null")).code == 0
    masked = await cli.run("view", "s7", "-o", "page.html", "--redact")
    assert "0 texts masked" in masked.err
    refused(await cli.run("view", "s7", "-o", "/proc/none/x.html"), "cannot write", "-o", code=2)


@pytest.mark.holds("VW1")
async def test_open_asks_the_persons_browser(cli: CommandLine) -> None:
    await stored(cli)
    asked = cli.home / "asked"
    program = cli.home / "browser"
    program.write_text(f'#!/bin/sh\necho "$1" > {asked}\n', encoding="utf-8")
    program.chmod(0o755)
    ran = await cli.having(BROWSER=f"{program} %s").run("view", "s7", "--open")
    assert ran.code == 0
    assert asked.read_text(encoding="utf-8").strip() == f"file://{ran.out.strip()}"


@pytest.mark.holds("VW2")
async def test_what_cannot_be_shown_is_one_sentence(cli: CommandLine) -> None:
    await stored(cli)
    refused(await cli.run("view", "nope"), "no session 'nope' is stored", "s7f3", code=2)
    refused(await cli.run("view"), "no session was run in", "s7f3", code=2)
    both = await cli.run("view", "s7", "--follow", "-o", "x.html")
    refused(both, "--follow serves the page", "leave out --output", code=2)
    nothing = await cli.run("sessions", "show", "s7", "--seq", "900")
    refused(nothing, "no such event", "the last one is", code=2)
    refused(
        await cli.run("sessions", "show", "s7", "--saw", "--step", "9.1"), "step 9.1", "3.1", code=2
    )
    refused(await cli.run("sessions", "show", "s7", "--grep", "("), "is no pattern", code=2)
    refused(await cli.run("sessions", "show", "s7", "--step", "x"), "write TURN.STEP", code=2)


@pytest.mark.holds("VW2")
async def test_a_damaged_session_is_shown_as_far_as_it_can_be_read(cli: CommandLine) -> None:
    path = await stored(cli)
    damage(path)
    before = path.read_bytes()
    ran = await cli.run("view", "s7", "-o", "-")
    assert ran.code == 0
    assert "warning: session s7f3 is damaged" in ran.err
    assert "events of seq" in ran.err
    assert "The rounding test fails" in ran.out
    shown = await cli.run("sessions", "show", "s7")
    assert shown.code == 0
    assert any(line.startswith("damaged: ") for line in shown.lines)
    assert shown.lines[-1].endswith("dsh sessions salvage s7f3")
    path.write_bytes(b"nonsense\n" + path.read_bytes().split(b"\n", 1)[1])
    headless = await cli.run("sessions", "show", "s7f3")
    assert (headless.code, "Traceback" in headless.err) == (0, False)
    assert "The rounding test fails" in headless.out
    path.write_bytes(before)


@pytest.mark.holds("CL8")
async def test_parts_of_a_session_can_be_asked_for(cli: CommandLine) -> None:
    await stored(cli)

    async def shown(*options: str) -> list[str]:
        ran = await cli.run("sessions", "show", "s7", *options)
        assert ran.code == 0, ran
        return [" ".join(line.split()) for line in ran.lines]

    step = await shown("--step", "1.2")
    assert [line.split()[1] for line in step] == ["only", "The", "edit_file"]
    saw = await shown("--saw", "--step", "1.2")
    assert saw[0] == "request 1.2, 8 messages, compared with 1.1"
    assert sum(line.startswith("+ ") for line in saw) == 6
    assert (await shown("--step", "1.2", "--vs", "2.1"))[0].endswith("compared with 2.1")
    found = await shown("--grep", "INVOICE.py:112")
    assert len(found) == 1
    assert "grep src" in found[0]
    event = orjson.loads("\n".join((await cli.run("sessions", "show", "s7", "--seq", "3")).lines))
    assert event["type"] == "user/message"
    index = orjson.loads((await cli.run("sessions", "show", "s7", "--format", "json")).out)
    assert index["about"]["totals"]["turns"] == 3


async def asked(
    port: int, target: str, *, host: str | None = None, method: str = "GET"
) -> tuple[int, bytes]:
    """One request to the follower, as any program on this machine could send it."""
    connection = h11.Connection(h11.CLIENT)
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    async with stream:
        name = f"127.0.0.1:{port}" if host is None else host
        request = h11.Request(
            method=method, target=target, headers=[("host", name), ("connection", "close")]
        )
        data = connection.send(request)
        assert data is not None
        await stream.send_all(data + (connection.send(h11.EndOfMessage()) or b""))
        body = bytearray()
        status = 0
        with trio.fail_after(30):
            while True:
                event = connection.next_event()
                if event is h11.NEED_DATA:
                    connection.receive_data(await stream.receive_some(65536))
                elif isinstance(event, h11.Response):
                    status = event.status_code
                elif isinstance(event, h11.Data):
                    body += event.data
                else:
                    return status, bytes(body)


async def following(follower: Running) -> tuple[int, str]:
    """The port and the path that a follower says."""
    await follower.until("/\n")
    _, _, place, path, _ = follower.said.strip().split("/")
    return int(place.partition(":")[2]), f"/{path}/"


@pytest.mark.holds("VW3")
async def test_following_answers_this_machine_and_who_knows_the_path_alone(
    cli: CommandLine,
) -> None:
    await stored(cli)
    async with cli.running("view", "s7", "--follow") as follower:
        port, path = await following(follower)
        status, page = await asked(port, path)
        assert (status, page[:9]) == (200, b"<!doctype")
        assert b"connect-src 'self'" in page
        assert (await asked(port, path + "file"))[1].startswith(b"<!doctype")
        assert (await asked(port, path, method="HEAD")) == (200, b"")
        assert (await asked(port, path, host="evil.example"))[0] == 421
        assert (await asked(port, path, method="POST"))[0] == 405
        for wrong in ("*", "//[", "/", "/x/", path + "../", path + "etc/passwd", path[:-2] + "/"):
            assert (await asked(port, wrong))[0] == 404, wrong
        status, change = await asked(port, path + "changes?revision=abc&place=-1")
        assert (status, "bodies" in orjson.loads(change)) == (200, True)
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        await stream.send_all(b"\x00\xff nonsense\r\n\r\n")
        await stream.aclose()
        assert (await asked(port, path))[0] == 200
        follower.interrupt()
        ended = await follower.ended()
    assert (ended.code, "Traceback" in ended.err) == (0, False), ended
    assert "Ctrl-C ends it, the session goes on" in ended.err


@pytest.mark.holds("VW3")
async def test_following_hears_a_run_and_ends_at_ctrl_c_while_somebody_waits(
    cli: CommandLine,
) -> None:
    async with open_model_server([ScriptEntry(text="one"), ScriptEntry(text="two")]) as server:
        here = cli.talking_to(server)
        assert (await here.run("run", "--session", "s1", "first")).code == 0
        async with here.running("view", "s1", "--follow") as follower:
            port, path = await following(follower)
            everything = orjson.loads((await asked(port, path + "changes"))[1])
            revision, place = everything["index"]["revision"], everything["index"]["about"]["place"]
            news: list[dict[str, object]] = []

            async def wait() -> None:
                answer = await asked(port, f"{path}changes?revision={revision}&place={place}")
                news.append(cast("dict[str, object]", orjson.loads(answer[1])))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait)
                ran = await here.run("run", "--resume", "s1", "second")
            assert (ran.code, ran.out) == (0, "two\n")
            assert len(news) == 1
            assert cast("dict[str, object]", news[0]["index"])["revision"] > revision
            ended = await _interrupted_while_waiting(follower, port, path)
    assert (ended.code, "Traceback" in ended.err) == (0, False), ended


async def _interrupted_while_waiting(follower: Running, port: int, path: str) -> Ran:
    async with await trio.open_tcp_stream("127.0.0.1", port) as waiting:
        target = f"{path}changes?revision=999999&place=0"
        await waiting.send_all(f"GET {target} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n\r\n".encode())
        follower.interrupt()
        return await follower.ended()
