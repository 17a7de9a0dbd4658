"""The page as a document: what is in it, what it may do, what it does with foreign text."""

from __future__ import annotations

import base64
import hashlib
import re
from typing import cast

import orjson
import pytest

from dsh import catalog as ev
from dsh.catalog import records
from dsh.cli.sessions.looking import Found
from dsh.cli.sessions.showing import document_of, facts_of
from dsh.cli.sessions.story import trajectory_of
from dsh.testing.trajectories import Called, TimedLog
from dsh.testing.trajectory_samples import compacted_log, long_log, parallel_log, retried_log
from dsh.view import totals
from dsh.view.redaction import Redaction

HOSTILE = (
    "</script><script>window.owned=1</script>",
    "<!--<script>",
    "<img src=x onerror='window.owned=1'>",
    "\u2028window.owned=1\u2029",
    "]]>{{script}}{{data}}",
)


def found(log: TimedLog) -> Found:
    return Found(id=log.session.id, header=log.session.header, events=tuple(log.session.events))


def page(log: TimedLog, *, full: bool = False, redact: bool = False) -> str:
    known = found(log)
    return document_of(known, full=full, redact=redact).whole(facts_of(known))


def element(text: str, name: str) -> str:
    match = re.search(rf'<script type="application/json" id="data-{name}">(.*?)</script>', text)
    assert match is not None, name
    return match[1]


def index(text: str) -> dict[str, object]:
    return cast("dict[str, object]", orjson.loads(element(text, "index")))


def saying(*texts: str) -> TimedLog:
    log = TimedLog(session_id="s<b>", cwd="/tmp/<i>&\u202e")
    log.begin(texts[0], system=" ".join(texts))
    for text in texts:
        log.work(text, Called(name=text, arguments={text: text}, result=text, decided_by=text))
        log.next_step()
    log.end(records.ErrorTurnEnd(error=records.LlmFailure(message=texts[-1], code=texts[0])))
    return log


@pytest.mark.holds("P1")
def test_nothing_of_the_log_can_end_an_element_or_a_line() -> None:
    text = page(saying(*HOSTILE))
    assert text.count("</script>") == len(re.findall(r"<script[ >]", text))
    assert len(re.findall(r"<script[ >]", text)) == 4
    assert not any(word in text for word in ("<img", "<!--<", "\u2028", "\u2029", "<i>", "<b>"))
    assert "owned" in element(text, "block-0")


@pytest.mark.holds("P1")
def test_the_policy_allows_the_pages_own_script_and_style_and_nothing_else() -> None:
    text = page(parallel_log())
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)
    code, styles = (
        re.search(r"<script>(.*)</script>", text, re.DOTALL),
        re.search(r"<style>(.*)</style>", text, re.DOTALL),
    )
    assert policy
    assert code
    assert styles
    digests = [
        base64.b64encode(hashlib.sha256(part[1].encode()).digest()).decode()
        for part in (code, styles)
    ]
    assert policy[1].split("; ") == [
        "default-src 'none'",
        f"script-src 'sha256-{digests[0]}'",
        f"style-src 'sha256-{digests[1]}'",
        "base-uri 'none'",
        "form-action 'none'",
        "img-src data:",
    ]


@pytest.mark.holds("P9")
@pytest.mark.parametrize("log", [parallel_log(), retried_log(), compacted_log()])
def test_a_page_that_followed_ends_where_a_static_one_does(log: TimedLog) -> None:
    known = found(log)
    whole = index(page(log))
    empty = Found(id=known.id, header=known.header, events=())
    document = document_of(empty)
    tables: dict[str, dict[int, object]] = {}
    bodies: dict[str, object] = {}
    revision = place = 0
    about: object = None
    for event in known.events:
        document.see_all((event,))
        change = orjson.loads(document.change(facts_of(known), revision=revision, place=place))
        bodies |= change["bodies"]
        told = cast("dict[str, object]", change["index"].pop("about"))
        about = told
        revision, place = change["index"].pop("revision"), cast("int", told["place"])
        for kind, entities in change["index"].items():
            tables.setdefault(kind, {}).update(entities)
    for kind, entities in tables.items():
        assert sorted(entities.items()) == [
            tuple(pair) for pair in cast("list[list[object]]", whole[kind])
        ], kind
    assert about == whole["about"]
    assert len(bodies) == place


def test_a_change_is_as_large_as_what_changed() -> None:
    log = long_log(3000)
    known = found(log)
    early = Found(id=known.id, header=known.header, events=known.events[:-20])
    document = document_of(early)
    revision, place = document.trajectory.tables.revision, len(document.bodies)
    document.see_all(known.events[-20:])
    change = document.change(facts_of(known), revision=revision, place=place)
    assert len(change) < 20_000 < len(document.change(facts_of(known), revision=0, place=0))


@pytest.mark.holds("P10")
def test_long_texts_are_cut_with_their_size_unless_all_is_wanted() -> None:
    log = TimedLog()
    log.begin("go")
    log.work("reading", Called(arguments={"command": "cat"}, result="0123456789" * 20_000))
    log.end()
    short, whole = page(log), page(log, full=True)
    assert len(short) < len(whole) - 150_000
    assert "[cut here: 200,000 characters in all]" in short
    about = cast("dict[str, object]", index(short)["about"])
    assert about["cut"] == 1


KEYS = (
    "sk-abcdefgh12345678", "ghp_" + "a1B2" * 9, "AKIAABCDEFGHIJKLMNOP", "xoxb-1234567890-abcdef",
    "Bearer abcdef123456.xyz", "export DEEPSEEK_API_KEY=abc123def", 'password: "hunter2hunter"',
    'curl -d {"api_key": "hunter3hunter"}',
)  # fmt: skip


@pytest.mark.parametrize("key", KEYS)
def test_what_looks_like_a_key_is_masked_when_asked_and_counted(key: str) -> None:
    log = TimedLog()
    log.begin(f"use {key} please")
    log.work("ok", Called(arguments={"token": key, "n": 123456}, result=f"got {key}"))
    log.end()
    secret = key.rpartition(" ")[2].rpartition("=")[2].strip('"}')
    known = found(log)
    document = document_of(known, redact=True)
    text = document.whole(facts_of(known))
    assert secret in page(log)
    assert secret not in text
    assert document.masked >= 3
    orjson.loads(element(text, "index"))
    assert "123456" in element(text, "block-0")


@pytest.mark.parametrize(
    "text",
    [
        r'{"raw": "{\"token\": \"hunter2hunter\"}"}',
        r'{"raw": "{\"raw\": \"{\\\"token\\\": \\\"hunter2hunter\\\"}\"}"}',
        '{"sk-hunter2hunter": 1}',
    ],
)
def test_a_key_is_masked_however_deep_it_stands(text: str) -> None:
    redaction = Redaction()
    made = redaction.masked_json(text)
    assert ("hunter" in made, redaction.count) == (False, 1)
    assert "[masked]" in str(orjson.loads(made))


BEGIN, END = "-----BEGIN RSA PRIVATE KEY-----", "-----END RSA PRIVATE KEY-----"
HEAD, CLAIMS = "eyJhbGciOiJIUzI1NiJ9", "eyJzdWIiOiJvbmUtb2YtdXMifQ"


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        (f"a {BEGIN}\nDEK-Info: AES\n\nMIIB\n{END} z", "a [masked] z"),
        (f"a {BEGIN}\nMIIB… {BEGIN}\nMIIC\n{END} z", "a [masked][masked] z"),
        (f"a {BEGIN} is how one begins", f"a {BEGIN} is how one begins"),
        (f"a {HEAD}.{CLAIMS}.c2lnbmVk z", "a [masked] z"),
        (f"a {HEAD}-{HEAD} z", f"a {HEAD}-{HEAD} z"),
    ],
)
def test_keys_of_several_parts_are_masked_whole(text: str, masked: str) -> None:
    assert Redaction().masked(text) == masked


def test_a_change_counts_what_it_masked_itself() -> None:
    log = TimedLog()
    log.begin("use sk-abcdefgh12345678 please")
    known = found(log)
    document = document_of(known, redact=True)
    counts: list[int] = []
    for _ in range(2):
        document.change(facts_of(known), revision=0, place=0)
        counts.append(document.masked)
    assert counts[0] == counts[1] > 0


@pytest.mark.holds("P8")
@pytest.mark.parametrize("log", [parallel_log(), retried_log(), compacted_log()])
def test_the_sums_are_those_of_the_usage_events(log: TimedLog) -> None:
    counted = [
        event.data.usage
        for event in log.session.events
        if isinstance(event.data, ev.assistant.Message) and event.data.usage is not None
    ]
    told = trajectory_of(log.session.events)
    sums = totals(told.tables, told.length)
    cached = [usage.cache_read_tokens or 0 for usage in counted]
    assert sums.cached == sum(cached)
    assert sums.input == sum(usage.input_tokens for usage in counted) + sum(cached)
    assert sums.output == sum(usage.output_tokens for usage in counted)
    about = cast("dict[str, object]", index(page(log))["about"])
    assert cast("dict[str, object]", about["totals"])["input"] == sums.input
