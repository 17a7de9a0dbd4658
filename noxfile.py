"""The sessions of this repository. `nox` alone runs those that must be green; CI runs the same.

Each session installs what it needs into an environment of its own; nothing is taken from the
machine but Python and the package index.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import tomllib
from pathlib import Path

import nox

nox.needs_version = ">=2024.4.15"
nox.options.sessions = ["generate", "lint", "types", "tests", "stories", "browser", "lowest"]
nox.options.error_on_missing_interpreters = True

ROOT = Path(__file__).parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
CODE = ("src", "codegen", "plugins", "tests", "benchmarks", "noxfile.py")
#: Tests that start real processes, kill them, or measure; they have a session of their own.
STORIES = ("tests/stories", "tests/faults", "tests/bench")
#: Tests in a real browser.
BROWSER = "tests/browser"
#: Two workers: as many as the smallest machine has cores. One file stays in one worker.
WORKERS = ("-n", "2", "--dist", "loadfile")
#: What the `lowest` session runs inside plain `nox`; `nox -s lowest -- tests plugins` runs all.
LOWEST = ("tests/wire", "tests/session", "tests/loop", "tests/cli", "plugins")


def group(name: str) -> list[str]:
    """The requirements of one dependency group of pyproject.toml."""
    return list(PYPROJECT["dependency-groups"][name])


def lowest_bounds(requirements: list[str]) -> list[str]:
    """Every `name>=version` as `name==version`."""
    return [re.sub(r">=", "==", requirement, count=1) for requirement in requirements]


def with_bwrap(session: nox.Session) -> None:
    """The tests of the sandbox want bubblewrap. Where it cannot be had they say so and skip."""
    if shutil.which("bwrap") is None and shutil.which("apt-get") is not None and not os.geteuid():
        for words in (("update", "-qq"), ("install", "-qq", "-y", "bubblewrap")):
            session.run("apt-get", *words, external=True, silent=True, success_codes=range(256))


@nox.session
def generate(session: nox.Session) -> None:
    """Render schema/ into the generated files; red, with the diff, if that changed anything."""
    session.install("attrs", "pyyaml", "jinja2")
    session.run("python", "-m", "codegen", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Style, floors, and the freshness of the generated files."""
    session.install("-e", ".[codegen,chat]", *group("lint"))
    session.run("ruff", "check", *session.posargs, ".")
    session.run("ruff", "format", "--check", ".")
    session.run("lint-imports")
    session.run("python", "-m", "codegen", "--check")


@nox.session
def types(session: nox.Session) -> None:
    """Mypy strict and basedpyright strict on everything, generated code too."""
    session.install("-e", ".[codegen]", "nox", *group("test"), *group("types"))
    session.run("mypy")
    session.run("basedpyright")


@nox.session
def tests(session: nox.Session) -> None:
    """The ordinary tests; `nox -s tests -- tests/kernel -x` runs some."""
    session.install("-e", ".[codegen]", "hatchling", *group("test"), *group("types"))
    with_bwrap(session)
    others = [f"--ignore={folder}" for folder in (*STORIES, BROWSER)]
    session.run("pytest", "-q", *(session.posargs or (*WORKERS, *others)))


@nox.session
def stories(session: nox.Session) -> None:
    """The command as people run it, on real sockets, terminals and disks; faults, small."""
    wanted = ("hatchling", *group("test"), *group("types"), *group("servers"))
    session.install("-e", ".[codegen]", *wanted)
    session.run("pytest", "-q", *(session.posargs or (*WORKERS, *STORIES)))


@nox.session
def browser(session: nox.Session) -> None:
    """The page of `dsh view` in headless Chromium; installs Debian's, if it may and must."""
    names = ("chromium", "chromium-browser", "google-chrome")
    apt = shutil.which("apt-get")
    if not any(shutil.which(name) for name in names):
        if apt is None or os.geteuid() != 0:
            session.skip("no Chromium here; install it (Debian: apt-get install chromium)")
        quiet = {"DEBIAN_FRONTEND": "noninteractive"}
        session.run(apt, "update", "-qq", external=True, env=quiet)
        session.run(
            apt, "install", "-y", "-qq", "--no-install-recommends", "chromium",
            external=True, env=quiet,
        )  # fmt: skip
    session.install("-e", ".", *group("test"))
    session.run("pytest", "-q", *(session.posargs or (BROWSER,)))


@nox.session
def simulation(session: nox.Session) -> None:
    """Ten thousand seeded lives of an agent under faults; `-- 0:500` takes other seeds."""
    session.install("-e", ".[codegen]", *group("test"))
    seeds = session.posargs[0] if session.posargs else "0:10000"
    session.run("pytest", "-q", "tests/loop/test_loop_simulation.py", env={"DSH_SEEDS": seeds})


@nox.session
def cancel(session: nox.Session) -> None:
    """Interrupt every scene of the loop at each of its moments, in each way; prints violations."""
    session.install("-e", ".[codegen]", *group("test"))
    where = "tests/loop/test_loop_cancel_everywhere.py"
    session.run("pytest", "-q", "-s", *(session.posargs or [where]), env={"DSH_CANCELS": "all"})


@nox.session
def cycles(session: nox.Session) -> None:
    """Mount and unmount each of our plugins ten thousand times, and draw thousands of examples."""
    session.install("-e", ".[codegen]", *group("test"))
    env = {"DSH_CYCLES": "10000", "DSH_EXAMPLES": "5000"}
    session.run("pytest", "-q", "tests/boot/test_boot_cycles.py", "tests/kernel", env=env)


@nox.session
def lowest(session: nox.Session) -> None:
    """The lower bounds of pyproject.toml really work."""
    wanted = list(PYPROJECT["project"]["dependencies"])
    wanted += PYPROJECT["project"]["optional-dependencies"]["codegen"] + group("test")
    session.install("-e", ".[codegen]", *lowest_bounds(wanted))
    session.run("pytest", "-q", *(session.posargs or (*WORKERS, *LOWEST)))


@nox.session
def faults(session: nox.Session) -> None:
    """Kill real processes, cut and flip logs, talk to broken servers; prints what came of it."""
    session.install("-e", ".[codegen]", *group("test"))
    env = {"DSH_LONG_STEPS": "300", "DSH_CANCELS": "1000", "DSH_FAULTS": "all"}
    options = session.posargs or ("--kills", "720")
    session.run("pytest", "-q", "-s", "tests/faults", *options, env=env)


@nox.session
def demo(session: nox.Session) -> None:
    """The main job on a fresh machine: the built wheel, the scripted model, the real tools."""
    session.install(".")
    home = Path(tempfile.mkdtemp(prefix="dsh-demo-"))
    env = {"DSH_HOME": str(home)}
    session.run("dsh", "run", "--profile", "demo", *(session.posargs or ["Show me"]), env=env)
    session.run("dsh", "sessions", "verify", "--all", env=env)
    session.log(f"the session's log is below {home / 'sessions'}")


@nox.session
def bench(session: nox.Session) -> None:
    """The benchmarks at full size; `-- --small` for a quick look, `-- --json` for data."""
    session.install(".[codegen]", *group("types"))
    env = {"PYTHONDONTWRITEBYTECODE": ""}
    session.run("python", "-m", "benchmarks", *session.posargs, env=env)
    options = [option for option in session.posargs if option in {"--small", "--json"}]
    session.run("python", "-m", "benchmarks.session", *options, env=env)
    if "--small" not in options:
        session.run("python", "-m", "benchmarks.catalog_scale", *options, env=env)


@nox.session
def fmt(session: nox.Session) -> None:
    """Rewrite the formatting of hand-written code."""
    session.install(*group("lint"))
    session.run("ruff", "check", "--fix-only", ".")
    session.run("ruff", "format", ".")


@nox.session(venv_backend="none")
def clean(session: nox.Session) -> None:
    """Remove caches and builds."""
    for name in ("build", "dist", ".mypy_cache", ".ruff_cache", ".pytest_cache"):
        shutil.rmtree(ROOT / name, ignore_errors=True)
    session.log("clean")
