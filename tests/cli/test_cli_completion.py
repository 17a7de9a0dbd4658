"""Completion scripts: made from the grammar, accepted by the shell."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import pytest
import trio

from dsh.cli.chat.words import completed, help_lines, parsed, unknown
from dsh.cli.completion import script_for
from dsh.cli.grammar.arguments import read_arguments
from dsh.cli.grammar.chat import PICK, ChatOptions, NewPluginOptions
from dsh.cli.grammar.tree import tree


def test_the_tree_has_every_command_and_option() -> None:
    found = tree()
    assert {"", "run", "chat", "sessions", "sessions show", "plugin new", "completion"} <= set(
        found
    )
    assert {"--resume", "--plain", "--allow", "--color"} <= set(found["chat"].options)
    assert {"--config", "--cwd"} <= set(found["run"].files)
    assert found["sessions fork"].takes_session
    assert not found["run"].takes_session


@pytest.mark.holds("CL34")
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_names_every_command_and_option(shell: str) -> None:
    script = script_for(shell)
    for node in tree().values():
        for word in node.commands:
            assert word in script
        for option in node.options:
            assert (option if shell != "fish" else f"-l '{option[2:]}'") in script


EXAMPLES = pytest.mark.parametrize(
    ("words", "found"),
    [
        ("dsh sessions sh", ["show"]),
        ("dsh chat --pl", ["--plain"]),
        ("dsh plugin n", ["new"]),
        ("dsh run --profile d", ["demo"]),
        ("dsh doctor --on", ["--online"]),
        ("dsh completion --h", ["--help"]),
    ],
)


def shell(name: str) -> str:
    """Where it is; without it the test is skipped and says so."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed, so its completion is not run here")
    return found


@pytest.mark.holds("CL34")
@EXAMPLES
async def test_bash_completes_with_it(words: str, found: list[str]) -> None:
    listed = words.split()
    program = (
        f"{script_for('bash')}\nCOMP_WORDS=({words}); COMP_CWORD={len(listed) - 1}; _dsh_words\n"
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    run = partial(trio.run_process, [shell("bash"), "--norc", "-c", program], capture_stdout=True)
    done = await run()
    assert done.stdout.decode().split() == found


@pytest.mark.holds("CL34")
@EXAMPLES
async def test_fish_completes_with_it(words: str, found: list[str], tmp_path: Path) -> None:
    fish, script = shell("fish"), tmp_path / "dsh.fish"
    script.write_text(script_for("fish"), encoding="utf-8")
    program = f"source {script}; complete -C '{words}'"
    done = await trio.run_process(
        [fish, "--no-config", "-c", program], capture_stdout=True, env={"HOME": str(tmp_path)}
    )
    assert [line.split("\t")[0] for line in done.stdout.decode().splitlines()] == found


#: A terminal inside zsh: it types a line and Tab, and prints what then stands there.
ZSH = """\
zmodload zsh/zpty
zpty inner zsh -f -i
zpty -w inner "PS1= PROMPT_EOL_MARK= RPS1=; unsetopt beep"
zpty -w inner "fpath=($1 \\$fpath); autoload -U compinit && compinit -u -D; print rea''dy"
zpty -r inner said '*ready*'
zpty -w -n inner "$2"$'\\t'
zpty -r inner said "*$3*" && print completed
"""


@pytest.mark.holds("CL34")
@EXAMPLES
async def test_zsh_completes_with_it_at_the_first_tab(
    words: str, found: list[str], tmp_path: Path
) -> None:
    zsh = shell("zsh")
    (tmp_path / "_dsh").write_text(script_for("zsh"), encoding="utf-8")
    with trio.fail_after(30):
        done = await trio.run_process(
            [zsh, "-f", "-c", ZSH, "zsh", str(tmp_path), words, f"{found[0]} "],
            capture_stdout=True,
            env={"HOME": str(tmp_path), "TERM": "dumb", "PATH": "/usr/bin:/bin"},
        )
    assert done.stdout == b"completed\n"


@pytest.mark.holds("CL28")
def test_words_of_a_conversation() -> None:
    assert parsed("/resume last") == ("resume", "last")
    assert parsed("?") == ("help", "")
    assert parsed("/etc/hosts is a file") is None
    assert parsed("/help\nmore") is None
    assert parsed("help") is None
    assert unknown("help") is None
    assert "did you mean 'help'" in (unknown("hepl") or "")
    assert completed("/qu") == "/quit "
    assert completed("/t") == "/t"  # tools, thinking
    assert any(line.startswith("/later TEXT") for line in help_lines())


@pytest.mark.holds("CL4")
def test_every_option_of_chat_is_read() -> None:
    options = read_arguments(["chat", "--plain", "--yolo", "--allow", "bash", "--resume"])
    assert isinstance(options, ChatOptions)
    assert (options.profile, options.resume, options.prompt) == ("chat", PICK, None)
    assert (options.plain, options.yolo, options.allow) == (True, True, ("bash",))
    other = read_arguments(["chat", "--profile", "demo", "--resume", "last", "hello"])
    assert isinstance(other, ChatOptions)
    assert (other.profile, other.resume, other.prompt) == ("demo", "last", "hello")
    new = read_arguments(["plugin", "new", "a-b", "--in", "x", "--no-check"])
    assert new == NewPluginOptions(name="a-b", into=Path("x"), check=False)
