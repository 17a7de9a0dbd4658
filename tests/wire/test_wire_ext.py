"""Catalogs beside the core: their events are logged with an owner and read back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from attrs import frozen

from dsh import catalog as ev
from dsh.catalog import records
from dsh.errors import InvalidAppend, PluginError
from dsh.hooks import Durable, LogOnly
from dsh.testing import LogWriting
from dsh.wire import (
    UnknownEvent,
    WireFault,
    decode_line,
    encode_line,
    ext,
    owner_of,
    token_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dsh.wire.upcasters import Upcaster


@frozen(kw_only=True, slots=True)
class Deployed(LogOnly):
    where: str


DEPLOYED: Final[Durable[Deployed]] = Durable(
    "acme.deploy/deployed", Deployed, owner="acme-deploy", ignorable=True, version=3
)


def encode(payload: Deployed) -> dict[str, object]:
    return {"where": payload.where}


def decode(data: object) -> Deployed:
    match data:
        case {"where": str(where)}:
            return Deployed(where=where)
        case _:
            raise AssertionError(data)


EVENT: Final = ext.durable(DEPLOYED, encode, decode)


@pytest.fixture
def acme(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(ext, "_EVENTS", {})
    monkeypatch.setattr(ext, "_OWNERS", {})
    monkeypatch.setattr(ext, "_HISTORY", {})
    catalog = ext.register(owner="acme-deploy@1.2.3", api=ext.CATALOG_API, events=(EVENT,))
    assert catalog.owner == "acme-deploy@1.2.3"
    return iter(())


@pytest.mark.usefixtures("acme")
def test_an_extension_event_names_its_owner_and_comes_back() -> None:
    log = LogWriting()
    logged = log.session.append(Deployed(where="prod"))
    line = encode_line(log.session.events[-1])
    assert line.startswith(
        b'{"type":"acme.deploy/deployed","v":3,"seq":0,"time":1001,'
        b'"owner":"acme-deploy@1.2.3","ignorable":true,"data":'
    )
    assert decode_line(line).data == logged.data == Deployed(where="prod")
    assert token_of("acme.deploy/deployed") is DEPLOYED
    assert owner_of("turn/start") is None


@pytest.mark.usefixtures("acme")
def test_without_its_catalog_the_event_is_unknown_and_an_append_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = LogWriting()
    log.session.append(Deployed(where="prod"))
    line = encode_line(log.session.events[-1])
    monkeypatch.setattr(ext, "_EVENTS", {})
    assert isinstance(decode_line(line).data, UnknownEvent)
    assert encode_line(decode_line(line)) == line
    with pytest.raises(InvalidAppend, match=r"no catalog here declares 'acme\.deploy/deployed'"):
        log.session.append(Deployed(where="prod"))
    assert log.session.next_seq == 1


@pytest.mark.usefixtures("acme")
def test_registering_the_same_again_is_harmless_and_another_is_refused() -> None:
    ext.register(owner="acme-deploy@1.2.3", api=ext.CATALOG_API, events=(EVENT,))
    other = ext.durable(DEPLOYED, encode, decode)
    with pytest.raises(PluginError, match=r"belongs to acme-deploy@1\.2\.3"):
        ext.register(owner="evil@1", api=ext.CATALOG_API, events=(other,))


@pytest.mark.usefixtures("acme")
def test_core_names_and_old_generated_code_are_refused() -> None:
    stolen = ext.durable(
        ev.turn.START, lambda start: {"turn": start.turn}, lambda _data: ev.turn.Start(turn=1)
    )
    with pytest.raises(PluginError, match="belongs to the core"):
        ext.register(owner="evil@1", api=ext.CATALOG_API, events=(stolen,))
    with pytest.raises(PluginError, match="generate it again"):
        ext.register(owner="old@1", api=0, events=())


def test_a_hand_made_payload_that_no_catalog_declares_is_refused() -> None:
    @frozen(kw_only=True, slots=True)
    class Forged(LogOnly):
        text: str

    Durable("forged.domain/event", Forged, owner="nobody")
    log = LogWriting()
    with pytest.raises(InvalidAppend, match="forged"):
        log.session.append(Forged(text="x"))
    assert records.Append() == records.Append()


@pytest.mark.usefixtures("acme")
def test_an_old_version_is_carried_up_step_by_step() -> None:
    steps: dict[str, Upcaster] = {
        "acme.deploy/deployed@1": lambda data: {"place": data["target"]},
        "acme.deploy/deployed@2": lambda data: {"where": data["place"]},
    }
    ext.register(owner="acme-deploy@1.2.3", api=1, events=(EVENT,), declared=steps)
    old = b'{"type":"acme.deploy/deployed","seq":0,"time":1,"owner":"a@1","data":{"target":"eu"}}'
    newer = b'{"type":"acme.deploy/deployed","v":2,"seq":0,"time":1,"data":{"place":"us"}}'
    assert decode_line(old).data == Deployed(where="eu")
    assert decode_line(newer).data == Deployed(where="us")
    with pytest.raises(WireFault, match="not an object"):
        decode_line(old.replace(b'{"target":"eu"}', b"[]"))
    again = encode_line(decode_line(old))
    assert again.startswith(b'{"type":"acme.deploy/deployed","v":3,')
    assert decode_line(again).data == Deployed(where="eu")
