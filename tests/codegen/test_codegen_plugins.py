"""Plugins' own schemas, their plugin.toml files, and the blocks of pyproject.toml from them."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
import yaml

from codegen.generate import load, wanted_files
from codegen.render.blocks import MissingBlockError
from dsh.catalog.refusal import CodecError
from dsh.wire import ext
from dsh_plugins.permissions.catalog import PermissionRule, permissions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    FaultsOf = Callable[[Mapping[str, str | bytes]], list[str]]

CASES = Path(__file__).parent / "plugins.yaml"
TOML = """\
name = "shop-keeper"
package = "shop_keeper"
entry = "dsh_plugins.shop_keeper:shop_keeper"
summary = "Keeps the shop"
"""
EVENTS = """\
domain: shop
doc: The shop.
events:
  opened:
    kind: durable
    since: "0.1"
    emitter: plugin/shop-keeper
    emit: any
    purpose: The shop opened.
    payload:
      hours: {type: list<Hours>, doc: When.}
      usage: {type: Usage, optional: true, doc: A record of the core.}
"""
RECORDS = """\
records:
  Hours:
    doc: A span of time.
    fields:
      from_hour: {type: int, unit: hour, doc: Its begin.}
"""
CONFIG = """\
section: shop-keeper
doc: How to keep it.
fields:
  till: {type: Hours, optional: true, doc: When to close.}
"""
FOLDER = "plugins/shop-keeper"
PLUGIN: Mapping[str, str] = {
    f"{FOLDER}/plugin.toml": TOML,
    f"{FOLDER}/schema/shop.yaml": EVENTS,
    f"{FOLDER}/schema/records.yaml": RECORDS,
    f"{FOLDER}/schema/config.yaml": CONFIG,
}
PROJECT = """\
[project]
name = "demo"
version = "1.2"

[project.optional-dependencies]
# >>> generated: extras
# <<< generated: extras

# >>> generated: entry points
old = "line"
# <<< generated: entry points

# >>> generated: build
# <<< generated: build

[tool.mypy]
strict = true
# >>> generated: mypy
# <<< generated: mypy

[tool.basedpyright]
# >>> generated: basedpyright
# <<< generated: basedpyright

[tool.ruff]
# >>> generated: ruff
# <<< generated: ruff
line-length = 100
"""


@pytest.mark.holds("CAT09")
def test_a_plugin_has_a_catalog_of_its_own(faults_of: FaultsOf, small: Path) -> None:
    assert faults_of({**PLUGIN, "pyproject.toml": PROJECT}) == []
    made = wanted_files(load(small), small)
    folder = f"{FOLDER}/dsh_plugins/shop_keeper/catalog"
    assert sorted(path for path in made if path.startswith(folder)) == [
        f"{folder}/{name}.py"
        for name in ("__init__", "codec", "config", "records", "reference", "shop")
    ]
    assert "class Opened(LogOnly):" in made[f"{folder}/shop.py"]
    assert (
        'OPENED: Final[Durable[Opened]] = Durable("shop/opened", Opened, owner="shop-keeper")'
        in (made[f"{folder}/shop.py"])
    )
    assert "usage: records.Usage | None = None" in made[f"{folder}/shop.py"]
    # Records that configuration uses know the spelling of files.
    assert '"wire": "fromHour",' in made[f"{folder}/records.py"]
    assert 'owner="shop-keeper@1.2",' in made[f"{folder}/codec.py"]
    assert "from dsh.catalog.codec import decode_usage, encode_usage" in made[f"{folder}/codec.py"]
    assert "`shop/opened`" in made["docs/events.md"]
    assert "plugin_shop_keeper_shop.py" in " ".join(made)


def cases() -> list[dict[str, object]]:
    """What is changed in the plugin's schema, and the faults it gives."""
    return cast("list[dict[str, object]]", yaml.safe_load(CASES.read_text(encoding="utf-8")))


@pytest.mark.holds("CAT09")
@pytest.mark.parametrize("case", cases(), ids=[str(case["id"]) for case in cases()])
def test_faults_of_a_plugin_s_schema(faults_of: FaultsOf, case: dict[str, object]) -> None:
    name = f"{FOLDER}/schema/{case['file']}"
    text = PLUGIN[name]
    for old, new in cast("list[tuple[str, str]]", case["changes"]):
        assert text.count(old) == 1
        text = text.replace(old, new)
    told = faults_of({**PLUGIN, name: text})
    here = [fault.removeprefix(f"{name}:") for fault in told if fault.startswith(name)]
    assert here == case["faults"]


@pytest.mark.holds("CAT09")
def test_two_domains_of_one_module(faults_of: FaultsOf) -> None:
    again = EVENTS.replace("domain: shop", "domain: sho.p").replace("  opened:", "  closed:")
    more = again.replace("domain: sho.p", "domain: sho-p")
    told = faults_of(
        {
            **PLUGIN,
            f"{FOLDER}/schema/one.yaml": again,
            f"{FOLDER}/schema/two.yaml": more,
        }
    )
    clash = "module-clash: 'sho.p' and 'sho-p' both map to sho_p.py; rename one"
    assert f"{FOLDER}/schema/two.yaml:4:3: {clash}" in told


@pytest.mark.holds("CAT10")
@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ('name = "shop-keeper"\n', "", "'name' is not a text; add name = \"…\""),
        ('"shop-keeper"', '"shop"', "name is 'shop'; write 'shop-keeper', its folder"),
        ('"shop_keeper"', '"keeper"', "package is 'keeper'; write 'shop_keeper'"),
        (
            '"dsh_plugins.shop_keeper:shop_keeper"',
            '"shop_keeper:shop"',
            "entry is 'shop_keeper:shop'; write dsh_plugins.shop_keeper:<object>",
        ),
        ("summary", "sumary", "'sumary' is not a key of plugin.toml; did you mean 'summary'?"),
        (
            'shop"\n',
            'shop"\ndependencies = ["till>=1"]\n',
            "dependencies without an extra; name the extra they belong to",
        ),
        ('"Keeps the shop"', "Keeps", "not TOML: Invalid value (at line 4, column 11); correct it"),
    ],
)
def test_faults_of_a_plugin_toml(faults_of: FaultsOf, old: str, new: str, fault: str) -> None:
    name = f"{FOLDER}/plugin.toml"
    told = faults_of({name: TOML.replace(old, new)})
    assert f"{name}:1:1: plugin-toml: {fault}" in told


@pytest.mark.holds("CAT10")
def test_the_build_follows_the_plugins(faults_of: FaultsOf, small: Path) -> None:
    toml = TOML + 'extra = "till"\ndependencies = ["till>=1"]\n'
    files = {**PLUGIN, f"{FOLDER}/plugin.toml": toml, "pyproject.toml": PROJECT}
    assert faults_of(files) == []
    text = wanted_files(load(small), small)["pyproject.toml"]
    made = tomllib.loads(text)
    assert made["project"]["entry-points"] == {
        "dsh.plugins": {"shop-keeper": "dsh_plugins.shop_keeper:shop_keeper [till]"},
        "dsh.catalogs": {"shop-keeper": "dsh_plugins.shop_keeper.catalog:CATALOG"},
    }
    assert made["project"]["optional-dependencies"] == {"till": ["till>=1"]}
    build = made["tool"]["hatch"]["build"]
    assert build["dev-mode-dirs"] == ["src", FOLDER]
    assert build["targets"]["wheel"]["only-include"] == [
        "src/dsh",
        "codegen",
        "schema",
        f"{FOLDER}/dsh_plugins",
    ]
    assert build["targets"]["wheel"]["sources"] == {
        "src": "",
        FOLDER: "",
        "codegen": "dsh_codegen",
        "schema": "dsh_codegen/schema",
    }
    assert made["tool"]["mypy"]["mypy_path"] == ["src", ".", FOLDER]
    assert made["tool"]["basedpyright"]["extraPaths"] == ["src", ".", FOLDER]
    assert made["tool"]["ruff"] == {"src": ["src", ".", FOLDER], "line-length": 100}
    # A second run changes nothing, and what stands outside the markers stays.
    (small / "pyproject.toml").write_text(text, "utf-8")
    assert wanted_files(load(small), small)["pyproject.toml"] == text
    assert 'old = "line"' not in text


@pytest.mark.holds("CAT10")
def test_a_missing_block_is_named(small: Path) -> None:
    (small / "pyproject.toml").write_text(PROJECT.replace("generated: ruff", "made: ruff"), "utf-8")
    with pytest.raises(MissingBlockError, match="no block 'ruff'; add the two lines"):
        wanted_files(load(small), small)


@pytest.mark.holds("CAT09")
def test_a_plugin_s_own_event_is_written_and_read_through_the_registry() -> None:
    payload = permissions.Rules(
        ask="deny",
        rules=(PermissionRule(decision="allow", tool="bash", pattern="ls *"),),
        source="profile headless",
    )
    found = ext.foreign(permissions.RULES.name)
    assert found is not None
    owner, event = found
    assert owner.startswith("permissions@")
    data = event.encode(payload)
    assert data == {
        "ask": "deny",
        "rules": [{"decision": "allow", "tool": "bash", "pattern": "ls *"}],
        "source": "profile headless",
    }
    assert event.decode(data) == payload
    with pytest.raises(CodecError, match=r"^rules\[0\]\.tool: expected text, got integer 5$"):
        event.decode({**data, "rules": [{"decision": "allow", "tool": 5}]})
