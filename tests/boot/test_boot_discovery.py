"""Installed plugins: real distributions on a path, found, refused and explained."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from dsh.boot.discovery import Installed
from dsh.boot.nodes import Issue, Place
from dsh.kernel import Context, Plugin, plugin

if TYPE_CHECKING:
    from pathlib import Path

PLACE = Place("dsh.yml", 3, 5)

GOOD = """\
from dsh.kernel import Context, plugin

@plugin(name="acme.deploy")
async def deploy(ctx: Context) -> None:
    pass
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))  # pyright: ignore[reportUnknownMemberType]
    return tmp_path


def install(site: Path, distribution: str, entry_points: str, **modules: str) -> None:
    info = site / f"{distribution.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    metadata = f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n"
    (info / "METADATA").write_text(metadata, encoding="utf-8")
    (info / "entry_points.txt").write_text(f"[dsh.plugins]\n{entry_points}\n", encoding="utf-8")
    for name, text in modules.items():
        (site / f"{name}.py").write_text(text, encoding="utf-8")


def refused(name: str) -> str:
    found = Installed().load(name, PLACE)
    assert isinstance(found, Issue)
    assert found.place == PLACE
    return found.problem


@pytest.mark.holds("BO13")
def test_a_plugin_is_found_by_its_entry_point(site: Path) -> None:
    install(site, "acme-deploy", "acme.deploy = acme_good:deploy", acme_good=GOOD)
    found = Installed().load("acme.deploy", PLACE)
    assert isinstance(found, Plugin)
    assert found.name == "acme.deploy"


@pytest.mark.holds("BO13")
def test_only_the_named_plugin_is_imported(site: Path) -> None:
    install(site, "acme-other", "acme.other = acme_other:x", acme_other="raise SystemExit(9)\n")
    assert "acme.other" in Installed().names()
    assert "acme_other" not in sys.modules


@pytest.mark.holds("BO13")
def test_an_unknown_name_has_its_nearest_and_all_names(site: Path) -> None:
    install(site, "acme-deploy", "acme.deploy = acme_good:deploy", acme_good=GOOD)
    problem = refused("acme.depoly")
    assert problem.startswith(
        "no plugin named 'acme.depoly' is installed; did you mean 'acme.deploy'? Installed: "
    )


@pytest.mark.holds("BO13", "case-071")
def test_two_distributions_with_one_name_are_refused_naming_both(site: Path) -> None:
    install(site, "acme-one", "acme.x = acme_good:deploy", acme_good=GOOD)
    install(site, "acme-two", "acme.x = acme_good:deploy")
    assert refused("acme.x") == (
        "two plugins are named 'acme.x': in acme-one 1.0 and acme-two 1.0; uninstall one of the two"
    )


@pytest.mark.holds("BO13")
def test_a_missing_extra_is_the_command_to_type(site: Path) -> None:
    module = "import no_such_library_of_an_extra\n"
    install(site, "acme-tel", "acme.tel = acme_tel:x [otel]", acme_tel=module)
    assert refused("acme.tel") == (
        "the plugin 'acme.tel' needs 'no_such_library_of_an_extra', which is not installed; "
        "run: pip install 'acme-tel[otel]'"
    )


@pytest.mark.holds("BO13", "case-071")
@pytest.mark.parametrize(
    ("module", "text", "words"),
    [
        ("acme_syntax", "def broken(:\n", ("acme_syntax.py:1: SyntaxError", "repair it")),
        (
            "acme_raises",
            "x = 1\nraise ValueError('no luck')\n",
            ("acme_raises.py:2: ValueError: no luck",),
        ),
        ("acme_none", "x = 1\n", ("AttributeError", "'plug'")),
        ("acme_wrong", "plug = 5\n", ("acme_wrong:plug is int, not a plugin", "acme-bad 1.0")),
        (
            "acme_needs",
            "import acme_no_such\n",
            ("acme_needs.py:1: ModuleNotFoundError", "acme_no_such"),
        ),
    ],
)
def test_a_plugin_that_cannot_be_imported_names_file_and_line(
    site: Path, module: str, text: str, words: tuple[str, ...]
) -> None:
    install(site, "acme-bad", f"acme.bad = {module}:plug", **{module: text})
    problem = refused("acme.bad")
    for word in words:
        assert word in problem


def test_a_plugin_given_as_an_object_comes_before_an_installed_one() -> None:
    @plugin(name="mine")
    async def mine(ctx: Context) -> None:
        """Does nothing."""

    assert Installed([mine]).load("mine", PLACE) is mine
