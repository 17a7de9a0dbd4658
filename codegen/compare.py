"""`python -m codegen diff --against REV|FILE`: what the schema's changes mean.

What comes in: the schema as it is, and a lock of a git revision or in a file. What goes out: every
change under its rule with its levels by role, for people or as JSON. Exit code 0: everything is
compatible or accounted for. 1: something is not. Nothing is written.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from .evolve import changes_between, upcast_needed
from .evolve_rules import LEVELS
from .generate import load
from .lock import LockError, lock_of, read_lock
from .past import LOCK

if TYPE_CHECKING:
    from collections.abc import Callable

    from .evolve_rules import Found
    from .lock import Lock
    from .review import Review

__all__ = ["diff_command"]

#: The review of a folder, what changed against the other lock, and which versions go up.
Told: TypeAlias = "tuple[Review, tuple[Found, ...], dict[str, tuple[str, ...]]]"
_MEANS: Final = {
    "COMPATIBLE": "old logs, plugins and configuration go on",
    "REVIEW": "needs an entry in changes.yaml",
    "UPCASTER": "needs a version bump and a step for old records",
    "BREAKING": "refused, unless changes.yaml lists it with a reason",
}


def _lock_at(root: Path, against: str, folder: str) -> Lock | None:
    """The lock of a folder in a file or at a revision; None if there was none."""
    file = Path(against)
    if file.is_file():
        return read_lock(file.read_text(encoding="utf-8"), against)
    inside = Path(against) / folder / LOCK
    if inside.is_file():
        return read_lock(inside.read_text(encoding="utf-8"), str(inside))
    name = f"{folder}/{LOCK}"
    known = subprocess.run(
        ["git", "rev-parse", "--verify", "--quiet", f"{against}^{{commit}}"],
        cwd=root,
        capture_output=True,
        check=False,
    )
    if known.returncode:
        raise LockError(f"{against!r} is neither a file nor a git revision here; try HEAD, main")
    shown = subprocess.run(
        ["git", "show", f"{against}:./{name}"], cwd=root, capture_output=True, check=False
    )
    if shown.returncode:
        return None
    return read_lock(shown.stdout.decode("utf-8"), f"{against}:{name}")


def diff_command(given: list[str], repository: Callable[[Path], Path]) -> int:
    """Run `diff`; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m codegen diff", description=(__doc__ or "").split("\n", 1)[0]
    )
    parser.add_argument(
        "--against",
        metavar="REV|FILE",
        help="a git revision, a catalog.lock.json, or another checkout (default: the lock here)",
    )
    parser.add_argument("--json", action="store_true", help="one JSON document")
    parser.add_argument("--root", type=Path, help="the repository (default: around here)")
    options = parser.parse_args(given)
    root: Path = options.root or repository(Path.cwd())
    against: str = options.against or str(root)
    loaded = load(root)
    cores = (None, *(loaded.core for _ in loaded.extensions))
    catalogs = (loaded.core, *(catalog for _, catalog in loaded.extensions))
    told: list[Told] = []
    try:
        for catalog, core, review in zip(catalogs, cores, loaded.reviews, strict=True):
            old = _lock_at(root, against, review.folder)
            new = lock_of(catalog, core)
            if old is None or old["owner"] != new["owner"]:
                continue
            found = changes_between(old, new)
            told.append((review, found, upcast_needed(found, old, new)))
    except LockError as error:
        print(f"codegen: {error}", file=sys.stderr)
        return 2
    if options.json:
        print(_json(told))
    else:
        _tell(told, against)
    return 1 if loaded.demands else 0


def _tell(told: list[Told], against: str) -> None:
    """The report for people: worst first."""
    count = sum(len(found) for _, found, _ in told)
    if not count:
        print(f"no change against {against}")
        return
    for level in reversed(LEVELS):
        lines: list[str] = []
        for _, found, _ in told:
            lines += [line for each in found if each.level == level for line in _lines(each)]
        if lines:
            print(f"{level} ({_MEANS[level]})")
            print("\n".join(lines))
    for review, _, needed in told:
        for name in needed:
            print(f"version: {name} goes up by one")
        for demand in review.demands:
            print(f"open: {demand.text}")
        if review.proposed:
            print(f"\nadd to {review.folder}/changes.yaml, under changes:\n\n{review.proposed}")


def _lines(change: Found) -> list[str]:
    levels = ", ".join(f"{role} {level}" for role, level in change.levels.items())
    lines = [f"  {change.rule}  {change.where}: {change.what}", f"      {levels}"]
    if change.reached and (change.reached[0] not in change.where or len(change.reached) > 1):
        lines.append(f"      stored by {', '.join(change.reached)}")
    return lines


def _json(told: list[Told]) -> str:
    document = [
        {
            "folder": review.folder,
            "changes": [
                {
                    "rule": each.rule,
                    "where": each.where,
                    "what": each.what,
                    "level": each.level,
                    "roles": {str(role): str(each.levels[role]) for role in each.levels},
                    "storedBy": list(each.reached),
                }
                for each in found
            ],
            "versionBumps": {name: list(why) for name, why in needed.items()},
            "open": [demand.text for demand in review.demands],
        }
        for review, found, needed in told
    ]
    return json.dumps(document, ensure_ascii=False, indent=2)
