"""Logs of other times and other people: what is read, what is kept, and what is refused how."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, cast

import pytest
from attrs import frozen

from dsh.errors import InvalidAppend, PluginError, SessionUnreadable
from dsh.hooks import Durable, LogOnly
from dsh.testing import LogWriting
from dsh.wire import (
    UnknownEvent,
    WireFault,
    decode_line,
    encode_line,
    ext,
    refuse_unreadable,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


@frozen(kw_only=True, slots=True)
class Finished(LogOnly):
    where: str
    outcome: str


FINISHED: Final = Durable("acme.deploy/finished", Finished, owner="acme-deploy", version=2)


def encode(payload: Finished) -> dict[str, object]:
    return {"where": payload.where, "outcome": payload.outcome}


def decode(data: object) -> Finished:
    match data:
        case {"where": str(where), "outcome": str(outcome)}:
            return Finished(where=where, outcome=outcome)
        case _:
            raise AssertionError(data)


def lift_finished(data: dict[str, object]) -> dict[str, object]:
    return {**data, "outcome": "good"}


def lift_done(data: dict[str, object]) -> dict[str, object]:
    return {"where": data["target"]}


STEPS: Mapping[str, Callable[[dict[str, object]], dict[str, object]]] = {
    "acme.deploy/finished@1": lift_finished,
    "acme.deploy/done@1": lift_done,
}


@pytest.fixture
def acme(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A stranger's catalog with a past: one event in its second version, two that are retired."""
    for table in ("_EVENTS", "_OWNERS", "_HISTORY"):
        monkeypatch.setattr(ext, table, {})
    ext.register(
        owner="acme-deploy@2.0.0",
        api=ext.CATALOG_API,
        events=(ext.durable(FINISHED, encode, decode),),
        declared=STEPS,
        retired={
            "acme.deploy/done": (1, "acme.deploy/finished", 1),
            "acme.deploy/tick": (1, None, 1),
        },
    )
    return iter(())


def line(**fields: object) -> bytes:
    """One line of a log."""
    return json.dumps({"seq": 3, "time": 5, **fields}, separators=(",", ":")).encode()


@pytest.mark.holds("CAT15")
@pytest.mark.usefixtures("acme")
def test_a_retired_event_is_read_as_its_successor_and_written_as_that() -> None:
    read = decode_line(line(type="acme.deploy/done", owner="acme-deploy@1", data={"target": "eu"}))
    assert read.type == "acme.deploy/finished"
    assert read.data == Finished(where="eu", outcome="good")
    assert read.v == 2
    again = encode_line(read)
    assert again.startswith(b'{"type":"acme.deploy/finished","v":2,"seq":3,')
    assert decode_line(again).data == read.data


@pytest.mark.holds("CAT15")
@pytest.mark.usefixtures("acme")
def test_a_retired_event_without_a_successor_is_kept_and_needed_by_nobody() -> None:
    raw = line(type="acme.deploy/tick", owner="acme-deploy@1", data={"n": 1})
    for each in (raw, line(type="acme.deploy/tick", data={"n": 1})):
        read = decode_line(each)
        assert isinstance(read.data, UnknownEvent)
        assert read.data.problem == "retired"
        refuse_unreadable([read], session="s")
        assert encode_line(read) == each
    newer = decode_line(line(type="acme.deploy/tick", v=2, data={}))
    with pytest.raises(SessionUnreadable, match="newer version here"):
        refuse_unreadable([newer], session="s")


@pytest.mark.holds("CAT15")
@pytest.mark.parametrize("flag", [{"ignorable": True}, {}], ids=["ignorable", "required"])
def test_what_nobody_here_declares_is_kept_to_the_byte(flag: dict[str, object]) -> None:
    raw = line(type="other.shop/sold", owner="other-shop@3", **flag, data={"price": 1.50})
    raw = raw.replace(b":", b" : ")  # spelt as no writer of ours would
    read = decode_line(raw)
    assert encode_line(read) == raw
    if flag:
        refuse_unreadable([read], session="s1")
        return
    with pytest.raises(SessionUnreadable) as caught:
        refuse_unreadable([read], session="s1")
    assert str(caught.value) == (
        "session s1 needs 'other.shop/sold' (version 1, seq 3), unknown type here; it was "
        "declared by other-shop@3: install that, or only look at the session"
    )


@pytest.mark.holds("CAT15")
def test_a_newer_version_of_a_core_event_is_kept_and_stops_a_resume() -> None:
    raw = line(type="turn/start", v=9, data={"turn": {"number": 1}})
    read = decode_line(raw)
    assert isinstance(read.data, UnknownEvent)
    assert encode_line(read) == raw
    with pytest.raises(SessionUnreadable, match=r"needs 'turn/start' \(version 9, seq 3\)"):
        refuse_unreadable([read], session="s1")


@pytest.mark.holds("CAT15")
@pytest.mark.parametrize(
    ("data", "told"),
    [
        ({"turn": "1"}, "seq 3: turn/start: turn: expected an integer, got text '1'"),
        ({}, "seq 3: turn/start: turn: required field is missing"),
        ({"turn": 1, "more": 2}, "seq 3: turn/start: more: unknown field"),
        ([], "seq 3: turn/start: expected an object, got list []"),
    ],
)
def test_a_wrong_record_is_refused_with_seq_path_expected_and_got(data: object, told: str) -> None:
    with pytest.raises(WireFault) as caught:
        decode_line(line(type="turn/start", data=data))
    assert str(caught.value).startswith(told)
    with pytest.raises(WireFault) as caught:
        decode_line(line(type="turn/start", v=1, data=data))
    assert str(caught.value).startswith(told)


@pytest.mark.holds("CAT15")
@pytest.mark.usefixtures("acme")
def test_a_step_that_cannot_read_its_data_refuses_the_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(WireFault, match=r"^seq 3: acme\.deploy/done: data of version 1 is not of "
                       r"its shape: KeyError: 'target'$"):  # fmt: skip
        decode_line(line(type="acme.deploy/done", data={}))
    monkeypatch.setattr(ext, "_HISTORY", {})
    with pytest.raises(
        WireFault, match=r"nothing here carries version 1 up to 2 .*release of acme"
    ):
        decode_line(line(type="acme.deploy/finished", data={"where": "eu"}))


@pytest.mark.holds("CAT15")
@pytest.mark.usefixtures("acme")
def test_an_append_that_could_not_be_read_back_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    log = LogWriting()
    log.session.append(Finished(where="eu", outcome="good"))
    number = cast("str", 7)
    with pytest.raises(InvalidAppend):
        log.session.append(Finished(where="\ud800", outcome="good"))
    monkeypatch.setattr(ext, "_EVENTS", {})
    with pytest.raises(InvalidAppend, match="no catalog here declares 'acme"):
        log.session.append(Finished(where=number, outcome="good"))
    assert log.session.next_seq == 1


@pytest.mark.holds("CAT15")
@pytest.mark.usefixtures("acme")
def test_a_catalog_that_takes_a_name_is_refused_with_both_owners() -> None:
    other = ext.durable(FINISHED, encode, decode)
    with pytest.raises(PluginError) as caught:
        ext.register(owner="evil@1", api=ext.CATALOG_API, events=(other,))
    assert str(caught.value) == (
        "the catalog of evil@1 declares 'acme.deploy/finished', which belongs to "
        "acme-deploy@2.0.0; choose another name, under a domain of its own"
    )
    with pytest.raises(PluginError) as caught:
        ext.register(owner="old@1", api=0, events=())
    assert str(caught.value) == (
        "the catalog of old@1 was generated for catalog api 0, this dsh has 1; generate it again "
        "with `python -m dsh_codegen generate`"
    )
    read = decode_line(line(type=FINISHED.name, v=2, data={"where": "a", "outcome": "b"}))
    assert read.data == Finished(where="a", outcome="b")
