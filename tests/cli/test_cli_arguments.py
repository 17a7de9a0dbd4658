"""The grammar of the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsh.cli.grammar.arguments import RunOptions, read_arguments
from dsh.cli.grammar.sessions import SessionsOptions
from dsh.errors import UsageError


def run_options(*arguments: str) -> RunOptions:
    options = read_arguments(["run", *arguments])
    assert isinstance(options, RunOptions)
    return options


@pytest.mark.holds("CL4")
def test_every_option_of_run_is_read() -> None:
    options = run_options(
        "--profile", "chat", "--config", "f.yml", "--set", "a.b=1", "--set", "a.c=2",
        "--provider", "p", "--model", "m", "--cwd", "/w", "--session", "s", "--json",
        "--allow", "bash", "--allow", "write_file:x", "--yolo", "--debug", "--verbose",
        "--color", "never", "do it",
    )  # fmt: skip
    assert options == RunOptions(
        debug=True, color="never", profile="chat", config=Path("f.yml"), sets=("a.b=1", "a.c=2"),
        cwd=Path("/w"), prompt="do it", provider="p", model="m", session="s", resume=None,
        json=True, allow=("bash", "write_file:x"), yolo=True, verbose=True,
    )  # fmt: skip


@pytest.mark.holds("CL4")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rnu"], "no command 'rnu'; did you mean 'run'? There are: run, chat,"),
        (["sessions", "lst"], "no action 'lst'; did you mean 'list'? There are: list, show,"),
        (["plugin", "nwe", "x"], "did you mean 'new'? There is: new. See: dsh plugin --help"),
        (["completion", "bsh"], "shell takes bash, zsh, fish, not 'bsh'; did you mean 'bash'?"),
        (
            ["run", "--sesion", "p"],
            "unknown option '--sesion'; did you mean '--session'? See: dsh run",
        ),
        (["run", "fix", "it"], "'it' comes after the prompt"),
        (["sessions", "list", "--al"], "did you mean '--all'? See: dsh sessions list --help"),
        (["doctor", "--onlin"], "did you mean '--online'? See: dsh doctor --help"),
        (["--verison"], "unknown option '--verison'; did you mean '--version'? See: dsh --help"),
        (["chat", "fix", "it"], "'it' comes after the prompt"),
        (["sessions", "list", "foo"], "nothing takes 'foo'. See: dsh sessions list --help"),
        (["sessions", "show", "--turn", "x"], "--turn takes a whole number, not 'x'. See: dsh"),
        (["run", "--session", "a", "--resume", "b", "p"], "not allowed with argument --session"),
        (["run"], "what should it do?"),
        (["run", "--color", "blue", "p"], "--color takes auto, always, never, not 'blue'."),
        (["--debug"], "unknown option '--debug'. See: dsh --help"),
        (["sessions"], "sessions needs ACTION: list, show, messages, verify, fork, replay,"),
        (["sessions", "rm"], "sessions rm needs SESSION: an id, the beginning of one, or `last`."),
        (["run", "--prov", "x", "p"], "unknown option '--prov'"),
    ],
)
def test_a_mistake_is_one_sentence_that_says_where_help_is(
    arguments: list[str], message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        read_arguments(arguments)
    assert message in str(caught.value)


def test_the_demo_needs_no_prompt() -> None:
    assert run_options("--profile", "demo").prompt is None


@pytest.mark.holds("CL4")
@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["sessions", "--help"]])
def test_help_teaches_by_example(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        read_arguments(arguments)
    assert caught.value.code == 0
    shown = capsys.readouterr().out
    assert "dsh " in shown
    assert max(len(line) for line in shown.splitlines()) <= 100


def test_the_options_of_sessions_are_read() -> None:
    options = read_arguments(["sessions", "messages", "s7", "--step", "1.2"])
    assert isinstance(options, SessionsOptions)
    assert (options.action, options.session, options.step) == ("messages", "s7", "1.2")
    options = read_arguments(["sessions", "fork", "s7", "--turn", "2.3"])
    assert isinstance(options, SessionsOptions)
    assert (options.session, options.until) == ("s7", "2.3")
    options = read_arguments(["sessions", "show", "--format", "md"])
    assert isinstance(options, SessionsOptions)
    assert (options.session, options.form) == ("last", "md")
