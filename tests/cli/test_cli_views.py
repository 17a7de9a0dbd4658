"""Views of a log: the progress of a run, the story of a session, the requests of its steps."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from dsh import catalog as ev
from dsh.catalog import records
from dsh.cli.screen.outlet import Outlet
from dsh.cli.screen.outputs import Screen
from dsh.cli.screen.progress import Progress
from dsh.cli.sessions.looking import Found
from dsh.cli.sessions.positions import steps_of
from dsh.cli.sessions.requests import request_at
from dsh.cli.sessions.story import size_in_words, story
from dsh.errors import UsageError
from dsh.hooks import Logged
from dsh.testing import LogWriting
from dsh.testing.trajectory_samples import compacted_log, parallel_log, retried_log
from dsh.wire import UnknownEvent

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dsh.testing.trajectories import TimedLog


def shown(log: LogWriting, *, stream: bool, verbose: bool = False) -> tuple[str, str]:
    """What a run shows of this log, on standard output and on standard error."""
    pipes = [os.pipe(), os.pipe()]
    out, err = (Outlet(writer, "x") for _, writer in pipes)
    screen = Screen(out, err, colored=False, width=60)
    progress = Progress(screen, stream=out if stream else None, verbose=verbose)
    for event in log.session.events:
        assert not isinstance(event.data, UnknownEvent)
        progress.see(Logged(event.seq, event.time, event.data, log.session))
    texts: list[str] = []
    for reader, writer in pipes:
        os.close(writer)
        texts.append(os.read(reader, 1 << 20).decode())
        os.close(reader)
    return texts[0], texts[1]


def call(log: LogWriting, call_id: str, name: str, arguments: str) -> int:
    return log.session.append(
        ev.tool.Call(turn=log.turn, step=log.step, call_id=call_id, name=name, arguments=arguments)
    ).seq


def result(
    log: LogWriting,
    call_id: str,
    text: str,
    seq: int,
    *,
    error: str | None = None,
    decided_by: str | None = None,
    meta: dict[str, int] | None = None,
) -> None:
    message = records.ToolResultMessage(
        id=f"r-{call_id}",
        content=(records.TextBlock(text=text),),
        source=records.ToolSource(call_id=call_id),
        tool_call_id=call_id,
        is_error=error is not None,
    )
    log.session.append(
        ev.tool.Result(
            turn=log.turn,
            step=log.step,
            message=message,
            error=records.ToolErrorInfo(name="X", code=error) if error is not None else None,
            decided_by=decided_by,
            meta=meta,
        ),
        surface=records.Append(),
        sources=(seq,),
    )


def working_turn() -> LogWriting:
    log = LogWriting()
    log.turn_start()
    log.step_start()
    log.user("fix\x1b[2J it")
    log.reply("Let me see.", calls=("c1", "c2"), sources=log.chunks("Let me ", "see."))
    seq = call(log, "c1", "bash", '{"command": "pytest -q\\n"}')
    result(log, "c1", "one\ntwo\nthree\nfour\x07\n", seq, meta={"exit_code": 1})
    seq = call(log, "c2", "write_file", '{"path": "a.txt", "content": "x"}')
    result(log, "c2", "nobody to ask", seq, error="DENIED", decided_by="permissions")
    log.step_end()
    log.turn_end()
    return log


@pytest.mark.holds("CL5")
def test_text_streams_to_the_terminal_and_tools_stand_on_standard_error() -> None:
    out, err = shown(working_turn(), stream=True)
    assert out == "Let me see.\n"
    assert err.splitlines() == [
        "  bash       pytest -q",
        "             exit 1 · 0.0 s · 1 more lines",
        "             two",
        "             three",
        "             four\\x07",
        "  write_file a.txt",
        "             denied by permissions · 0.0 s",
        "             nobody to ask",
        "-- turn 1 done · 1 step · 0.0 s --",
    ]


@pytest.mark.holds("CL5", "CL6")
def test_in_a_pipe_only_denials_are_said() -> None:
    assert shown(working_turn(), stream=False) == (
        "",
        "denied write_file by permissions: nobody to ask\n",
    )


@pytest.mark.holds("CL5")
def test_verbose_says_a_line_per_tool_in_a_pipe() -> None:
    _, err = shown(working_turn(), stream=False, verbose=True)
    assert err.splitlines() == [
        "1.1 bash pytest -q: exit 1, 0.0 s",
        "1.1 write_file a.txt: denied by permissions, 0.0 s",
        "denied write_file by permissions: nobody to ask",
    ]


@pytest.mark.holds("CL5")
def test_a_tool_line_never_stands_in_the_middle_of_streamed_text() -> None:
    log = LogWriting()
    log.turn_start()
    log.step_start()
    log.chunks("half a li")
    call(log, "c1", "bash", "{}")
    log.chunks("ne\n")
    out, _ = shown(log, stream=True)
    assert out == "half a li\nne\n"


@pytest.mark.holds("CL7")
def test_text_of_a_failed_attempt_is_marked_as_cut_off() -> None:
    log = LogWriting()
    log.turn_start()
    log.step_start()
    log.chunks("first try")
    failure = records.LlmFailure(message="slow \x1b down", code="RATE_LIMIT", status=429)
    for number in (1, 2):
        log.session.append(
            ev.llm.Retry(
                retry_id="r1", turn=1, step=1, provider="p", plugin="llm-retry", mode="normal",
                policy_key="k", retry=number, max_retries=4, delay_ms=12_000, failure=failure,
            )
        )  # fmt: skip
    out, err = shown(log, stream=True)
    assert out == "first try\n"
    assert err.splitlines() == [
        "(cut off; the model will not see this)",
        'RATE_LIMIT (429), try 2 of 5 in 12.0 s [llm-retry]: "slow \\x1b down" · Ctrl-C stops',
        "RATE_LIMIT (429), try 3 of 5 in 12.0 s [llm-retry]: the same again",
    ]


@pytest.mark.holds("CL5")
@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (records.AbortedTurnEnd(reason=records.UserCause()), "stopped by you"),
        (records.AbortedTurnEnd(reason=records.HookCause(reason="x")), "stopped by a plugin: x"),
        (records.AbortedTurnEnd(reason=records.ParentCause()), "stopped by the agent above"),
        (records.AbortedTurnEnd(reason=records.DisposedCause()), "stopped by the end of"),
        (
            records.BlockedTurnEnd(reason="too much", plugin="token-budget"),
            "blocked by token-budget: too much",
        ),
        (records.MaxTokensTurnEnd(), "max tokens"),
        (records.InterruptedTurnEnd(), "interrupted by a crash"),
        (records.ErrorTurnEnd(error=records.LlmFailure(message="m", code="c")), "failed"),
    ],
)
def test_the_last_line_says_how_the_turn_ended(reason: records.TurnEndReason, words: str) -> None:
    log = LogWriting()
    log.turn_start()
    log.turn_end(reason)
    assert words in shown(log, stream=True)[1]


TRIED = (
    "1.1 try 2 OVERLOADED (503), waited 12.0 s: upstream is busy tried again · llm-retry 0.7 s #12"
)


def found(log: LogWriting | TimedLog, **what: str | None) -> Found:
    session = log.session
    return Found(id=session.id, header=session.header, events=tuple(session.events), **what)


def squeezed(lines: Iterable[str]) -> list[str]:
    return [" ".join(line.split()) for line in lines]


@pytest.mark.holds("CL8")
def test_a_story_has_a_line_for_each_record_with_its_seq() -> None:
    lines = list(story(found(working_turn(), torn="9 bytes"), width=72))
    assert squeezed(lines[3:]) == [
        "",
        "turn 1 done 0.0 s",
        "you fix\\x1b[2J it #2",
        "1.1 Let me see. 0.0 s #5",
        "bash pytest -q exit 1 0.0 s #6",
        "write_file a.txt denied by permissions 0.0 s #8",
        "the last line is unfinished: 9 bytes; the next resume cuts it off",
    ]
    assert len({len(line) for line in lines[5:-1]}) == 1
    assert max(len(line) for line in lines) <= 72


@pytest.mark.holds("CL8", "P8")
def test_a_story_tells_overlaps_approvals_denials_and_sums() -> None:
    lines = squeezed(story(found(parallel_log()), width=100))
    assert lines[0].startswith('session s7f3 "The rounding test')
    assert lines[0].endswith("stopped by you")
    assert lines[1] == "model deepseek/deepseek-chat 76 events, 3 turns, 7 steps"
    assert lines[2] == (
        "time 2 min 24 s: model 10.2 s · tools 12.0 s · waiting 2 min 02 s · 1 error"
    )
    for told in (
        "turn 1 done 24.6 s in 32.1k (71% cached) · out 427",
        "4 tools together 2.6 s, one by one 8.3 s",
        "you only invoices, please steered #20",
        "approval bash: no rule for bash allowed-once 6.2 s #38",
        "bash git push origin main denied by permissions 0.0 s #54",
        "turn 3 stopped by you 1.5 s",
        "3.1 One line of cut off 1.5 s #70",
    ):
        assert told in lines, told
    assert lines[-1].startswith(
        "not told: 2 records (settings, queued messages, events of plugins)"
    )


@pytest.mark.holds("CL8")
def test_a_story_tells_tries_compactions_and_what_is_damaged() -> None:
    lines = squeezed(story(found(retried_log(), damage="x.jsonl:9: not JSON"), width=140))
    for told in (
        TRIED,
        "!! PAYMENT_REQUIRED: Insufficient balance",
        "damaged: x.jsonl:9: not JSON",
    ):
        assert told in lines, lines
    lines = squeezed(story(found(compacted_log()), width=110))
    assert "--- compaction 34 messages -> 1, 101.0k -> 9.2k tokens 4.0 s #149" in lines


@pytest.mark.holds("CL8")
def test_a_story_can_be_of_one_turn() -> None:
    log = LogWriting()
    log.whole_turn("first")
    log.whole_turn("second")
    text = "\n".join(story(found(log), width=80, turn=2))
    assert "second" in text
    assert "first" not in text


@pytest.mark.holds("CL9")
def test_the_request_of_a_step_is_what_stood_before_its_reply() -> None:
    log = LogWriting()
    log.whole_turn("first", "one", calls=("c1",))
    log.whole_turn("second", "two")
    events = log.session.events
    assert steps_of(events) == ((1, 1), (2, 1))
    assert [message.role for message in request_at(events, "1.1")] == ["user"]
    sent = [message.role for message in request_at(events, "2.1")]
    assert sent == ["user", "assistant", "tool", "user"]
    assert [message.role for message in request_at(events, None)] == [*sent, "assistant"]


@pytest.mark.holds("CL9")
def test_a_step_without_reply_shows_its_request_too() -> None:
    log = LogWriting()
    log.turn_start()
    log.step_start()
    log.user("hi")
    log.chunks("par")
    log.step_end()
    log.turn_end(records.AbortedTurnEnd(reason=records.UserCause()))
    assert len(request_at(log.session.events, "1.1")) == 1


@pytest.mark.holds("CL9")
@pytest.mark.parametrize(
    ("step", "message"),
    [("1", "write TURN.STEP"), ("a.b", "write TURN.STEP"), ("9.9", "its last one is 1.1")],
)
def test_a_step_that_is_not_there_is_refused(step: str, message: str) -> None:
    log = LogWriting()
    log.whole_turn()
    with pytest.raises(UsageError, match=message):
        request_at(log.session.events, step)
    with pytest.raises(UsageError, match="no step yet"):
        request_at((), None)


def test_sizes_read_like_sizes() -> None:
    assert [size_in_words(n) for n in (999, 71_000, 1_234_567)] == ["999 B", "71 kB", "1.2 MB"]
