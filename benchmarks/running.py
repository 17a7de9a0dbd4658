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
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast, final

from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = [
    "LOOPS",
    "ROOT",
    "SEAM_LOOPS",
    "ServerProcess",
    "Told",
    "command_cpu",
    "environment",
    "measured",
    "serving",
]

#: The loops of a row; the first is the one that is compared with the others.
LOOPS: Final = ("product", "bare_httpx", "bare_h11")
#: The model seam with an adapter, and nothing of the house above it.
SEAM_LOOPS: Final = ("seam", "bare_httpx", "bare_h11")
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


def environment() -> dict[str, str]:
    """The process's own, with bytecode written: a start without it measures the compiler."""
    given = os.environ  # noqa: TID251 - for the children of a benchmark, not for dsh
    kept = {name: value for name, value in given.items() if name != "PYTHONDONTWRITEBYTECODE"}
    above = kept.get("PYTHONPATH", "")
    return {**kept, "PYTHONPATH": f"{ROOT}{os.pathsep}{above}" if above else str(ROOT)}


@contextmanager
def serving(
    *, steps: int, calls: int = 1, chunks: int = 20, prefix: bool = False
) -> Generator[ServerProcess, None, None]:
    """A server that asks for `steps` tool steps of `calls` calls, then says `chunks` words.

    With `prefix` it compares each request's body with the one before.
    """
    command = [sys.executable, "-m", "benchmarks.server"]
    command += ["--steps", str(steps), "--calls", str(calls), "--chunks", str(chunks)]
    command += ["--prefix"] if prefix else []
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment())
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
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment())
    return Told(**json.loads(done.stdout.splitlines()[-1]))


def command_cpu(*command: str) -> float:
    """CPU seconds (user and system) of one command and its children, whatever its exit code.

    The command has a state directory of its own, and says nothing.
    """
    watch = "import resource, subprocess, sys; "
    watch += "quiet = subprocess.DEVNULL; "
    watch += "subprocess.run(sys.argv[1:], check=False, stdout=quiet, stderr=quiet); "
    watch += "used = resource.getrusage(resource.RUSAGE_CHILDREN); "
    watch += "print(used.ru_utime + used.ru_stime)"
    with tempfile.TemporaryDirectory() as home:
        done = subprocess.run(
            [sys.executable, "-c", watch, *command],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            env={**environment(), "DSH_HOME": home, "TMPDIR": home},
            cwd=ROOT,
        )
    return float(done.stdout)
