"""The house rules that a reader can see: sizes, names, docstrings, pure rooms, front doors.

Each complaint is `path:line: what; do this instead`, all of them at once.
"""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILE_MAX, FUNCTION_MAX = 400, 60
KEPT_MAX = 300_000
FORBIDDEN_NAMES = {"utils", "helpers", "common", "base", "manager", "misc", "util"}
PURE = (
    "src/dsh/hooks",
    "src/dsh/wire",
    "src/dsh/session/surface.py",
    "src/dsh/session/messages.py",
    "src/dsh/session/repair.py",
    "src/dsh/llm/assemble.py",
    "src/dsh/loop/machine.py",
    "src/dsh/loop/request.py",
)


@cache
def sources() -> dict[Path, ast.Module]:
    """Every hand-written Python file of the repository, parsed."""
    found: dict[Path, ast.Module] = {}
    for top in ("src", "codegen", "plugins", "tests", "benchmarks", "docs"):
        for path in sorted((ROOT / top).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            if not text.startswith("# @generated"):
                found[path.relative_to(ROOT)] = ast.parse(text)
    found[Path("noxfile.py")] = ast.parse((ROOT / "noxfile.py").read_text(encoding="utf-8"))
    return found


def report(complaints: list[str]) -> None:
    """Fail with every complaint, or pass."""
    if complaints:
        pytest.fail("\n" + "\n".join(complaints), pytrace=False)


def test_files_and_functions_are_short() -> None:
    complaints: list[str] = []
    for path, tree in sources().items():
        lines = (ROOT / path).read_text(encoding="utf-8").count("\n")
        if lines > FILE_MAX:
            complaints.append(f"{path}:1: {lines} lines; split it below {FILE_MAX} by subject")
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > FUNCTION_MAX:
                    complaints.append(
                        f"{path}:{node.lineno}: {node.name} has {length} lines; "
                        f"split it below {FUNCTION_MAX} at a thought"
                    )
    report(complaints)


def test_everything_kept_is_text_of_a_size_that_can_be_reviewed() -> None:
    kept = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if kept.returncode != 0:
        pytest.skip("not a git checkout: nothing says which files are kept")
    complaints: list[str] = []
    for name in filter(None, kept.stdout.decode().split("\0")):
        data = (ROOT / name).read_bytes() if (ROOT / name).is_file() else b""
        if b"\0" in data:
            complaints.append(f"{name}:1: binary; keep what it is made from")
        if len(data) > KEPT_MAX:
            complaints.append(f"{name}:1: {len(data)} bytes; keep what makes it")
    report(complaints)


def test_modules_say_what_they_own() -> None:
    complaints = [
        f"{path}:1: no module docstring; say what it owns, what goes in and out, what it never does"
        for path, tree in sources().items()
        if "tests" not in path.parts and not ast.get_docstring(tree)
    ]
    report(complaints)


def test_names_say_something() -> None:
    complaints = [
        f"{path}:1: named {path.stem!r}; name it after the noun it owns"
        for path in sources()
        if path.stem in FORBIDDEN_NAMES or FORBIDDEN_NAMES & set(path.parts)
    ]
    report(complaints)


def test_pure_rooms_never_wait() -> None:
    complaints: list[str] = []
    for path, tree in sources().items():
        if not path.as_posix().startswith(PURE):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Await | ast.AsyncFor | ast.AsyncWith):
                complaints.append(
                    f"{path}:{node.lineno}: waits; a pure room never does, move it up"
                )
    report(complaints)


def test_pure_rooms_exist() -> None:
    missing = [
        f"{name}: listed as pure, not there; drop the row"
        for name in PURE
        if not (ROOT / name).exists()
    ]
    report(missing)


def rooms() -> set[str]:
    """The rooms of src/dsh that are packages."""
    return {path.parent.name for path in (ROOT / "src/dsh").glob("*/__init__.py")}


def test_rooms_are_entered_by_their_front_door() -> None:
    open_rooms = {"hooks", "catalog", "seams", "testing"}  # one module per subject, each a door
    complaints: list[str] = []
    for path, tree in sources().items():
        if path.parts[0] not in {"src", "plugins", "benchmarks"} or "tests" in path.parts:
            continue
        home = path.parts[2] if path.parts[0] == "src" and len(path.parts) > 3 else ""
        for node in ast.walk(tree):
            if not isinstance(node, ast.ImportFrom) or node.module is None:
                continue
            parts = node.module.split(".")
            if parts[0] != "dsh" or len(parts) < 3 or parts[1] == home or parts[1] in open_rooms:
                continue
            complaints.append(
                f"{path}:{node.lineno}: imports {node.module}; use `from dsh.{parts[1]} import …`"
            )
    report(complaints)


def test_front_doors_are_sorted_and_complete() -> None:
    complaints: list[str] = []
    for path, tree in sources().items():
        if path.name != "__init__.py" or path.parts[:2] != ("src", "dsh") or len(path.parts) < 4:
            continue
        names = [
            node.value
            for node in tree.body
            if isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and node.targets[0].id == "__all__"
        ]
        imported = {
            alias.asname or alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dsh.")
            for alias in node.names
        }
        if imported and not names:
            complaints.append(f"{path}:1: no __all__; list the room's names, sorted")
        for value in names:
            listed = list(ast.literal_eval(value))
            if missing := sorted(imported - set(listed) - {"Any"}):
                complaints.append(f"{path}:1: {missing} imported but not in __all__; add or drop")
    report(complaints)


def test_the_plugin_namespace_has_no_init() -> None:
    stray = [
        f"{path.relative_to(ROOT)}:1: dsh_plugins is a namespace package; remove this file"
        for path in (ROOT / "plugins").glob("*/dsh_plugins/__init__.py")
    ]
    report(stray)


def test_every_plugin_is_complete() -> None:
    complaints: list[str] = []
    for folder in sorted(path for path in (ROOT / "plugins").iterdir() if path.is_dir()):
        for name in ("plugin.toml", "README.md", "dsh_plugins", "tests"):
            if not (folder / name).exists():
                complaints.append(f"plugins/{folder.name}: no {name}; a plugin has one")
        if not (folder / "plugin.toml").exists():
            continue
        told = tomllib.loads((folder / "plugin.toml").read_text(encoding="utf-8"))
        if told["name"] != folder.name:
            complaints.append(f"plugins/{folder.name}/plugin.toml: name is {told['name']!r}")
        package = folder / "dsh_plugins" / told["package"]
        if not (package / "py.typed").exists():
            complaints.append(f"{package.relative_to(ROOT)}: no py.typed; add an empty one")
    report(complaints)


def test_test_modules_have_one_name_each() -> None:
    seen: dict[str, Path] = {}
    complaints: list[str] = []
    for path in sources():
        if "tests" not in path.parts:
            continue
        if path.name == "__init__.py":
            complaints.append(f"{path}:1: tests have no __init__.py; remove it")
        elif path.name != "conftest.py":
            if path.name in seen:
                complaints.append(f"{path}:1: same name as {seen[path.name]}; name its subject")
            seen[path.name] = path
    report(complaints)


def test_event_names_live_in_the_catalog() -> None:
    declared: set[str] = set()
    for path in sorted((ROOT / "schema/events").glob("*.yaml")):
        domain, _, below = path.read_text(encoding="utf-8").partition("\nevents:\n")
        words = re.findall(r"^  ([a-z][a-z0-9/-]*):$", below, re.MULTILINE)
        declared |= {f"{domain.partition('domain: ')[2]}/{word}" for word in words}
    assert len(declared) > 50, "the names of schema/events/*.yaml could not be read"
    complaints: list[str] = []
    for path, tree in sources().items():
        if path.parts[0] not in {"src", "plugins"} or "tests" in path.parts:
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and node.value in declared:
                complaints.append(
                    f"{path}:{node.lineno}: event name {node.value!r} as a literal; "
                    "use the token's .name"
                )
    report(complaints)
