"""The table: dsh beside bare httpx and bare h11, in the same run, on the same local server.

What comes in: `--small` for a smoke run, `--medium`, `--json` for
machines. What goes out: one line a row with medians of CPU seconds and ratios. What each row means:
benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.codec import codec_rows
from benchmarks.dispatch import dispatch_rows
from benchmarks.layers import layer_rows
from benchmarks.rows import FULL, MEDIUM, SMALL, Sizes, process_rows
from benchmarks.running import command_cpu

if TYPE_CHECKING:
    from collections.abc import Iterator


def machine() -> dict[str, object]:
    """What the figures were taken on."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    return {
        "row": "machine",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "cpu": model,
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        **{name: version(name) for name in ("trio", "httpx", "httpcore", "h11", "orjson")},
        "load": round(os.getloadavg()[0], 2),
    }


def table(sizes: Sizes) -> Iterator[dict[str, object]]:
    """Every row, one after the other."""
    yield from process_rows(sizes)
    yield from layer_rows(requests=100 if sizes is SMALL else 1000, repeats=sizes.repeats)
    yield from dispatch_rows(repeats=sizes.repeats, times=200 if sizes is SMALL else 5000)
    yield from codec_rows(rounds=3 * sizes.repeats, budget=200 if sizes is SMALL else 4000)
    checked = [command_cpu(sys.executable, "-m", "codegen", "--check")]
    yield {"row": "codegen --check", "unit": "s CPU", "product": round(checked[0], 2)}


def main() -> None:
    """Read the options, run the rows, print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="dsh beside bare loops"
    )
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--small", action="store_true", help="a smoke run: small sizes, one repeat")
    size.add_argument("--medium", action="store_true", help="three repeats of the short rows")
    parser.add_argument("--json", action="store_true", help="one JSON object a row")
    options = parser.parse_args()
    sizes = SMALL if options.small else MEDIUM if options.medium else FULL
    print(told(machine(), as_json=options.json), flush=True)
    for line in table(sizes):
        print(told(line, as_json=options.json), flush=True)


def told(line: dict[str, object], *, as_json: bool) -> str:
    """One row as a line of text."""
    if as_json:
        return json.dumps(line)
    cells = "  ".join(f"{key} {value}" for key, value in line.items() if key != "row")
    return f"{line['row']!s:<40}{cells}"


if __name__ == "__main__":
    main()
