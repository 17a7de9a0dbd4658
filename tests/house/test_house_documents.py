"""The documents say what the code does: contracts, decisions, floors, sessions, the error tree."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

from dsh import errors

ROOT = Path(__file__).parents[2]
RULE = re.compile(r"^\*\*([A-Z]+\d+[a-z]?)\.\*\*", re.MULTILINE)


def held() -> dict[str, list[Path]]:
    """Every id named by a `holds(…)` mark, with the files that name it."""
    found: dict[str, list[Path]] = {}
    for top in ("tests", "plugins"):
        for path in sorted((ROOT / top).rglob("test_*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if not isinstance(node, ast.Call):
                    continue
                if getattr(node.func, "attr", getattr(node.func, "id", "")) != "holds":
                    continue
                for word in ast.walk(node):
                    if isinstance(word, ast.Constant) and isinstance(word.value, str):
                        found.setdefault(word.value, []).append(path)
    return found


def contract() -> dict[str, Path]:
    """Every rule id of docs/contract, with its file."""
    return {
        rule: path
        for path in sorted((ROOT / "docs/contract").glob("*.md"))
        for rule in RULE.findall(path.read_text(encoding="utf-8"))
    }


def test_every_rule_of_the_contract_is_held_by_a_test() -> None:
    missing = sorted(set(contract()) - set(held()))
    assert not missing, f"no test holds {missing}; write it, or take the line out of docs/contract"


def test_every_rule_a_test_holds_is_in_the_contract() -> None:
    rules = {name for name in held() if re.fullmatch(r"[A-M]\d+[a-z]?", name)}
    missing = sorted(rules - set(contract()))
    assert not missing, f"held by tests, not in docs/contract: {missing}; add the line"


def test_no_rule_is_stated_twice() -> None:
    seen: dict[str, Path] = {}
    for path in sorted((ROOT / "docs/contract").glob("*.md")):
        for rule in RULE.findall(path.read_text(encoding="utf-8")):
            assert rule not in seen, f"{rule} stands in {seen[rule].name} and {path.name}"
            seen[rule] = path


SCENARIO = r"(?:[A-Z]{2}\d{2}|NEW-\w+)"
WAIVER = re.compile(rf"^- ({SCENARIO}(?:, {SCENARIO})*): (.+)$", re.MULTILINE)


def scenarios() -> list[str]:
    """Every scenario that docs/contract lists."""
    text = (ROOT / "docs/contract/scenarios.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([A-Z]{2}|NEW-)` \| .+ \| ([\w ]+) \|$", text, re.MULTILINE)
    return [f"{group}{number}" for group, numbers in rows for number in numbers.split()]


def waivers() -> dict[str, str]:
    """The reason of each scenario that cannot be tried."""
    text = (ROOT / "docs/contract/waivers.md").read_text(encoding="utf-8")
    unread = len(re.findall(r"^- ", text, re.MULTILINE)) - len(WAIVER.findall(text))
    assert not unread, f"{unread} lines of docs/contract/waivers.md are not `- ID, ID: reason`"
    return {name: reason for names, reason in WAIVER.findall(text) for name in names.split(", ")}


def test_every_scenario_that_applies_is_held_by_a_test() -> None:
    listed, tried, waived = scenarios(), held().keys(), waivers().keys()
    assert len(listed) == len(set(listed)) == 834
    due = set(listed) - waived
    print(  # noqa: T201 - figures for `pytest -s`
        f"\n{len(due & tried)} of {len(due)} scenarios that apply are held "
        f"({len(due & tried) / len(due):.1%}); {len(waived)} do not apply"
    )
    missing = sorted(due - tried)
    assert not missing, f"{missing}: write a test, or say in docs/contract/waivers.md why not"


def test_a_waiver_is_of_a_scenario_that_nobody_holds_and_says_why() -> None:
    unknown = sorted(waivers().keys() - set(scenarios()))
    assert not unknown, f"waived, and not in docs/contract/scenarios.md: {unknown}"
    tried = sorted(waivers().keys() & held().keys())
    assert not tried, f"{tried} are held by a test; take them out of docs/contract/waivers.md"
    curt = [name for name, reason in waivers().items() if len(reason.split()) < 6]
    assert not curt, f"{curt}: say in a sentence why there is nothing to try"


def decisions() -> list[Path]:
    """The decision records, in order."""
    return sorted((ROOT / "docs/decisions").glob("*.md"))


def test_decisions_are_numbered_short_and_held() -> None:
    for number, path in enumerate(decisions(), start=1):
        text = path.read_text(encoding="utf-8")
        assert path.name.startswith(f"{number:04d}-"), (
            f"{path.name}: the next number is {number:04d}"
        )
        assert text.count("\n") <= 60, f"{path.name}: longer than a page; cut it"
        match = re.search(r"\*\*Held by:\*\*(.+)", text, re.DOTALL)
        assert match, f"{path.name}: no **Held by:** line; name the test or contract"
        for name in re.findall(r"`((?:tests|plugins|docs|benchmarks|pyproject)[^`]*)`", match[1]):
            file = name.split("::")[0]
            assert (ROOT / file).exists(), f"{path.name}: held by {file}, which is not there"


def test_architecture_draws_the_floors_of_pyproject() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = next(
        contract["layers"]
        for contract in settings["tool"]["importlinter"]["contracts"]
        if contract["type"] == "layers"
    )
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    block = re.search(r"```floors\n(.+?)```", text, re.DOTALL)
    assert block, "ARCHITECTURE.md: no ```floors block"
    drawn = [line.split("  ")[0].strip() for line in block[1].splitlines() if line.strip()]
    assert drawn == layers


def test_contributing_names_the_sessions_of_the_noxfile() -> None:
    noxfile = ast.parse((ROOT / "noxfile.py").read_text(encoding="utf-8"))
    sessions = {
        node.name
        for node in noxfile.body
        if isinstance(node, ast.FunctionDef) and node.decorator_list
    }
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^\| `([a-z]+)` \|", text, re.MULTILINE))
    assert named == sessions


def test_the_drawn_error_tree_is_the_tree() -> None:
    drawn: dict[str, str] = {}
    path: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        match = re.match(r"([│├└─ ]*)([A-Z]\w+)(?:\s{2,}|$)", line)
        if match is None or not hasattr(errors, match[2]):
            continue
        depth = len(match[1])
        while path and path[-1][0] >= depth:
            path.pop()
        drawn[match[2]] = path[-1][1] if path else "Exception"
        path.append((depth, match[2]))
    real = {
        name: value.__bases__[0].__name__
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, Exception)
    }
    assert drawn == real


@pytest.mark.parametrize("name", sorted(errors.__all__))
def test_errors_say_their_remedy(name: str) -> None:
    doc = getattr(errors, name).__doc__
    assert doc, f"{name}: no docstring; say cause and remedy"


def test_readme_has_the_two_commands() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "python3 -m pip install nox && python3 -m nox -s demo" in text
    assert "python3 -m pip install nox && python3 -m nox\n" in text
