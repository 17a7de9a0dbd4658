"""`python -m codegen [--check]`: keeps generated files, and the lock, equal to the schema.

What comes in: the repository around the current directory. What goes out: faults of the schema;
what must still be said about its changes; the difference between what is there and what should be,
and the files themselves unless `--check`. `diff` only tells what changed, `generate` serves other
distributions. Exit code 0: nothing to do. 1: files were written, or `--check` found some to write,
or a change is not accounted for. 2: the schema has faults.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .compare import diff_command
from .faults import SchemaError
from .foreign import generate_command
from .generate import changes, load, wanted_files
from .output import tell_demands, write

__all__ = ["main"]


def repository(start: Path) -> Path:
    """The nearest folder upwards that has a schema folder."""
    for folder in (start, *start.parents):
        if (folder / "schema" / "domains.yaml").exists():
            return folder
    message = f"no schema/domains.yaml in {start} or above; run this inside the repository"
    raise SystemExit(f"codegen: {message}")


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    try:
        if given[:1] == ["generate"]:
            return generate_command(given[1:])
        if given[:1] == ["diff"]:
            return diff_command(given[1:], repository)
        return _main(given)
    except SchemaError as error:
        print(error, file=sys.stderr)
        count = len(error.faults)
        print(f"codegen: {count} fault{'s' if count != 1 else ''} in the schema", file=sys.stderr)
        return 2


def _main(given: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m codegen",
        description=(__doc__ or "").split("\n", 1)[0],
        epilog="also: python -m codegen diff --help, python -m codegen generate --help",
    )
    parser.add_argument("--check", action="store_true", help="write nothing, only compare")
    parser.add_argument("--root", type=Path, help="the repository (default: around here)")
    options = parser.parse_args(given)
    root: Path = options.root or repository(Path.cwd())
    loaded = load(root)
    if loaded.demands:
        tell_demands(loaded.reviews)
        return 1
    return write(root, changes(root, wanted_files(loaded, root)), check=options.check)


if __name__ == "__main__":
    sys.exit(main())
