"""The log says where each rule in force was written: which layer, which line of which file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsh import catalog as ev
from dsh import user_message
from dsh.boot import Harness, ProcessEnviron, Row, open_harness
from dsh.seams.approval import SESSION_RULES
from dsh.session import SESSIONS
from dsh_plugins.permissions.catalog import permissions as events

if TYPE_CHECKING:
    from pathlib import Path

SCRIPTED = ev.records.AgentOptions(provider="scripted", model="scripted")
FILE = """
- name: permissions
  config:
    rules:
      - {decision: deny, tool: bash, pattern: 'rm *'}
"""


def told(harness: Harness) -> list[events.Rules]:
    session = harness.service(SESSIONS).get("mine")
    assert session is not None
    return [event.data for event in session.events if isinstance(event.data, events.Rules)]


def written(rules: events.Rules) -> list[tuple[str, str]]:
    named = (f"{rule.decision} {rule.tool}" for rule in rules.rules)
    return list(zip(named, rules.sources, strict=True))


async def test_each_rule_has_its_layer_and_an_edit_and_the_session_are_told_too(
    tmp_path: Path,
) -> None:
    file = tmp_path / "house.yml"
    file.write_text(FILE, encoding="utf-8")
    script = Row(name="scripted", config={"script": ({"text": "Done."},) * 2})
    given = {"decision": "allow", "tool": "glob"}
    async with open_harness(
        file,
        profile="demo",
        rows=(script, Row(name="permissions", config={"rules": (given,)}, source="--allow")),
        home=tmp_path / "home",
        cwd=tmp_path,
        environ=ProcessEnviron({}),
    ) as harness:
        handle = await harness.agents.create("mine", options=SCRIPTED, cwd=str(tmp_path))
        await handle.agent.ask(user_message("go"))
        (first,) = told(harness)
        places = written(first)
        assert places[0] == ("deny bash", f"{file}:5:9")
        assert ("allow write_file", "profile demo") in places
        assert ("allow glob", "--allow") in places
        assert ("allow grep", "built-in") in places
        assert set(first.source.split(", ")) == {str(file), "profile demo", "--allow", "built-in"}

        harness.service(SESSION_RULES).remember(handle.agent, "bash", {"command": "make"})
        assert written(told(harness)[-1])[1] == ("allow bash", "session")
        assert told(harness)[-1].source.endswith(", session")

        file.write_text(FILE.replace("deny", "ask") + "\n", encoding="utf-8")
        await harness.live.recompose()
        await handle.agent.ask(user_message("go on"))
        assert ("ask bash", f"{file}:5:9") in written(told(harness)[-1])
