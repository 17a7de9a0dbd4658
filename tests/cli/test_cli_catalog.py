"""`dsh catalog`: the table, one page, and what is refused."""

from __future__ import annotations

import json
import sys
from importlib.metadata import EntryPoint
from types import ModuleType

import pytest

from dsh.catalog import registry
from dsh.cli.command import run_command


@pytest.mark.holds("CAT17")
def test_every_core_event_is_listed_with_kind_and_purpose(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert run_command(["catalog", "list", "--json"]) == 0
    rows = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert set(registry.TOKENS) <= {row["name"] for row in rows}
    assert all(row["kind"] and row["purpose"] for row in rows)
    assert run_command(["catalog", "list", "--kind", "stream"]) == 0
    (line,) = capfd.readouterr().out.splitlines()
    assert line.startswith("llm/stream  stream  ")


@pytest.mark.holds("CAT17")
def test_a_page_says_everything_about_an_event(capfd: pytest.CaptureFixture[str]) -> None:
    assert run_command(["catalog", "show", "turn/end"]) == 0
    page = capfd.readouterr().out
    assert page.startswith("turn/end  (durable)\n\n  Closes the turn and says why it ended")
    assert "  in Python: ev.turn.END, ev.turn.End\n" in page
    assert "    turn: int [turn number]. The turn that ends.\n" in page
    assert '  for example\n    {"turn": 6, "reason": {"kind": "interrupted"}}\n' in page
    assert max(map(len, page.splitlines())) <= 100
    assert run_command(["catalog", "show", "agent/pre-step"]) == 0
    page = capfd.readouterr().out
    assert "  answer Reject: " in page
    assert "  a listener that raises: fails whoever asked\n" in page


@pytest.mark.holds("CAT17")
def test_what_is_not_there_is_named_with_its_neighbour(capfd: pytest.CaptureFixture[str]) -> None:
    assert run_command(["catalog", "show", "turn/ends"]) == 2
    said = capfd.readouterr().err
    assert "no event named 'turn/ends'; did you mean 'turn/end'? See: dsh catalog list" in said
    assert run_command(["catalog", "list", "--kind", "durabel"]) == 2
    assert "did you mean 'durable'? Kinds: durable, emit," in capfd.readouterr().err
    assert run_command(["catalog"]) == 2
    assert "ACTION" in capfd.readouterr().err


@pytest.mark.holds("CAT17")
def test_installed_catalogs_are_shown_and_a_broken_one_hides_no_other(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    module = ModuleType("acme_fake.reference")
    vars(module)["EVENTS"] = {
        "acme.fake/done": ("durable", "Done.", ("acme.fake/done  (durable)",))
    }
    monkeypatch.setitem(sys.modules, "acme_fake", ModuleType("acme_fake"))
    monkeypatch.setitem(sys.modules, "acme_fake.reference", module)
    entries = [
        EntryPoint("acme-fake", "acme_fake:CATALOG", "dsh.catalogs"),
        EntryPoint("acme-gone", "acme_gone:CATALOG", "dsh.catalogs"),
    ]

    def entry_points(*, group: str) -> list[EntryPoint]:
        return [entry for entry in entries if entry.group == group]

    monkeypatch.setattr("dsh.cli.catalog.entry_points", entry_points)
    assert run_command(["catalog", "show", "acme.fake/done"]) == 0
    told = capfd.readouterr()
    assert told.out == "acme.fake/done  (durable)\n"
    assert told.err.startswith("the catalog 'acme-gone' of acme_gone:CATALOG cannot be shown: Modu")
