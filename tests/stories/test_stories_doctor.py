"""`dsh doctor` and `dsh plugins`: what is wrong, where, and one thing to do about it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, cast

import pytest

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
