"""`dsh doctor` and `dsh plugins`: what is wrong, where, and one thing to do about it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, cast

import pytest

from dsh.catalog.records import LlmFailure
from dsh.llm import ScriptEntry
from dsh.testing.model_server import open_model_server

if TYPE_CHECKING:
    from pathlib import Path

    from dsh.testing.command_line import CommandLine, Ran

PLUGINS = """
from attrs import frozen
from dsh import Context, Next, catalog as ev, plugin
from dsh.kernel import ServiceKey, required

METER: ServiceKey[int] = ServiceKey("meter")
LEFT: ServiceKey[int] = ServiceKey("left")
RIGHT: ServiceKey[int] = ServiceKey("right")

@frozen
class NeedsMeter:
    meter: int = required(METER)

@frozen
class NeedsLeft:
    left: int = required(LEFT)

@frozen
class NeedsRight:
    right: int = required(RIGHT)

@plugin(name="meter", provides=(METER,))
async def meter(ctx: Context) -> None:
    ctx.provide(METER, 1)

@plugin(name="guard", deps=NeedsMeter)
async def guard(ctx: Context, config: None, deps: NeedsMeter) -> None: ...

@plugin(name="leftist", deps=NeedsRight, provides=(LEFT,))
async def leftist(ctx: Context, config: None, deps: NeedsRight) -> None: ...

@plugin(name="rightist", deps=NeedsLeft, provides=(RIGHT,))
async def rightist(ctx: Context, config: None, deps: NeedsLeft) -> None: ...

@plugin(name="failing")
async def failing(ctx: Context) -> None:
    raise RuntimeError("no licence")

@plugin(name="deaf-ear")
async def deaf_ear(ctx: Context) -> None:
    ctx.on(ev.fs.OBSERVED)(lambda seen: None)

    @ctx.on(ev.agent.PRE_STEP)
    async def watch(
        step: ev.agent.PreStep, call_next: Next[ev.agent.PreStepDecision]
    ) -> ev.agent.PreStepDecision:
        return await call_next()
"""
NAMES = ("meter", "guard", "leftist", "rightist", "failing", "deaf-ear")


@pytest.fixture
def foreign(cli: CommandLine, tmp_path: Path) -> CommandLine:
    """The command with a strange distribution of six plugins installed."""
    folder = tmp_path / "installed"
    meta = folder / "strange-2.0.dist-info"
    meta.mkdir(parents=True)
    (folder / "strange.py").write_text(PLUGINS, encoding="utf-8")
    (meta / "METADATA").write_text("Metadata-Version: 2.1\nName: strange\nVersion: 2.0\n")
    entries = "\n".join(f"{name} = strange:{name.replace('-', '_')}" for name in NAMES)
    (meta / "entry_points.txt").write_text(f"[dsh.plugins]\n{entries}\n")
    return cli.having(PYTHONPATH=f"{folder}:{cli.environment().get('PYTHONPATH', '')}")


async def doctor(cli: CommandLine, text: str, *arguments: str) -> Ran:
    (cli.workspace / "my.yml").write_text(text, encoding="utf-8")
    return await cli.run(
        "doctor", "--config", "my.yml", "--cwd", str(cli.workspace), "--profile", "demo", *arguments
    )


def findings(ran: Ran) -> list[dict[str, str]]:
    return [cast("dict[str, str]", json.loads(line)) for line in ran.lines]


@pytest.mark.holds("BO23")
async def test_all_is_well_in_the_demo(cli: CommandLine) -> None:
    ran = await doctor(cli, "")
    assert ran.code == 0
    assert ran.lines[-1].startswith("0 to fix, ")
    assert ran.err == ""
    assert [line.split()[1] for line in ran.lines if line.startswith("ok")] >= ["versions"]


@pytest.mark.holds("BO23")
async def test_every_row_that_cannot_run_is_named_with_its_remedy(foreign: CommandLine) -> None:
    ran = await doctor(
        foreign,
        "- {name: meter, disabled: true}\n- {name: guard}\n- {name: leftist}\n- {name: rightist}\n"
        "- {name: failing}\n",
        "--json",
    )
    assert ran.code == 1
    found = {one["text"].split("'")[1]: one for one in findings(ran) if one["what"] == "plugin"}
    guard = found["guard"]
    assert guard["status"] == "FAIL"
    assert "waits for service 'meter', which no mounted plugin provides" in guard["text"]
    assert "my.yml:2:3" in guard["text"]
    assert guard["do"] == "delete \"disabled: true\" of the row 'meter' (first at my.yml:1:3)"
    assert "they wait for each other: leftist → rightist → leftist" in found["leftist"]["text"]
    assert found["leftist"]["do"] == "disable one of leftist, rightist"
    assert "strange.py:37: RuntimeError: no licence" in found["failing"]["text"]
    assert "Traceback" not in ran.out + ran.err


@pytest.mark.holds("BO23")
async def test_it_works_with_a_broken_composition_and_skips_what_it_cannot_see(
    cli: CommandLine,
) -> None:
    ran = await doctor(cli, "- {name: shel}\n- {name: fs, config: {x: 1}}\n")
    assert ran.code == 1
    assert "FAIL  config     my.yml:1:3: no plugin named 'shel'" in ran.out
    assert "did you mean 'shell'?" in ran.out
    assert "do: edit my.yml:1:3" in ran.out
    assert "my.yml:2:" in ran.out
    assert "skip  plugin     skipped: the composition cannot be read" in ran.out
    assert "ok    sessions   0 readable" in ran.out
    assert ran.lines[-1] == "2 to fix, 0 to look at"


@pytest.mark.holds("BO23")
async def test_a_missing_key_is_to_fix_and_no_key_is_ever_shown(cli: CommandLine) -> None:
    ran = await cli.run("doctor")
    assert ran.code == 1
    assert "FAIL  key        deepseek: DEEPSEEK_API_KEY is not set" in ran.out
    assert "do: export it" in ran.out
    ran = await cli.having(DEEPSEEK_API_KEY="sk-very-secret").run("doctor")
    assert ran.code == 0
    assert "ok    key        deepseek: usable" in ran.out
    assert "sk-very-secret" not in ran.out + ran.err


@pytest.mark.holds("BO22", "BO23")
async def test_a_listener_that_can_never_run_is_named(foreign: CommandLine) -> None:
    ran = await doctor(foreign, "- {name: deaf-ear}\n- {id: fs, disabled: true}\n")
    assert ran.code == 0
    (line,) = [line for line in ran.lines if line.startswith("warn  listener")]
    assert "deaf-ear at " in line
    assert "strange.py:41" in line
    assert "can never run: fs/observed is told by 'fs', which is not active" in line
    assert ran.lines[-1].endswith("1 to look at")


@pytest.mark.holds("BO22")
async def test_plugins_lists_rows_with_their_origin_and_the_chain_of_an_event(
    foreign: CommandLine,
) -> None:
    (foreign.workspace / "my.yml").write_text("- {name: deaf-ear}\n", encoding="utf-8")
    common = ("--config", "my.yml", "--profile", "demo")
    ran = await foreign.run("plugins", *common)
    assert ran.code == 0
    rows = {line.split()[0]: line for line in ran.lines if not line.startswith(" ")}
    assert rows["sessions"].split() == ["sessions", "sessions", "dsh", "0", "active"]
    assert "strange 2.0" in rows["deaf-ear"]
    assert any(line.endswith("strange.py:43  ran 0") for line in ran.lines)
    ran = await foreign.run("plugins", "--order", "agent/pre-step", *common)
    assert [line.split()[:2] for line in ran.lines] == [["1", "permissions"], ["2", "deaf-ear"]]
    ran = await foreign.run("plugins", "--json", *common)
    views = findings(ran)
    assert views[-1]["id"] == "deaf-ear"
    assert {"state", "slot", "distribution", "listeners", "problem"} <= views[-1].keys()
    ran = await foreign.run("plugins", "--order", "agent/pre-stp", *common)
    assert ran.code == 2
    assert "did you mean 'agent/pre-step'?" in ran.err


@pytest.mark.holds("CL41")
async def test_one_session_is_looked_at_closely_and_its_remedies_are_named(
    cli: CommandLine,
) -> None:
    async with open_model_server([ScriptEntry(text="Done.")] * 2, strict=True) as server:
        here = cli.talking_to(server)
        for name in ("sound", "hurt"):
            assert (await here.run("run", "--session", name, "hi")).code == 0
        ran = await here.run("doctor", "sound")
        assert ran.code == 0
        assert "ok    session    sound is sound: 1 turn" in ran.out
        (log,) = (path for path in cli.home.rglob("*.jsonl") if "hurt" in str(path))
        lines = log.read_bytes().splitlines(keepends=True)
        ends = max(at for at, line in enumerate(lines) if b'"turn/end"' in line)
        log.write_bytes(b"".join(lines[:ends]))
        ran = await here.run("doctor", "hurt")
        assert ran.code == 0
        assert "warn  session    hurt: turn 1 was interrupted; the next resume closes it" in ran.out
        assert "do: dsh chat --resume hurt" in ran.out
        log.write_bytes(b"no log\n")
        ran = await here.run("doctor", "hurt")
        assert ran.code == 1
        assert "do: dsh sessions salvage hurt" in ran.out
        cli.workspace.rmdir()
        away = await here.run("doctor", "sound", "--json", cwd=cli.home)
        assert away.code == 1
        (gone,) = [one for one in findings(away) if one["what"] == "session"]
        assert gone["do"] == f"mkdir -p {cli.workspace}"


@pytest.mark.holds("CL41")
async def test_online_asks_the_model_once_and_offline_never(cli: CommandLine) -> None:
    denied = ScriptEntry(error=LlmFailure(message="who are you?", code="AUTH", status=401))
    async with open_model_server([ScriptEntry(text="ok"), denied], strict=True) as server:
        here = cli.talking_to(server)
        assert (await here.run("doctor")).code == 0
        assert server.requests == []
        ran = await here.run("doctor", "--online")
        assert ran.code == 0
        assert "ok    online     deepseek/deepseek-chat answered in" in ran.out
        ran = await here.run("doctor", "--online")
        assert ran.code == 1
        assert "FAIL  online     deepseek/deepseek-chat: AUTH: " in ran.out
        assert len(server.requests) == 2
    nobody = cli.having(DEEPSEEK_API_KEY="sk-test", DEEPSEEK_BASE_URL="http://127.0.0.1:9/v1")
    ran = await nobody.run("doctor", "--online")
    assert ran.code == 1
    assert "cannot connect to http://127.0.0.1:9" in ran.out
    assert "do: check that it runs" in ran.out


@pytest.mark.holds("CL41")
async def test_each_value_says_where_it_was_written_and_headers_stay_hidden(
    cli: CommandLine,
) -> None:
    rows = (
        "- id: openai-chat\n  config:\n    providers:\n      mine:\n"
        "        baseUrl: http://127.0.0.1:9/v1\n        headers: {X-Secret: canary}\n"
    )
    ran = await doctor(cli, rows, "--values", "--profile", "headless", "--set", "fs.x=1")
    assert ran.code == 1  # fs takes no x
    ran = await doctor(cli, rows, "--values", "--profile", "headless")
    assert "openai-chat.providers.mine.baseUrl = 'http://127.0.0.1:9/v1'   my.yml:5:18" in ran.out
    assert "openai-chat.providers.mine.headers.X-Secret = (hidden)   my.yml:6:" in ran.out
    assert "permissions.ask = 'deny'   profile headless" in ran.out
    assert "canary" not in ran.out + ran.err
