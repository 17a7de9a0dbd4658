"""`dsh plugin new NAME`: a typed plugin in a directory of its own, run before it is handed over.

What comes in: a name and a place. What goes out: the files, what was checked, and what to do next.
It refuses a name that is taken or none, and a directory that has anything in it; it overwrites
nothing.
"""

from __future__ import annotations

import keyword
import re
import subprocess
import sys
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from dsh.boot import process_environ
from dsh.cli.plugins.template import Names, files_of
from dsh.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from dsh.cli.grammar.chat import NewPluginOptions

__all__ = ["new_plugin"]

NAME: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
ROOMS: Final = ("agent-loop", "agents", "llm", "sessions", "system-prompt", "tools")
PATIENCE: Final = 120
#: What a check needs, as pip calls it.
NEEDS: Final = {"mypy": "mypy", "pytest": "pytest pytest-trio"}
TOLD: Final = {
    "pyproject.toml": "entry point, mypy preset",
    "plugin.py": "one hook: agent/pre-step, one tool, a configuration",
    "test_plugin.py": "in the real loop, scripted, no key",
    "dsh.yml": "a row for the demo profile",
}
MOUNTS: Final = """\
import trio
from dsh import open_harness
from {package}.plugin import {object}

async def main():
    async with open_harness("dsh.yml", profile="demo", plugins=[{object}]) as harness:
        assert not harness.problems, harness.problems

trio.run(main)
"""


def new_plugin(options: NewPluginOptions) -> int:
    """Make it and run it. Returns the exit code: 1 when what was made does not pass its checks."""
    try:
        names = _named(options.name)
        place = options.into / options.name
        _make(place, names)
    except UsageError as error:
        sys.stderr.write(f"dsh: {error}\n")
        return 2
    print(f"made {place}/")
    for path in files_of(names):
        told = TOLD.get(path.rpartition("/")[2])
        if told is not None:
            print(f"  {path:<42} {told}")
    if options.check and not _checked(place, names):
        return 1
    print(f"next:  cd {place} && pip install -e . && dsh chat --profile demo --config dsh.yml")
    return 0


def _named(name: str) -> Names:
    if not NAME.fullmatch(name):
        likely = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
        hint = f"; did you mean {likely!r}?" if NAME.fullmatch(likely) else "."
        raise UsageError(
            f"{name!r} is no plugin name{hint} Small letters, digits and single dashes, "
            "beginning with a letter"
        )
    names = Names(name)
    if keyword.iskeyword(names.object):
        raise UsageError(f"{name!r} is a word of Python; choose another name")
    for entry in entry_points(group="dsh.plugins"):
        if entry.name == name:
            owner = entry.dist.name if entry.dist is not None else "an installed distribution"
            raise UsageError(f"the name {name!r} is taken by {owner}; choose another one")
    if name in ROOMS:
        raise UsageError(f"the name {name!r} is one of dsh's own rows; choose another one")
    return names


def _make(place: Path, names: Names) -> None:
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise UsageError(f"{place} is there already and is not empty; nothing was made")
    try:
        for path, text in files_of(names).items():
            file = place / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {place}: {error.strerror or error}") from error


def _checked(place: Path, names: Names) -> bool:
    """Run what was made, as its author would. Says what was found; False: something is wrong."""
    mounts = MOUNTS.format(package=names.package, object=names.object)
    said: list[str] = []
    missing: list[str] = []
    fine = True
    if sys.stderr.isatty():
        sys.stderr.write("checking what was made: a moment\n")
    for what, module, command in (
        ("mypy clean", "mypy", ["-m", "mypy", "--no-error-summary"]),
        ("2 tests pass", "pytest", ["-m", "pytest", "-q", "-p", "no:cacheprovider"]),
        ("mounts in demo", "dsh", ["-c", mounts]),
    ):
        if find_spec(module) is None or (module == "pytest" and find_spec("pytest_trio") is None):
            missing.append(f"{what} (pip install {NEEDS[module]})")
            continue
        ran = _ran(place, command)
        if ran is not None:
            fine = False
            what = f"FAILED: {what}"  # noqa: PLW2901 - the same thing, told otherwise
            sys.stderr.write(ran)
        said.append(what)
    print("checked: " + " - ".join(said))
    if missing:
        print("not checked: " + ", ".join(missing))
    return fine


def _ran(place: Path, command: list[str]) -> str | None:
    """What a check printed if it failed; None if it passed."""
    variables = dict(process_environ().variables())
    path = [str((place / "src").resolve()), variables.get("PYTHONPATH", "")]
    variables["PYTHONPATH"] = ":".join(part for part in path if part)
    try:
        done = subprocess.run(
            [sys.executable, "-B", *command],
            cwd=place,
            env=variables,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"it did not end within {PATIENCE} s\n"
    return None if done.returncode == 0 else done.stdout + done.stderr
