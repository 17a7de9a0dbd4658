"""Sample sessions to look at: tools that overlap, a compaction, failed tries, a long one.

What comes in: sizes. What goes out: timed logs, always the same. They are what the page's tests
open and what its pictures show.
"""

from __future__ import annotations

from typing import Final

from dsh import catalog as ev
from dsh.catalog import records
from dsh.testing.trajectories import TOOLS, Called, TimedLog

__all__ = ["compacted_log", "long_log", "parallel_log", "retried_log"]

SYSTEM: Final = """\
You work in the directory /home/ada/shop.
Read before you write; run the tests after every change.
Answer in a few sentences."""

FAILURE: Final = """\
tests/test_money.py ...........F
E   assert to_cents(Decimal("2.675")) == 268
E   where 267 = to_cents(Decimal("2.675"))
1 failed, 11 passed in 1.20s"""

ANSWER: Final = """\
Fixed. **`to_cents`** now rounds half-up:

- `src/shop/money.py` passes `ROUND_HALF_UP` to `quantize`
- all 12 tests pass

```python
return amount.quantize(CENT, ROUND_HALF_UP)
```"""


def parallel_log() -> TimedLog:
    """Three turns: a search that overlaps, an approval, a denial, steering, a new tool."""
    log = TimedLog()
    _fixing(log)
    log.wait(41_000)
    log.begin("Now push it.")
    log.work(
        "",
        Called(
            arguments={"command": "git push origin main"},
            ms=2,
            result="Error: pushing is not allowed here",
            error="DENIED",
            decided_by="permissions",
        ),
        usage=(300, 9_216, 30),
    )
    log.next_step()
    log.work("I may not push: a rule of this project denies it.", usage=(120, 9_472, 22))
    log.end()
    log.wait(75_000)
    log.begin("Summarise what changed.")
    log.offer(*TOOLS, "web_search")
    log.stream("One line of ")
    log.end(records.AbortedTurnEnd(reason=records.UserCause()))
    return log


def _fixing(log: TimedLog) -> None:
    """Four calls at once, a steered message, a call that somebody has to allow."""
    log.begin("The rounding test fails. Find out why and fix it.", system=SYSTEM)
    log.offer(*TOOLS)
    log.work(
        "I'll run the test, and look at everything that rounds meanwhile.",
        Called(
            arguments={"command": "pytest -q tests/test_money.py"},
            ms=1_900,
            result=FAILURE,
            exit_code=1,
        ),
        Called(
            name="read_file",
            arguments={"path": "src/shop/money.py"},
            ms=40,
            result="CENT = Decimal('0.01')\n" * 84,
        ),
        Called(
            name="grep",
            arguments={"pattern": "quantize|round\\(", "path": "src"},
            ms=320,
            result="src/shop/money.py:41\nsrc/shop/invoice.py:112",
        ),
        Called(
            name="read_file",
            arguments={"path": "src/shop/invoice.py"},
            ms=2_600,
            result="def total(lines): ...\n" * 31,
        ),
        usage=(6_210, 0, 164),
        reasoning="The name says half-up. Decimal rounds half-even: 2.675 becomes 2.67.",
    )
    log.next_step()
    log.say("only invoices, please")
    log.work(
        "The helper rounds half-even; invoices need half-up.",
        Called(
            name="edit_file",
            arguments={
                "path": "src/shop/money.py",
                "old": "quantize(CENT)",
                "new": "quantize(CENT, ROUND_HALF_UP)",
            },
            ms=30,
            result="edited src/shop/money.py (+1 -1)",
        ),
        usage=(1_900, 6_144, 98),
    )
    _rebuilding(log)


def _rebuilding(log: TimedLog) -> None:
    """A step whose call waits for an approval, and the answer that ends the turn."""
    log.next_step()
    calls = (
        Called(
            arguments={"command": "rm -rf build && make all"},
            ms=9_400,
            result="ok\n" * 20,
            exit_code=0,
        ),
    )
    sources = log.stream("Rebuilding from scratch to be sure.")
    (block,) = log.reply(
        "Rebuilding from scratch to be sure.", calls, sources=sources, usage=(700, 8_000, 45)
    )
    _approved(log, block, calls[0])
    log.next_step()
    log.work(ANSWER, usage=(420, 8_704, 120))
    log.end()


def _approved(log: TimedLog, block: records.ToolCallBlock, call: Called) -> None:
    """One call that had to be asked for."""
    seq = log.session.append(
        ev.tool.Call(
            turn=log.turn,
            step=log.step,
            call_id=block.id,
            name=block.name,
            arguments=block.arguments,
        )
    ).seq
    log.approve(block, after=6_200)
    log.wait(call.ms)
    log.answer(block, call, seq)


def retried_log() -> TimedLog:
    """Two tries that fail, then a reply; then a turn that fails for good."""
    log = TimedLog("s9c1")
    log.begin("Import the nightly prices.", system=SYSTEM)
    log.offer(*TOOLS)
    busy = "Too many requests; the limit is 60 a minute"
    log.failed_try("I will read the ", "RATE_LIMIT", busy, status=429, delay=4_000)
    log.failed_try("I wi", "OVERLOADED", "upstream is busy", status=503, delay=12_000)
    log.work(
        "I will read the prices first.",
        Called(
            name="read_file", arguments={"path": "prices.csv"}, ms=60, result="sku,price\n" * 900
        ),
        Called(
            arguments={"command": "python -m shop.nightly --dry-run"},
            ms=5_200,
            result="Traceback (most recent call last):\nKeyError: 'EUR'",
            exit_code=1,
        ),
        usage=(5_400, 2_048, 77),
    )
    log.next_step()
    log.stream("The currency column is ", first=900)
    failure = records.LlmFailure(
        message="Insufficient balance", code="PAYMENT_REQUIRED", status=402
    )
    log.chunk(records.FinishChunk(reason=records.ErrorFinish(failure=failure)))
    log.end(records.ErrorTurnEnd(error=failure))
    return log


def compacted_log() -> TimedLog:
    """Much reading, a compaction in the middle of a turn, and the work after it."""
    log = TimedLog("s4d0")
    log.begin("Port the invoice templates to the new engine.", system=SYSTEM)
    log.offer(*TOOLS)
    for n in range(1, 13):
        log.work(
            f"Template {n} of 12.",
            Called(
                name="read_file",
                arguments={"path": f"templates/invoice_{n:02}.html"},
                ms=35,
                result=f"<table class='invoice-{n}'>\n" * 60,
            ),
            Called(
                name="write_file",
                arguments={"path": f"templates/new/invoice_{n:02}.html", "content": "…"},
                ms=25,
                result="created",
            ),
            usage=(900 + 40 * n, 7_000 + 7_600 * n, 140),
        )
        log.next_step()
    log.compact(
        "Twelve templates were read and ported to `templates/new/`. Open: the footer of "
        "invoice_07 uses a macro that the new engine lacks; Ada wants it inlined.",
        keep=3,
    )
    log.work(
        "Inlining the footer now.",
        Called(
            name="edit_file",
            arguments={"path": "templates/new/invoice_07.html", "old": "{% footer %}", "new": "…"},
            ms=30,
            result="edited",
        ),
        usage=(9_300, 0, 60),
    )
    log.next_step()
    log.work(
        "All twelve templates are ported; the footer of invoice 7 is inlined.",
        usage=(260, 9_216, 31),
    )
    log.end()
    return log


def long_log(events: int) -> TimedLog:
    """A session of at least so many events besides chunks, in turns of five steps."""
    log = TimedLog("s8e2")
    log.begin("Go through the whole repository.", system=SYSTEM)
    log.offer(*TOOLS)
    step = 0
    while log.session.next_seq < events:
        step += 1
        log.work(
            f"Part {step}: reading on, then running what belongs to it.",
            Called(
                name="read_file",
                arguments={"path": f"src/part_{step:04}.py"},
                ms=30 + step % 40,
                result=f"def part_{step}():\n    return {step}\n" * 8,
            ),
            Called(
                arguments={"command": f"pytest -q tests/test_part_{step:04}.py"},
                ms=400 + 37 * (step % 23),
                result="12 passed",
                exit_code=int(step % 29 == 0),
            ),
            usage=(500, 4_000 + step, 60),
        )
        if step % 5:
            log.next_step()
        else:
            log.end()
            log.wait(2_000 + 31_000 * (step % 35 == 0))
            log.begin(f"Go on with part {step + 1}.")
    log.end()
    return log
