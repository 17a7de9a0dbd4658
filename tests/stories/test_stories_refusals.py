"""What goes wrong before and at the first request: one sentence, the right code, no traceback."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dsh.llm import ScriptedCall, ScriptEntry
from dsh.testing.command_line import CommandLine, refused
from dsh.testing.model_server import error_reply, open_model_server

if TYPE_CHECKING:
    from pathlib import Path

HELLO = ScriptEntry(text="hello")
NO_ONE = "http://127.0.0.1:9/v1"


@pytest.mark.holds("CL10")
async def test_no_key(cli: CommandLine) -> None:
    refused(await cli.run("run", "hi"), "DEEPSEEK_API_KEY is not set", "--profile demo", code=2)
    assert (await cli.run("sessions", "list", "--all")).out == ""


@pytest.mark.holds("CL10", "case-087")
@pytest.mark.parametrize(
    "key",
    ["sk-abc\n", " sk-abc ", "Bearer sk-abc", "sk-\u200babc", "", "sk-abc\r\nX-Evil: 1"],
)
async def test_a_key_that_no_header_can_carry(cli: CommandLine, key: str) -> None:
    async with open_model_server([HELLO]) as server:
        ran = await cli.talking_to(server).having(DEEPSEEK_API_KEY=key).run("run", "hi")
    said = refused(ran, "DEEPSEEK_API_KEY", code=2)
    assert "abc" not in said
    assert server.requests == []


@pytest.mark.holds("CL10", "case-087")
async def test_a_wrong_key_is_named_and_not_shown(cli: CommandLine) -> None:
    words = {
        "error": {"message": "Your api key: sk-test-key is invalid", "code": "invalid_api_key"}
    }
    async with open_model_server([error_reply(401, words)]) as server:
        ran = await cli.talking_to(server).run("run", "hi")
    said = refused(ran, "the turn failed: AUTH (401)", "DEEPSEEK_API_KEY", code=1)
    assert "sk-test-key" not in said
    for log in cli.home.rglob("*.jsonl"):
        assert "sk-test-key" not in log.read_text(encoding="utf-8")


@pytest.mark.holds("CL10")
async def test_an_unreachable_server(cli: CommandLine) -> None:
    here = cli.having(DEEPSEEK_API_KEY="k", DEEPSEEK_BASE_URL=NO_ONE)
    policy = '{"mode":"normal","maxRetries":0}'
    once = ("--set", f'openai-chat.providers={{"deepseek":{{"retryPolicy":{policy}}}}}')
    refused(await here.run("run", *once, "hi"), "TRANSPORT", "http://127.0.0.1:9", code=1)


@pytest.mark.holds("CL10")
async def test_an_unreachable_server_is_tried_again_and_each_try_is_told(cli: CommandLine) -> None:
    here = cli.having(DEEPSEEK_API_KEY="k", DEEPSEEK_BASE_URL=NO_ONE)
    policy = '{"mode":"normal","maxRetries":2,"initialDelayMs":1,"maxDelayMs":2}'
    twice = ("--set", f'openai-chat.providers={{"deepseek":{{"retryPolicy":{policy}}}}}')
    ran = await here.run("run", *twice, "hi")
    *tries, last = ran.err.splitlines()[1:]
    assert ran.code == 1
    told = [line.split(" in ")[0] for line in tries]
    assert told == ["TRANSPORT, try 2 of 3", "TRANSPORT, try 3 of 3"]
    assert last.startswith("dsh: the turn failed: TRANSPORT: cannot connect to http://127.0.0.1:9")


@pytest.mark.holds("CL10")
async def test_an_unknown_model(cli: CommandLine) -> None:
    words = {"error": {"message": "Model Not Exist", "code": "invalid_request_error"}}
    async with open_model_server([error_reply(404, words)]) as server:
        ran = await cli.talking_to(server).run("run", "--model", "no-such", "hi")
    refused(ran, "404", "Model Not Exist", code=1)


@pytest.mark.holds("CL10")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--provider", "deepsek", "--model", "m"], ("'deepsek'", "did you mean 'deepseek'?")),
        (["--provider", "deepsek"], ("'deepsek'", "did you mean 'deepseek'?")),
        (["--profile", "headles"], ("no profile named 'headles'; did you mean 'headless'?",)),
        (["--set", "agent-loop.maxParalelToolCalls=1"], ("did you mean 'maxParallelToolCalls'?",)),
        (
            ["--set", "agent-loop.maxParallelToolCalls=many"],
            ("expected a whole number, got text 'many'",),
        ),
        (
            ["--set", "agentloop.x=1"],
            ("no row with the id 'agentloop'; did you mean 'agent-loop'?",),
        ),
        (["--cwd", "/no/such/place"], ("no such workspace: /no/such/place", "--cwd")),
        (["--cwd", "/dev/null"], ("is not a directory",)),
        (["--config", "none.yml"], ("no composition file none.yml",)),
        (["--allow", ":x"], ("--allow ':x' names no tool",)),
        (["--session", "a", "--resume", "b"], ("not allowed with",)),
        (["--resume", "none"], ("no session 'none' is stored",)),
        (["--resume", "last"], ("no session was run in", "yet")),
        (
            ["--sesion", "a"],
            ("unknown option '--sesion'; did you mean '--session'?", "dsh run --help"),
        ),
    ],
)
async def test_a_mistake_on_the_command_line(
    cli: CommandLine, arguments: list[str], words: tuple[str, ...]
) -> None:
    here = cli.having(DEEPSEEK_API_KEY="k", DEEPSEEK_BASE_URL=NO_ONE)
    refused(await here.run("run", *arguments, "hi"), *words, code=2)


@pytest.mark.holds("CL10")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "- name: token-budgit\n",
            ("c.yml:1:3: no plugin named 'token-budgit'", "did you mean 'token-budget'?"),
        ),
        (
            "- {id: fs, confg: {}}\n",
            ("c.yml:1:12: unknown key 'confg' in a row; did you mean 'config'?",),
        ),
        (
            "- {name: token-budget, config: {maxTurnToken: 5}}\n",
            ("c.yml:1:33:", "did you mean 'maxTurnTokens'?"),
        ),
        (
            "- {name: token-budget, config: {maxTurnTokens: '5'}}\n",
            ("c.yml:1:48:", "expected a whole number, got text '5'; write it without quotes"),
        ),
        ("- {name: token-budget, config: {maxTurnTokens: [}}\n", ("not valid YAML", "c.yml:1:49")),
        ("name: fs\n", ("c.yml:1:1: a composition is a list of rows",)),
        (
            "- {id: openai-chat, config: {providers: {deepseek: {apiKeyEnv: sk-abc-def}}}}\n",
            ("name of an environment variable",),
        ),
    ],
)
async def test_a_mistake_in_the_composition(
    cli: CommandLine, text: str, words: tuple[str, ...]
) -> None:
    (cli.workspace / "c.yml").write_text(text, encoding="utf-8")
    here = cli.having(DEEPSEEK_API_KEY="k", DEEPSEEK_BASE_URL=NO_ONE)
    said = refused(await here.run("run", "--config", "c.yml", "hi"), *words, code=2)
    assert "sk-abc" not in said


@pytest.mark.holds("CL10", "BO4")
async def test_all_mistakes_of_a_composition_come_at_once(cli: CommandLine) -> None:
    (cli.workspace / "c.yml").write_text("- name: nope\n- {name: fs, config: {a: 1}}\n", "utf-8")
    ran = await cli.run("run", "--config", "c.yml", "--set", "x.y=1", "hi")
    refused(
        ran, "3 mistakes; nothing was started", "nope", "fs: unknown key 'a'", "--set x.y", code=2
    )


@pytest.mark.holds("BO8")
async def test_a_found_project_file_may_not_send_the_key_elsewhere(cli: CommandLine) -> None:
    async with open_model_server([HELLO]) as server:
        text = "- {id: openai-chat, config: {providers: {deepseek: {baseUrl: '%s'}}}}\n"
        (cli.workspace / "dsh.yml").write_text(text % server.base_url, encoding="utf-8")
        here = cli.having(DEEPSEEK_API_KEY="k", DEEPSEEK_BASE_URL=NO_ONE)
        refused(await here.run("run", "hi"), "dsh.yml:1:30", "--config dsh.yml", code=2)
        assert server.requests == []
        accepted = await here.run("run", "--config", "dsh.yml", "hi")
    assert (accepted.code, accepted.out) == (0, "hello\n")


@pytest.mark.holds("CL10")
async def test_an_unwritable_state_directory_stops_everything_first(cli: CommandLine) -> None:
    (cli.home / "file").touch()
    async with open_model_server([HELLO]) as server:
        here = cli.talking_to(server).having(DSH_HOME=str(cli.home / "file"))
        refused(await here.run("run", "hi"), "state directory", "set DSH_HOME", code=2)
        assert server.requests == []


@pytest.mark.holds("CL10")
async def test_a_workspace_that_is_gone(cli: CommandLine, tmp_path: Path) -> None:
    here = cli.having(DEEPSEEK_API_KEY="k")
    refused(
        await here.run("run", "--cwd", str(tmp_path / "gone"), "hi"), "no such workspace", code=2
    )


@pytest.mark.holds("CL6", "CL10")
async def test_headless_bash_without_allow_is_denied_and_said(cli: CommandLine) -> None:
    call = ScriptedCall(name="bash", arguments='{"command": "touch made"}')
    async with open_model_server([ScriptEntry(tools=(call,)), HELLO], strict=True) as server:
        ran = await cli.talking_to(server).run("run", "hi")
    assert (ran.code, ran.out) == (0, "hello\n")
    assert "denied bash by permissions: " in ran.err
    assert "--allow bash" in ran.err
    assert not (cli.workspace / "made").exists()


@pytest.mark.holds("CL4")
async def test_an_allowed_tool_that_is_none_is_said(cli: CommandLine) -> None:
    async with open_model_server([HELLO], strict=True) as server:
        allowed = ("--allow", "bsh:make *", "--allow", "mcp_*", "--allow", "bash")
        ran = await cli.talking_to(server).run("run", *allowed, "hi")
    assert (ran.code, ran.out) == (0, "hello\n")
    warning = "warning: --allow bsh:make *: there is no tool 'bsh'; did you mean 'bash'?\n"
    assert warning in ran.err
    assert ran.err.count("warning: --allow") == 1


@pytest.mark.holds("CL10")
async def test_a_provider_of_the_settings_needs_a_model(cli: CommandLine) -> None:
    rows = "- {name: openai-chat, config: {providers: {local: {baseUrl: 'http://127.0.0.1:9'}}}}\n"
    (cli.home / "settings.yml").write_text(rows, encoding="utf-8")
    ran = await cli.run("run", "--provider", "local", "hi")
    refused(ran, "which model of 'local'?", "--model", code=2)


@pytest.mark.holds("CL10")
async def test_prompts_that_are_none(cli: CommandLine) -> None:
    refused(await cli.run("run"), "what should it do?", code=2)
    refused(await cli.run("run", " "), "the prompt is empty", code=2)
    refused(await cli.run("run", "-", stdin=b""), "the prompt is empty", code=2)
    refused(
        await cli.run("run", "-", stdin=b"\xff"), "standard input is not UTF-8 (byte 0)", code=2
    )


@pytest.mark.holds("CL10")
async def test_a_session_that_is_open_elsewhere(cli: CommandLine) -> None:
    stall = ScriptEntry(text="x", delay=60)
    async with open_model_server([stall, HELLO]) as server:
        here = cli.talking_to(server)
        async with here.running("run", "--session", "s1", "hi") as first:
            await server.when_requests(1)
            refused(await here.run("run", "--session", "s1", "hi"), "s1", "pid", code=2)
            first.kill()
