"""The page in a real browser: what it asks for, what it shows, where its links lead."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Protocol, cast

import orjson
import pytest

from dsh.catalog import records
from dsh.catalog.codec import encode_record
from dsh.cli.sessions.requests import request_at
from dsh.testing.trajectories import Called, TimedLog
from dsh.testing.trajectory_samples import compacted_log, long_log, parallel_log, retried_log

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsh.testing.browser import Browser, Page

    class Written(Protocol):
        def __call__(self, log: TimedLog, change: Callable[[str], str] = ..., /) -> str: ...


HOSTILE = (
    "</script><script>window.owned=1</script>",
    "<img src=x onerror='window.owned=1'>",
    "<svg onload=window.owned=1>",
    "[text](javascript:window.owned=1) **bold** `</code><b>`",
    "```\n</pre><iframe srcdoc='<script>parent.owned=1</script>'>\n```",
    "\u2028\u2029 \u202etxt.exe \x1b[2J\x07 LONE",
    "{{script}} ${window.owned=1} constructor __proto__",
)


def hostile_log() -> TimedLog:
    log = TimedLog(session_id="s<img src=x onerror=window.owned=1>", cwd="/<svg onload=owned=1>")
    log.begin(HOSTILE[0], system="\n".join(HOSTILE))
    log.offer(*HOSTILE[:3], model=HOSTILE[1])
    for text in HOSTILE:
        call = Called(name=text, arguments={text: text, "command": text}, result=text, error=text)
        log.work(text, call, reasoning=text)
        log.next_step()
    log.failed_try("\n".join(HOSTILE), HOSTILE[0], HOSTILE[1], status=500, delay=10)
    log.end(records.ErrorTurnEnd(error=records.LlmFailure(message=HOSTILE[1], code=HOSTILE[2])))
    return log


async def chosen(page: Page) -> str:
    """Label, name and text of the chosen row."""
    return (
        await page.text(".row[aria-selected=true] .name")
        + " "
        + await page.text(".row[aria-selected=true] .about")
    )


@pytest.mark.holds("P1")
async def test_the_page_asks_for_itself_alone_and_complains_of_nothing(
    browser: Browser, written: Written
) -> None:
    for log in (parallel_log(), retried_log(), compacted_log(), long_log(300)):
        page = await browser.page()
        address = written(log)
        await page.open(address)
        assert page.requests == [address]
        assert page.problems == []
        assert await page.count(".row") > 5


@pytest.mark.holds("P1")
async def test_hostile_text_is_text_in_every_row_and_tab(
    browser: Browser, written: Written
) -> None:
    page = await browser.page()
    # A lone surrogate cannot be logged; a page that was changed by hand could hold one.
    address = written(hostile_log(), lambda text: text.replace("LONE", "\\ud800"))
    await page.open(address)
    rows = cast("int", await page.value("document.querySelectorAll('.row').length"))
    for _ in range(rows):
        await page.key("j", "1", "2", "3", "4")
    await page.value("document.querySelectorAll('details').forEach((one) => { one.open = true })")
    await page.key("2", "k", "k", "?")
    assert await page.value("window.owned") is None
    assert await page.count("main img, main svg, main iframe, main script, main b") == 0
    assert page.requests == [address]
    assert page.problems == []
    await page.value("document.getElementById('keys').close()")
    await page.open(address + "#1.6")
    await page.until("document.querySelector('#subject .step').textContent.startsWith('1.6')")
    shown = await page.text("#pane")
    assert "\\u202etxt.exe \\x1b[2J\\x07 \\ud800" in shown
    assert not any(sign in shown for sign in "\u202e\x1b\x07")


@pytest.mark.holds("P5")
async def test_links_open_row_tab_and_comparison_and_the_page_writes_the_same_ones(
    browser: Browser, written: Written
) -> None:
    address = written(compacted_log())
    page = await browser.page()
    await page.open(address + "#1.13/saw?vs=1.2&q=footer")
    assert "Inlining the footer" in await chosen(page)
    assert await page.text("#tabs [aria-selected=true]") == "Saw"
    assert await page.value("document.querySelector('.versus input').value") == "1.2"
    assert await page.value("document.getElementById('search').value") == "footer"
    await page.key("k")
    await page.until("location.hash.startsWith('#seq=') && !location.hash.includes('vs')")
    link = cast("str", await page.value("location.hash"))
    told = await chosen(page)
    again = await browser.page()
    await again.open(address + link)
    assert await chosen(again) == told
    assert await again.text("#tabs [aria-selected=true]") == "Saw"
    await again.value("location.hash = '#seq=3'")
    await again.until(
        "document.querySelector('.row[aria-selected=true] .seq').textContent === '#3'"
    )


@pytest.mark.holds("P5")
async def test_search_reaches_every_body_and_says_what_filters_hide(
    browser: Browser, written: Written
) -> None:
    page = await browser.page()
    await page.open(written(parallel_log()))
    await page.key("/", *"half-even: 2")
    assert await page.text("#found") == "1"
    await page.key("Enter")
    assert "I'll run the test" in await chosen(page)
    await page.value("document.querySelector('.chip.tool').click()")
    await page.value("document.getElementById('search').value = 're:invoice\\\\.py:\\\\d+'")
    await page.value("document.getElementById('search').dispatchEvent(new Event('input'))")
    assert await page.text("#found") == "1, 1 in hidden rows"
    await page.key("Escape", "n")
    assert "grep" in await chosen(page)
    assert await page.value("document.querySelector('.chip.tool').ariaPressed") == "true"
    await page.value("document.getElementById('search').value = 're:('")
    await page.value("document.getElementById('search').dispatchEvent(new Event('input'))")
    assert "nvalid" in await page.text("#found")


@pytest.mark.holds("P6")
async def test_keys_alone_lead_from_the_list_to_a_difference_and_back(
    browser: Browser, written: Written
) -> None:
    page = await browser.page()
    await page.open(written(parallel_log()))
    await page.key("j", "j", "j", "j")
    assert "I'll run the test" in await chosen(page)
    await page.key("J")
    assert "half-even" in await chosen(page)
    await page.key("d")
    assert await page.text("#tabs [aria-selected=true]") == "Saw"
    assert await page.count(".node.added") == 6
    await page.key("Enter")
    assert await page.value("document.activeElement.id") == "pane"
    await page.key("Escape")
    assert await page.value("document.activeElement.id") == "ledger"
    await page.key("g", "e")
    assert "pytest" in await chosen(page)
    await page.key("]", "]")
    assert (await chosen(page)).startswith("turn 3")
    await page.key("t")
    assert await page.value("document.getElementById('by-order').ariaPressed") == "true"
    await page.key("?")
    assert await page.value("document.getElementById('keys').open") is True
    await page.key("Escape", "G", "ArrowUp")
    assert await page.value("document.getElementById('keys').open") is False
    active = await page.value(
        "document.getElementById('ledger').getAttribute('aria-activedescendant')"
    )
    assert await page.value(f"document.getElementById('{active}').ariaSelected") == "true"


@pytest.mark.holds("P3")
async def test_what_is_copied_is_what_sessions_messages_prints(
    browser: Browser, written: Written
) -> None:
    log = compacted_log()
    page = await browser.page()
    await page.open(written(log))
    await page.value(
        "navigator.clipboard.writeText = (text) => {"
        " window.copied = text; return Promise.resolve() }"
    )
    for step in ("1.1", "1.7", "1.13", "1.14"):
        await page.value(f"location.hash = '#{step}/saw'")
        await page.until(f"document.querySelector('.versus b')?.textContent === 'request {step}'")
        await page.click(".versus button")
        messages = request_at(log.session.events, step)
        lines = b"".join(orjson.dumps(encode_record(one)) + b"\n" for one in messages)
        assert await page.value("window.copied") == lines.decode()


@pytest.mark.holds("P4")
async def test_a_click_on_the_strip_finds_a_short_call_and_a_drag_keeps_what_was_active(
    browser: Browser, written: Written
) -> None:
    page = await browser.page()
    await page.open(written(parallel_log()))
    all_rows = await page.count(".row")
    box = cast(
        "list[float]",
        await page.value(
            "(() => { const box = document.getElementById('strip').getBoundingClientRect();"
            " return [box.x, box.y, box.width] })()"
        ),
    )
    for offset in range(54, int(box[2]), 2):
        # The first tool lane; the call of 30 ms is two pixels wide.
        await page.drag((box[0] + offset, box[1] + 40), (box[0] + offset, box[1] + 40))
        if "edit_file" in await page.text("#subject"):
            break
    else:
        pytest.fail("the short call cannot be hit")
    await page.drag((box[0] + 60, box[1] + 60), (box[0] + 140, box[1] + 60))
    assert "active" in await page.text("#range")
    assert 0 < await page.count(".row") < all_rows
    await page.key("0")
    assert await page.count(".row") == all_rows


@pytest.mark.holds("P2")
async def test_ten_thousand_events_are_there_at_once_and_few_of_them_are_drawn(
    browser: Browser, written: Written, capsys: pytest.CaptureFixture[str]
) -> None:
    page = await browser.page()
    log = long_log(10_000)
    address = written(log)
    await page.open(address)
    ready = float(cast("str", await page.value("document.body.dataset.ready")))
    rows = await page.value("document.querySelector('.row').ariaSetSize")
    most = await page.value(
        "(() => { const list = document.getElementById('ledger'); let most = 0;"
        " for (let at = 0; at < list.scrollHeight; at += list.scrollHeight / 200) {"
        " list.scrollTop = at; list.dispatchEvent(new Event('scroll'));"
        " most = Math.max(most, list.querySelectorAll('*').length) } return most })()"
    )
    await page.value("document.getElementById('search').value = 'part_0791'")
    took = await page.value(
        "(() => { const began = performance.now();"
        " document.getElementById('search').dispatchEvent(new Event('input'));"
        " return performance.now() - began })()"
    )
    with capsys.disabled():
        sys.stdout.write(
            f"\n{len(log.session.events)} events, {rows} rows: "
            f"usable after {ready:.0f} ms, first search {took:.0f} ms\n"
        )
    assert cast("int", most) <= 400
    assert await page.text("#found") == "3"
    # The aim is 2 s on an idle machine; the bound leaves room for a busy one.
    assert ready < 10_000


def luminance(colour: str) -> float:
    channels = [int(part) / 255 for part in colour[4:-1].split(",")]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.holds("P7")
@pytest.mark.parametrize("dark", [False, True])
async def test_every_text_can_be_read_in_both_themes(
    browser: Browser, written: Written, *, dark: bool
) -> None:
    page = await browser.page(dark=dark)
    await page.open(written(parallel_log()))

    async def shade(name: str) -> float:
        colour = await page.value(
            f"(() => {{ document.body.style.color = 'var(--{name})';"
            " return getComputedStyle(document.body).color })()"
        )
        return luminance(cast("str", colour))

    assert (await shade("ground") < 0.2) is dark
    for ground in ("ground", "raised", "sunken", "chosen", "match"):
        for text in ("text", "faint", "accent", "bad", "wait", "tool", "compact"):
            if ground in {"chosen", "match"} and text not in {"text", "faint"}:
                continue
            low, high = sorted((await shade(ground), await shade(text)))
            assert (high + 0.05) / (low + 0.05) >= 4.5, (text, ground)


@pytest.mark.holds("P7")
async def test_a_narrow_window_has_no_sideways_scroll_and_details_as_a_sheet(
    browser: Browser, written: Written
) -> None:
    page = await browser.page(width=320, height=700)
    await page.open(written(parallel_log()))
    assert cast("int", await page.value("document.documentElement.scrollWidth")) <= 320
    assert await page.value("getComputedStyle(inspector).visibility") == "hidden"
    await page.click(".row.tool .about")
    assert await page.value("getComputedStyle(inspector).visibility") == "visible"
    assert "pytest" in await page.text("#pane")
    await page.key("Escape")
    await page.until("getComputedStyle(inspector).visibility === 'hidden'")
    await page.click("#fold")
    assert cast("int", await page.value("strip.clientHeight")) > 50


@pytest.mark.holds("P7")
@pytest.mark.parametrize("height", [480, 700, 900])
async def test_at_420_pixels_the_chosen_row_stands_above_its_details(
    browser: Browser, written: Written, height: int
) -> None:
    page = await browser.page(width=420, height=height)
    await page.open(written(long_log(300)))
    under = """(() => {
        const row = document.querySelector(".row[aria-selected=true]").getBoundingClientRect();
        const list = ledger.getBoundingClientRect();
        const above = row.top >= list.top && row.bottom <= inspector.offsetTop;
        return above ? "" : `${list.top} ${row.top} ${row.bottom} ${inspector.offsetTop}`;
    })()"""
    place = "document.querySelectorAll('.row')[13].id"
    last = await page.value(place)
    await page.value("ledger.scrollTop = 150")
    await page.click(f"#{last} .about")
    assert await page.value("getComputedStyle(inspector).visibility") == "visible"
    assert await page.value(under) == ""
    for key in ("j", "j", "j", "j", "G", "k", "g", "]", "]"):
        await page.key(key)
        assert await page.value(under) == "", key
    await page.key("Escape")
    assert await page.value("ledger.style.paddingBottom") == ""


async def test_without_scripts_the_story_is_there_as_text(
    browser: Browser, written: Written
) -> None:
    page = await browser.page()
    await page.call("Emulation.setScriptExecutionDisabled", value=True)
    await page.open(written(parallel_log()))
    await page.call("Emulation.setScriptExecutionDisabled", value=False)
    text = await page.text("noscript pre")
    assert "turn 1   done   24.6 s   in 32.1k (71% cached)" in text
    assert page.problems == []
