"""A plugin that stores a record of the core: who has to say what when that record changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from codegen.__main__ import main
from codegen.lock import read_lock

if TYPE_CHECKING:
    from pathlib import Path

RECORDS = "schema/records/demo.yaml"
CORE = "schema/events/demo.yaml"
SHOP = "plugins/shop/schema/shop.yaml"
TOML = """\
name = "shop"
package = "shop"
entry = "dsh_plugins.shop:shop"
summary = "Keeps the shop"
"""
EVENTS = """\
domain: shop
doc: The shop.
events:
  sold:
    kind: durable
    since: "0.1"
    emitter: plugin/shop
    emit: any
    purpose: Something was sold.
    payload:
      usage: {type: Usage, doc: A record of the core.}
      outcome: {type: Outcome, doc: A union of the core.}
"""


@pytest.fixture
def shop(made: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """The small schema and a plugin that stores the core's records."""
    for name, text in (("plugins/shop/plugin.toml", TOML), (SHOP, EVENTS)):
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text(text, "utf-8")
    assert main(["--root", str(made)]) == 1
    assert main(["--check", "--root", str(made)]) == 0
    capsys.readouterr()
    return made


def edit(root: Path, name: str, old: str, new: str) -> None:
    """Replace a text that stands once in a file."""
    text = (root / name).read_text(encoding="utf-8")
    assert text.count(old) == 1, (name, old)
    (root / name).write_text(text.replace(old, new), encoding="utf-8")


@pytest.mark.holds("CAT13")
def test_the_core_answers_for_its_record_and_each_event_for_its_version(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = read_lock((shop / "plugins/shop/schema/catalog.lock.json").read_text("utf-8"), "x")
    assert set(lock["borrowed"]) == {"Usage", "Outcome", "GoodOutcome", "BadOutcome"}
    edit(shop, RECORDS, "tokens: {type: int, unit: tokens,", "price: {type: int, unit: cents,")
    assert main(["--root", str(shop)]) == 1
    said = [line.partition("; ")[0] for line in capsys.readouterr().err.splitlines()]
    asked = {line.split(": ")[1] for line in said if line.startswith(("schema/", "plugins/"))}
    assert asked == {"version-missing", "name-not-reserved", "unlisted-change"}
    assert [line.split(": ")[0] for line in said if ": version-missing: " in line] == [
        f"{CORE}:3:3",
        f"{SHOP}:4:3",
    ]
    # The name is the core's to reserve; what only the plugin makes is the plugin's to list.
    assert sum("name-not-reserved" in line for line in said) == 1
    unlisted = [line for line in said if "unlisted-change" in line]
    assert len(unlisted) == 2
    assert all("(stored UPCASTER, output BREAKING)" in line for line in unlisted)
    assert "add to plugins/shop/schema/changes.yaml, under changes:, and say why:" in said


@pytest.mark.holds("CAT13")
def test_what_the_core_lists_is_not_listed_twice(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = "      good: {doc: Well., fields: {}}"
    edit(shop, RECORDS, good, f"{good}\n      odd: {{doc: Oddly., fields: {{}}}}")
    assert main(["--root", str(shop)]) == 1
    said = capsys.readouterr().err
    assert said.count("unlisted-change") == 1
    assert "add to schema/changes.yaml" in said
    (shop / "schema/changes.yaml").write_text(
        "changes:\n- rule: VARIANT_ADDED\n  where: union Outcome.odd\n  what: OddOutcome is new\n"
        '  level: REVIEW\n  since: "0.2"\n  why: It happens.\n',
        "utf-8",
    )
    assert main(["--root", str(shop)]) == 1
    assert "codegen: wrote" in capsys.readouterr().err
    assert main(["--check", "--root", str(shop)]) == 0
