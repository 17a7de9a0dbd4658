"""Runs that work: long conversations, permissions, budgets, foreign plugins that fail."""

from __future__ import annotations

import orjson
import pytest
from attrs import evolve

from dsh.catalog.records import Usage
from dsh.llm import ScriptedCall, ScriptEntry
from dsh.testing.command_line import CommandLine, refused
from dsh.testing.model_server import open_model_server

DONE = ScriptEntry(text="done")


def bash(command: str) -> ScriptEntry:
    arguments = orjson.dumps({"command": command}).decode()
    return ScriptEntry(tools=(ScriptedCall(name="bash", arguments=arguments),))


async def test_fifty_tool_steps_over_one_connection(cli: CommandLine) -> None:
    steps = [bash(f"echo step {number}") for number in range(50)]
    async with open_model_server([*steps, DONE], strict=True) as server:
        ran = await cli.talking_to(server).run(
            "run", "--provider", "deepseek", "--model", "m", "--allow", "bash:echo *", "go"
        )
    assert (ran.code, ran.out) == (0, "done\n")
    assert (len(server.requests), server.connections, server.refusals) == (51, 1, [])


@pytest.mark.holds("CL6")
@pytest.mark.parametrize(
    ("arguments", "made"),
    [
        (["--allow", "bash"], True),
        (["--allow", "bash:touch *"], True),
        (["--allow", "bash:rm *"], False),
        (["--allow", "write_file"], False),
        (["--yolo"], True),
        ([], False),
    ],
)
async def test_allow_and_yolo_are_rules(
    cli: CommandLine, arguments: list[str], *, made: bool
) -> None:
    async with open_model_server([bash("touch made"), DONE]) as server:
        ran = await cli.talking_to(server).run("run", *arguments, "go")
    assert ran.code == 0
    assert (cli.workspace / "made").exists() == made
    assert ("denied bash by permissions" in ran.err) == (not made)


@pytest.mark.holds("CL6", "BO2")
async def test_a_rule_of_the_project_that_denies_is_stronger_than_allow_and_yolo(
    cli: CommandLine,
) -> None:
    rule = (
        "- {id: permissions, config: {rules: [{decision: deny, tool: bash, pattern: 'touch *'}]}}\n"
    )
    (cli.workspace / "dsh.yml").write_text(rule, encoding="utf-8")
    async with open_model_server([bash("touch made"), DONE]) as server:
        await cli.talking_to(server).run("run", "--yolo", "--allow", "bash", "go")
    assert not (cli.workspace / "made").exists()


@pytest.mark.holds("BO10", "case-087")
async def test_no_key_reaches_a_command_or_the_log(cli: CommandLine) -> None:
    async with open_model_server([bash("env | sort > seen"), DONE]) as server:
        here = cli.talking_to(server).having(OTHER_TOKEN="tok-123", PLAIN="visible")
        ran = await here.run("run", "--yolo", "--json", "go")
    seen = (cli.workspace / "seen").read_text(encoding="utf-8")
    assert "PLAIN=visible" in seen
    for secret in ("sk-test-key", "tok-123"):
        assert secret not in seen
        assert secret not in ran.out + ran.err


@pytest.mark.holds("CL10")
async def test_a_turn_that_a_budget_blocks_is_exit_three(cli: CommandLine) -> None:
    text = "- {name: token-budget, config: {maxTurnTokens: 1}}\n"
    (cli.workspace / "dsh.yml").write_text(text, encoding="utf-8")
    costly = evolve(bash("true"), usage=Usage(input_tokens=500, output_tokens=5))
    async with open_model_server([costly, DONE]) as server:
        ran = await cli.talking_to(server).run("run", "--yolo", "go")
    refused(ran, "blocked by token-budget", code=3)


@pytest.mark.holds("CL10")
async def test_a_reply_cut_at_the_output_cap_is_exit_three(cli: CommandLine) -> None:
    async with open_model_server([ScriptEntry(text="half", finish="max-tokens")]) as server:
        ran = await cli.talking_to(server).run("run", "go")
    assert (ran.code, ran.out) == (3, "half\n")
    assert "output cap" in ran.err


@pytest.mark.holds("CL10")
async def test_debug_shows_the_traceback_of_a_refusal(cli: CommandLine) -> None:
    ran = await cli.run("run", "--debug", "hi")
    assert ran.code == 2
    assert "Traceback" in ran.err
    assert "MissingCredential" in ran.err
