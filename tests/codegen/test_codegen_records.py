"""Golden records: every record of every version of every durable event is read, for ever."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from codegen.generate import load
from codegen.past import golden_name
from dsh.wire import UnknownEvent, decode_payload, encode_payload

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
FOLDERS = [ROOT / "schema" / "golden", *ROOT.glob("plugins/*/schema/golden")]


def records() -> Iterator[tuple[str, int, str]]:
    """Event, version and text of every golden record."""
    for folder in FOLDERS:
        for path in sorted(folder.rglob("*.jsonl")):
            stem, _, version = (
                path.relative_to(folder).as_posix().removesuffix(".jsonl").rpartition(".v")
            )
            for text in path.read_text(encoding="utf-8").splitlines():
                yield stem, int(version), text


@pytest.fixture(scope="module", autouse=True)
def _catalogs() -> None:
    """The catalogs of plugins make their events known when they are imported."""
    for folder in FOLDERS[1:]:
        package = folder.parents[1].name.replace("-", "_")
        import_module(f"dsh_plugins.{package}.catalog")


@pytest.mark.holds("CAT14")
@pytest.mark.parametrize(("event", "version", "text"), [*records()])
def test_a_record_is_read_as_what_it_is_today(event: str, version: int, text: str) -> None:
    data = cast("object", json.loads(text))
    payload = decode_payload(event, data, version=version, raw=text.encode())
    assert not isinstance(payload, UnknownEvent) or payload.problem == "retired"
    if not isinstance(payload, UnknownEvent):
        token = payload.TOKEN
        again = cast("object", json.loads(encode_payload(payload)))
        read = decode_payload(token.name, again, version=token.version, raw=b"")
        assert read == payload
        if token.name == event and token.version == version:
            assert again == data


@pytest.mark.holds("CAT14")
def test_every_version_of_every_durable_event_has_records() -> None:
    loaded = load(ROOT)
    catalogs = [("schema", loaded.core)]
    catalogs += [(f"{plugin.folder}/schema", catalog) for plugin, catalog in loaded.extensions]
    for folder, catalog in catalogs:
        durables = [event for event in catalog.events if event.kind == "durable"]
        versions = [(event.name, event.version) for event in durables]
        versions += [(each.name, each.version) for each in catalog.retired]
        for name, last in versions:
            for version in range(1, last + 1):
                assert (ROOT / golden_name(folder, name, version)).exists(), (name, version)
