"""The plugin `shell`: the tool `bash`, over whoever provides the shell seam.

What comes in: a command line from a model. What goes out: its output, cut in the middle if it is
long, with every byte that is no text escaped, and how the command ended; while it runs, the end of
what it printed so far, for whoever watches. It starts no process itself.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Final

import attrs
import trio

from dsh import Context, plugin
from dsh.hooks import frozen
from dsh.kernel import required
from dsh.seams.shell import SHELL, Shell, ShellResult
from dsh.tools import (
    TOOLS,
    Subject,
    Tool,
    ToolRuntime,
    define_tool,
    param,
    typed_output,
    visible_bytes,
    whole_head,
    whole_tail,
)
from dsh_plugins.shell.watching import Shown

if TYPE_CHECKING:
    from dsh.hooks import JsonValue
    from dsh.hooks.live import ToolRun

__all__ = ["BashArgs", "BashResult", "bash_tool", "shell"]

TIMEOUT_DEFAULT: Final = 120.0
TIMEOUT_MAX: Final = 3_600.0

DESCRIPTION: Final = (
    "Run a command line with bash in the workspace and return what it printed (stdout and stderr "
    "together) and how it ended. There is no input and no terminal. Long output is cut in the "
    "middle: write it to a file, or filter it, to see the rest. Processes left in the background "
    "end with the command."
)


@frozen
class BashArgs:
    """The arguments of `bash`."""

    command: str = attrs.field(metadata=param("The command line.", min_length=1))
    timeout: float | None = attrs.field(
        default=None,
        metadata=param(
            f"Seconds after which the command is ended; {TIMEOUT_DEFAULT:g} if absent.",
            ge=0.1,
            le=TIMEOUT_MAX,
        ),
    )


@frozen
class BashResult:
    """What `bash` returns. `output` has the two ends; `omitted_bytes` were between them."""

    output: str
    omitted_bytes: int
    exit_code: int | None
    signal: str | None
    timed_out: bool
    stopped_background: bool
    detached: bool


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _result(found: ShellResult) -> BashResult:
    if found.omitted:
        head, tail = visible_bytes(whole_head(found.head)), visible_bytes(whole_tail(found.tail))
        output = f"{head}\n[… {found.omitted} bytes left out …]\n{tail}"
    else:
        output = visible_bytes(found.head + found.tail)
    return BashResult(
        output=output,
        omitted_bytes=found.omitted,
        exit_code=found.exit_code,
        signal=_signal_name(found.signal) if found.signal is not None else None,
        timed_out=found.timed_out,
        stopped_background=found.stopped_background,
        detached=found.detached,
    )


def _render(args: BashArgs, result: BashResult) -> str:
    """What the model reads: the output, then one bracketed line for each fact worth knowing."""
    facts: list[str] = []
    if result.timed_out:
        seconds = args.timeout if args.timeout is not None else TIMEOUT_DEFAULT
        facts.append(f"[timed out after {seconds:g} s; the command and its children were ended]")
    if result.signal is not None:
        facts.append(f"[ended by {result.signal}]")
    elif result.exit_code != 0 or not result.output.strip():
        facts.append(f"[exit status {result.exit_code}]")
    if result.stopped_background and not result.timed_out:
        facts.append("[processes left in the background were ended with the command]")
    if result.detached:
        facts.append("[a process that detached itself still holds the output and may be running]")
    body = result.output.rstrip("\n")
    return "\n".join([body, *facts] if body else facts)


def _subject(arguments: JsonValue, _cwd: str) -> Subject:
    command = arguments.get("command") if isinstance(arguments, dict) else None
    if not isinstance(command, str):
        raise TypeError("bash was called without a command")
    return Subject(kind="command", text=command)


def bash_tool(provider: Shell) -> Tool:
    """The tool `bash` over a shell provider."""

    async def execute(args: BashArgs, run: ToolRun) -> BashResult:
        seconds = args.timeout if args.timeout is not None else TIMEOUT_DEFAULT
        owner = run.agent.id if run.agent is not None else None
        async with trio.open_nursery() as nursery:
            shown = Shown(run.progress)
            nursery.start_soon(shown.run)
            done = await provider.run(
                args.command, cwd=run.cwd, timeout=seconds, owner=owner, watch=shown.add
            )
            nursery.cancel_scope.cancel()
        return _result(done)

    return define_tool(
        name="bash",
        description=DESCRIPTION,
        args=BashArgs,
        output=typed_output(BashResult, render=_render),
        execute=execute,
        subject=_subject,
    )


@frozen
class _Deps:
    tools: ToolRuntime = required(TOOLS)
    shell: Shell = required(SHELL)


@plugin(name="shell", deps=_Deps)
async def shell(ctx: Context, _config: None, deps: _Deps) -> None:
    """Register `bash` over the provider; another provider, and it is registered anew."""
    deps.tools.register(ctx, bash_tool(deps.shell))
