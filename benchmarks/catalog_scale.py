"""Larger catalogs: `python -m benchmarks.catalog_scale`.

What comes in: this repository's schema and sources. What goes out: CPU seconds to generate catalogs
of 100 and of 500 events, and of mypy (strict, with the repository's settings) over them and plugin
files that use every added event: cold, warm, after an edit of one plugin, after an edit of the
catalog. Beside them the size that this repository has today. Everything happens in a temporary
folder.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from codegen.generate import changes, load, wanted_files

ROOT = Path(__file__).parents[1]
PER_DOMAIN = 10

DURABLE = """\
  {word}/done:
    kind: durable
    since: "0.1"
    emitter: loop
    emit: core
    purpose: Thing {n} is done.
    payload:
      turn: {{type: int, unit: turn number, doc: The open turn.}}
      name: {{type: string, doc: Which thing.}}
      usage: {{type: Usage, optional: true, doc: What it cost.}}
      message: {{type: UserMessage, optional: true, doc: What was said.}}
"""
WATERFALL = """\
  {word}/ask:
    kind: waterfall
    since: "0.1"
    emitter: loop
    scope: agent
    errors: propagate
    purpose: Whether thing {n} may be done.
    default: Yes.
    payload:
      agent: {{type: live<Agent>, doc: Who asks.}}
      name: {{type: string, doc: Which thing.}}
    answers:
      Yes{n}: {{doc: Yes., fields: {{}}}}
      No{n}: {{doc: No., fields: {{reason: {{type: string, doc: Why not.}}}}}}
"""
NOTICE = """\
  {word}/told:
    kind: emit
    since: "0.1"
    emitter: plugin/things
    emit: any
    scope: global
    errors: contain
    purpose: Thing {n} was told.
    payload:
      name: {{type: string, doc: Which thing.}}
      count: {{type: int, unit: things, doc: How many.}}
"""
KINDS = (DURABLE, WATERFALL, NOTICE)
USES = (
    """
    @ctx.on(ev.{domain}.{token}_DONE)
    def done{n}(event: Logged[ev.{domain}.{cls}Done]) -> None:
        seen.append(event.data.name)
""",
    """
    @ctx.on(ev.{domain}.{token}_ASK)
    async def ask{n}(
        payload: ev.{domain}.{cls}Ask, call_next: Next[ev.{domain}.{cls}AskDecision]
    ) -> ev.{domain}.{cls}AskDecision:
        if payload.name in seen:
            return ev.{domain}.No{n}(reason="seen")
        return await call_next()
""",
    """
    @ctx.on(ev.{domain}.{token}_TOLD)
    def told{n}(notice: ev.{domain}.{cls}Told) -> None:
        seen.append(notice.name)

    ctx.emit(ev.{domain}.{cls}Told(name="n", count={n}))
""",
)


def names(n: int) -> dict[str, object]:
    """The names of thing `n`; any two words differ by more than a letter."""
    word = "".join("abcdefghij"[int(digit)] * 2 for digit in f"{n:03}")
    return {"n": n, "word": word, "token": word.upper(), "cls": word.capitalize()}


def cpu() -> float:
    """CPU seconds of this process and of those it waited for."""
    own, children = (
        resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def grown(root: Path, events: int) -> None:
    """The repository's schema and sources, with synthetic events up to `events` in all."""
    past = ("golden", "history", "catalog.lock.json", "changes.yaml", "__pycache__", "tests")
    for folder in ("src", "schema", "plugins"):
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns(*past))
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    mypy = text[text.index("[tool.mypy]") : text.index("[tool.basedpyright]")]
    lines = [line for line in mypy.splitlines() if not line.startswith(('    "plugins/', "files"))]
    (root / "mypy.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    missing = events - len(load(ROOT).core.events)
    titles = [(root / "schema/domains.yaml").read_text(encoding="utf-8")]
    for first in range(0, max(0, missing), PER_DOMAIN):
        domain = f"extra{first}"
        titles.append(f"  {domain}: {{title: Extra, doc: Things.}}\n")
        numbers = range(first, min(first + PER_DOMAIN, missing))
        body = "".join(KINDS[n % 3].format(**names(n)) for n in numbers)
        path = root / "schema" / "events" / f"{domain}.yaml"
        path.write_text(f"domain: {domain}\nevents:\n{body}", encoding="utf-8")
        uses = "".join(USES[n % 3].format(domain=domain, **names(n)) for n in numbers)
        plugin = (
            '"""Uses a domain."""\n\nfrom __future__ import annotations\n\n'
            "from dsh import Context, Logged, Next, catalog as ev, plugin\n\n"
            f'@plugin(name="{domain}")\nasync def {domain}(ctx: Context) -> None:\n'
            f'    """Listen to all of it."""\n    seen: list[str] = []\n{uses}'
        )
        path = root / "uses" / f"{domain}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(plugin, encoding="utf-8")
    (root / "schema/domains.yaml").write_text("".join(titles), encoding="utf-8")


def generate(root: Path) -> float:
    """Generate everything once; CPU seconds without writing."""
    start = time.process_time()
    found = changes(root, wanted_files(load(root), root))
    spent = time.process_time() - start
    for change in found:
        if change.wanted is not None:
            path = root / change.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(change.wanted, encoding="utf-8")
    return spent


def mypy(root: Path) -> float:
    """CPU seconds of mypy over the catalog and all plugins."""
    targets = ["src/dsh/catalog", *(["uses"] if (root / "uses").exists() else [])]
    start = cpu()
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--config-file",
        "mypy.toml",
        "--cache-dir",
        str(root / "cache"),
        *targets,
    ]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    return cpu() - start


def main() -> None:
    """Measure each size, and print one line for it."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.catalog_scale", description="larger catalogs"
    )
    parser.add_argument(
        "--events", type=int, nargs="+", default=[100, 500], help="events in all (default: 100 500)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a row")
    options = parser.parse_args()
    today = len(load(ROOT).core.events)
    for events in sorted({today, *options.events}):
        with tempfile.TemporaryDirectory(prefix="dsh-scale-") as name:
            root = Path(name)
            grown(root, events)
            row: dict[str, object] = {"row": f"catalog of {events} events"}
            row["generate s"] = round(generate(root), 2)
            row["mypy cold s"] = round(mypy(root), 2)
            row["mypy warm s"] = round(mypy(root), 2)
            plugin = root / "uses" / "extra0.py"
            if plugin.exists():
                plugin.write_text(plugin.read_text("utf-8") + "\n# An edit.\n", "utf-8")
                row["after a plugin edit s"] = round(mypy(root), 2)
                domain = root / "schema" / "events" / "extra0.yaml"
                edited = domain.read_text("utf-8").replace("Which thing.", "Which of them.")
                domain.write_text(edited, "utf-8")
                row["generate again s"] = round(generate(root), 2)
                row["after a catalog edit s"] = round(mypy(root), 2)
            line = "  ".join(f"{key} {value}" for key, value in row.items())
            sys.stdout.write((json.dumps(row) if options.json else line) + "\n")


if __name__ == "__main__":
    main()
