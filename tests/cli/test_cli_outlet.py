"""Outputs that never stop the loop: slow readers, gone readers, full devices."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from dsh.cli.screen.outlet import Outlet, OutletClosed

if TYPE_CHECKING:
    from collections.abc import Iterator

BIG = b"x" * 1_000_000


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    yield reader, writer
    for fd in (reader, writer):
        try:
            os.close(fd)
        except OSError:
            continue


@pytest.mark.holds("CL2")
async def test_a_slow_reader_costs_memory_and_never_time(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    outlet = Outlet(writer, "standard output")
    outlet.data(BIG)
    outlet.text("end")
    got = bytearray()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outlet.flushed)
        await wait_all_tasks_blocked()
        os.set_blocking(reader, False)
        while not got.endswith(b"end"):
            await trio.lowlevel.wait_readable(reader)
            got += os.read(reader, 65536)
    assert bytes(got) == BIG + b"end"


@pytest.mark.holds("CL2", "case-085")
async def test_a_reader_that_is_gone_is_said_once_per_write(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    outlet = Outlet(writer, "standard output")
    os.close(reader)
    for _ in range(2):
        with pytest.raises(OutletClosed, match="standard output: Broken pipe") as caught:
            outlet.text("hello")
        assert caught.value.broken
    assert outlet.failed
    assert not outlet.attempt("more")
    await outlet.flushed()


@pytest.mark.holds("CL2", "case-085")
async def test_a_reader_that_goes_while_text_waits_ends_the_waiting(
    pipe: tuple[int, int],
) -> None:
    reader, writer = pipe
    outlet = Outlet(writer, "standard output")
    outlet.data(BIG)
    os.close(reader)
    with pytest.raises(OutletClosed):
        await outlet.flushed()


@pytest.mark.holds("CL2", "case-085")
def test_a_full_device_is_not_a_broken_pipe() -> None:
    fd = os.open("/dev/full", os.O_WRONLY)
    try:
        with pytest.raises(OutletClosed, match="No space left") as caught:
            Outlet(fd, "standard output").text("hello")
        assert not caught.value.broken
    finally:
        os.close(fd)


@pytest.mark.holds("CL3", "case-085")
def test_what_an_encoding_lacks_is_written_as_an_escape(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    outlet = Outlet(writer, "standard output", "ascii")
    outlet.text("中🙂ok")
    assert os.read(reader, 100) == b"\\u4e2d\\U0001f642ok"
    assert outlet.encodable("·", "-") == "-"
    assert Outlet(writer, "standard output").encodable("·", "-") == "·"


def test_finishing_outside_of_trio_is_bounded_and_never_raises(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    outlet = Outlet(writer, "standard output")
    outlet.data(BIG)
    outlet.finish(deadline_ms=1)
    os.close(reader)
    outlet.finish(deadline_ms=1)
    assert outlet.failed
