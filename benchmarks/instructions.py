"""Machine instructions of one scripted step, counted by callgrind: they hardly know of load.

What comes in: two conversation lengths, `--after` steps and `--steps` more. What goes out: the
instructions of each whole process, and of one step: their difference divided by the steps between.
No network is in it; but a full collection may fall into the difference or not, and so may what a
timer sets off, so the steps should be many. `valgrind` must be installed; a run takes minutes.

    python -m benchmarks.instructions [--steps 150] [--after 10]
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from benchmarks.running import ROOT, environment

__all__ = ["instructions"]

#: Steps of the shorter conversation, unless told otherwise: enough that every cache is warm.
WARM: Final = 10


def instructions(steps: int) -> int:
    """Instructions of a process that runs so many scripted steps. Raises when valgrind fails."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "callgrind.out"
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}"]
        command += [sys.executable, "-m", "benchmarks.product", f"scripted:{steps}"]
        env = {**environment(), "PYTHONHASHSEED": "0"}
        subprocess.run(command, check=True, capture_output=True, env=env, cwd=ROOT)
        found = re.search(r"^(?:totals|summary): (\d+)", out.read_text("utf-8"), re.MULTILINE)
    if found is None:
        raise SystemExit("callgrind told no total")
    return int(found[1])


def main() -> None:
    """Count, and print one JSON object."""
    parser = argparse.ArgumentParser(description="instructions of one scripted step")
    parser.add_argument("--steps", type=int, default=150, help="steps between the two runs")
    parser.add_argument("--after", type=int, default=WARM, help="steps of the shorter run")
    options = parser.parse_args()
    steps, after = options.steps, options.after
    short, long = instructions(after), instructions(after + steps)
    told = {"short": short, "long": long, "aStep": round((long - short) / steps)}
    print(json.dumps(told))


if __name__ == "__main__":
    main()
