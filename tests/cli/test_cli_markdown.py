"""A session as Markdown: what is told, what is counted, and that nothing foreign gets out."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from dsh import catalog as ev
from dsh.catalog import records
from dsh.cli.sessions.looking import Found
from dsh.cli.sessions.markdown import markdown
from dsh.testing import LogWriting
from dsh.testing.trajectory_samples import compacted_log, parallel_log, retried_log

if TYPE_CHECKING:
    from dsh.session import Session


def told(session: Session, *, turn: int | None = None, damage: str | None = None) -> str:
    found = Found(id=session.id, header=session.header, events=tuple(session.events), damage=damage)
    return "\n".join(markdown(found, turn=turn))


@pytest.mark.holds("CL50")
def test_turns_prompts_replies_and_calls_are_told() -> None:
    log = LogWriting(session_id="s1")
    log.whole_turn("Fix the test", "I ", "will.", calls=("c1",), result="two\nlines")
    log.whole_turn("And the docs")
    text = told(log.session)
    assert text.startswith("# Session `s1`\n\n- title: `Fix the test`\n- begun: ")
    assert "- in: `/work`" in text
    turn = """
## Turn 1

**Prompt**

> Fix the test

**Reply**

> I will.

**Tool** `bash`: `2 lines`

```
two
lines
```

*Turn 1:* `done`

## Turn 2
"""
    assert turn in text
    alone = told(log.session, turn=2)
    assert alone.startswith("\n## Turn 2\n\n**Prompt**\n\n> And the docs\n")


@pytest.mark.holds("CL50")
def test_a_long_output_is_cut_and_counted_with_the_command_that_shows_it() -> None:
    log = LogWriting(session_id="s1")
    log.whole_turn("go", calls=("c1",), result="\n".join(f"line {n}" for n in range(45)))
    text = told(log.session)
    assert "line 39\n```\n\n*5 more lines: `dsh sessions show s1 --seq " in text
    assert "line 40" not in text


@pytest.mark.holds("CL50")
def test_nothing_foreign_becomes_a_part_of_the_document() -> None:
    hostile = "x\n## Turn 9\n```\n<img src=x>\n````\n@somebody\x1b[31m"
    log = LogWriting(session_id="s1")
    log.whole_turn(hostile, hostile, calls=("c1",), result=hostile)
    log.turn_start()
    failure = records.LlmFailure(message=hostile, code="C`<b>")
    log.turn_end(records.ErrorTurnEnd(error=failure))
    text = told(log.session, damage=hostile)
    assert "\x1b" not in text
    outside = re.sub(r"^(`{3,}).*?^\1$", "", text, flags=re.DOTALL | re.MULTILINE)
    bare = re.sub(r"`[^`\n]*`", "", outside)
    assert "<" not in bare
    assert "@" not in bare
    assert re.findall(r"^## .*", outside, flags=re.MULTILINE) == ["## Turn 1", "## Turn 2"]


@pytest.mark.holds("CL50")
def test_tries_compactions_and_what_no_person_wrote_are_said() -> None:
    retried = told(retried_log().session)
    assert "tried again after" in retried
    assert "*The history was compacted here.*" in told(compacted_log().session)
    assert told(parallel_log().session).count("**Tool**") > 1
    log = LogWriting(session_id="s1")
    log.turn_start()
    log.step_start()
    message = records.UserMessage(
        id="m1",
        content=(records.TextBlock(text="a reminder"),),
        source=records.PluginSource(plugin="repeat-reminder"),
    )
    log.session.append(ev.user.Message(message=message), surface=records.Append())
    text = told(log.session)
    assert "a reminder" not in text
    assert "*Not told: 1 message of plugins; `dsh sessions messages s1` has them.*" in text
