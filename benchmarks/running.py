"""Measured processes: the server's and the loops', each in a process of its own.

What comes in: what to run and how much of it. What goes out: what each process told of itself, and
what the server counted. Nothing here computes a figure of the table.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast, final

from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["LOOPS", "ROOT", "ServerProcess", "Told", "command_cpu", "measured", "serving"]

#: The loops of a row; the first is the one that is compared with the others.
LOOPS: Final = ("product", "bare_httpx", "bare_h11")
ROOT: Final = Path(__file__).resolve().parent.parent


@frozen(kw_only=True)
class Told:
    """What one measured process told: CPU seconds since its start, except where said."""

    imported: float
    opened: float
    answered: float
    marks: list[float]
    cpu: float
    chunks: int
    peakKib: int  # noqa: N815 - the meter's own key
    counts: list[dict[str, int]]
    more: dict[str, int]


@final
class ServerProcess:
    """A running server of `benchmarks.server`. Made by `serving`, which ends it."""

    def __init__(self, port: int) -> None:
        self.port: Final = port
        self.url: Final = f"http://127.0.0.1:{port}/v1"

    def stats(self) -> dict[str, int]:
        """Connections, requests and body bytes so far; this question is not among them."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", "/stats")
            return cast("dict[str, int]", json.loads(connection.getresponse().read()))
        finally:
            connection.close()


def _environment() -> dict[str, str]:
    """The machine's, with bytecode written: a start without it measures the compiler."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    above = kept.get("PYTHONPATH", "")
    return {**kept, "PYTHONPATH": f"{ROOT}{os.pathsep}{above}" if above else str(ROOT)}


@contextmanager
def serving(*, steps: int, calls: int = 1, chunks: int = 20) -> Iterator[ServerProcess]:
    """A server that asks for `steps` tool steps of `calls` calls, then says `chunks` words."""
    command = [sys.executable, "-m", "benchmarks.server"]
    command += ["--steps", str(steps), "--calls", str(calls), "--chunks", str(chunks)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=_environment())
    try:
        if process.stdout is None:
            raise SystemExit("the server has no stdout")
        yield ServerProcess(int(process.stdout.readline()))
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def measured(loop: str, url: str, *options: str) -> Told:
    """Run one loop in a process of its own. Raises CalledProcessError when it fails."""
    command = [sys.executable, "-m", f"benchmarks.{loop}", url, *options]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, check=True, env=_environment()
    )
    return Told(**json.loads(done.stdout.splitlines()[-1]))


def command_cpu(*command: str) -> float:
    """CPU seconds (user and system) of one command and its children. Raises when it fails."""
    watch = "import resource, subprocess, sys; "
    watch += "subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL); "
    watch += "used = resource.getrusage(resource.RUSAGE_CHILDREN); "
    watch += "print(used.ru_utime + used.ru_stime)"
    done = subprocess.run(
        [sys.executable, "-c", watch, *command],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env=_environment(),
        cwd=ROOT,
    )
    return float(done.stdout)
