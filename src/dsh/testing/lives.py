"""Lives that end by kill -9: a process that is warm already starts a house, and then kills it.

What comes in: on standard input one JSON object a line, saying what to do and after how many
seconds to kill it. What goes out: one line a life, saying when it was killed or how it ended.
`python -m dsh.testing.lives` is started by `dsh.testing.killing`; a life is a real process with
nothing shared but what was imported before the fork.
"""

from __future__ import annotations

import fcntl
import gc
import os
import signal
import sys
import termios
import time
import traceback
from contextlib import suppress
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast

import orjson
import trio
from attrs import asdict, frozen

from dsh import define_tool, open_harness, plugin, user_message
from dsh.boot import ProcessEnviron, Row
from dsh.catalog.records import AgentOptions, SessionHeader
from dsh.kernel import required
from dsh.seams.persistence import PERSISTENCE
from dsh.session import fork_log
from dsh.testing.logs import LogWriting
from dsh.tools import TOOLS, ToolRuntime
from dsh.wire import FORMAT_VERSION

if TYPE_CHECKING:
    from typing import NoReturn

    from dsh import Context
    from dsh.hooks.live import ToolRun
    from dsh.kernel import Plugin

__all__ = ["Backend", "Ended", "Life", "store_rows"]

Backend: TypeAlias = Literal["jsonl", "sqlite"]
#: How long the body of the tool `mark` takes, so that some of them are killed inside.
BODY_SECONDS: Final = 0.004
#: Tokens of context of a model that must compact.
WINDOW: Final = 4000


@frozen(kw_only=True)
class Life:
    """One life. `arguments` are those of the command `dsh`, or one word: a scenario of this module.

    `out` is where standard output goes: a file that is appended to, or a terminal. `delay` is in
    seconds from the birth. `terminal`: it is all that the life has, for what is typed too.
    """

    arguments: tuple[str, ...]
    session: str
    backend: Backend
    home: str
    cwd: str
    out: str
    delay: float
    variables: dict[str, str]
    terminal: bool = False

    def line(self) -> bytes:
        """As the zygote reads it."""
        return orjson.dumps(asdict(self)) + b"\n"


@frozen(kw_only=True)
class Ended:
    """How a life ended: by the kill, or by itself with an exit code."""

    killed: bool
    code: int


def store_rows(backend: Backend, home: Path) -> tuple[Row, ...]:
    """The rows that keep sessions in this kind of store, below `home`."""
    if backend == "jsonl":
        return (Row(name="session-jsonl", config={"root": str(home / "sessions")}),)
    path = str(home / "sessions.db")
    return (
        Row(name="session-jsonl", disabled=True),
        Row(name="session-sqlite", config={"path": path}),
    )


def main() -> None:
    """Be the zygote: one life after the other, until standard input ends."""
    _warm_up()
    for line in sys.stdin.buffer:
        life = Life(**cast("dict[str, object]", orjson.loads(line)))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        pid = os.fork()
        if pid == 0:
            _live(life)
        time.sleep(life.delay)
        # Not waited for yet, so the number is still this child's, even if it has ended.
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        ended = Ended(killed=os.WIFSIGNALED(status), code=os.waitstatus_to_exitcode(status))
        sys.stdout.buffer.write(orjson.dumps(asdict(ended)) + b"\n")
        sys.stdout.buffer.flush()


def _warm_up() -> None:
    """Import what lives will need, so that their time is spent on what is to be killed."""
    for entry in entry_points(group="dsh.plugins"):
        with suppress(Exception):  # a row that is used and broken is told by the life itself
            entry.load()
    for name in (
        "dsh.cli.command",
        "dsh.cli.run.command",
        "dsh.cli.chat.command",
        "dsh.boot.yaml_file",
        "dsh.catalog.codec",
    ):
        import_module(name)
    with suppress(ImportError):  # the editor is optional
        import_module("dsh.cli.chat.window")
    gc.freeze()


def _live(life: Life) -> NoReturn:
    """The child: never returns into the zygote's loop."""
    code = 1
    try:
        null = os.open(os.devnull, os.O_RDWR)
        errors = os.open(f"{life.home}/stderr", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        out = os.open(life.out, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOCTTY, 0o600)
        if life.terminal:
            os.setsid()
            fcntl.ioctl(out, termios.TIOCSCTTY, 0)
            null = errors = out
        for source, target in ((null, 0), (out, 1), (errors, 2)):
            os.dup2(source, target)
        os.environ.update(life.variables)  # boot of this very process reads it  # noqa: TID251
        os.chdir(life.cwd)
        scenario = SCENARIOS.get(life.arguments[0])
        if scenario is None:
            from dsh.cli import main as command  # noqa: PLC0415

            code = command(life.arguments)
        else:
            trio.run(scenario, life)
            code = 0
    except BaseException:  # noqa: BLE001  whatever it is, it must not come back
        traceback.print_exc()
    finally:
        os._exit(code)


def _acknowledge(text: str) -> None:
    """Tell the client, whose file survives us."""
    os.write(1, f"{text}\n".encode())


@frozen(kw_only=True)
class Mark:
    """Which mark to leave."""

    number: int


@frozen(slots=True)
class Deps:
    """What the plugin `marking` needs."""

    tools: ToolRuntime = required(TOOLS)


def marking(effects: Path, *, words: int) -> Plugin:
    """A plugin with one parallel tool, whose body leaves a line with the id of its call.

    Its result has as many words more as asked for.
    """

    async def execute(args: Mark, run: ToolRun) -> str:
        with effects.open("ab", buffering=0) as file:
            file.write(f"{run.call_id}\n".encode())
        await trio.sleep(BODY_SECONDS)
        return f"marked {args.number}{' more' * words}"

    tool = define_tool(
        name="mark",
        description="leave a mark",
        args=Mark,
        output=str,
        execute=execute,
        execution_mode="parallel",
    )

    @plugin(name="marking", deps=Deps)
    async def apply(ctx: Context, _config: None, deps: Deps) -> None:
        deps.tools.register(ctx, tool)

    return apply


async def _tools(life: Life) -> None:
    """One turn whose steps ask for parallel calls."""
    await _working(life, (), words=0)


async def _compacting(life: Life) -> None:
    """The same with a model that has room for little, so that the history is shortened."""
    window = {"providers": {"deepseek": {"contextWindow": WINDOW}}}
    rows = (
        Row(name="openai-chat", config=window),
        Row(name="token-meter"),
        Row(name="compaction", config={"thresholdRatio": 0.5, "pruneThreshold": 100_000}),
    )
    await _working(life, rows, words=WINDOW // 20)


async def _working(life: Life, rows: tuple[Row, ...], *, words: int) -> None:
    home = Path(life.home)
    allow = Row(name="permissions", config={"rules": [{"decision": "allow", "tool": "mark"}]})
    async with open_harness(
        home=home,
        cwd=Path(life.cwd),
        environ=ProcessEnviron(life.variables),
        rows=(*store_rows(life.backend, home), allow, *rows),
        plugins=[marking(home / "effects", words=words)],
    ) as harness:
        handle = await harness.agents.create(
            life.session,
            options=AgentOptions(provider="deepseek", model="deepseek-chat"),
            cwd=life.cwd,
        )
        outcome = await handle.agent.ask(user_message("use tools"))
        _acknowledge(f"turn {outcome.turn}")
        await handle.aclose()


async def _forks(life: Life) -> None:
    """Forks of the stored session `source`, one after the other."""
    home = Path(life.home)
    async with open_harness(
        home=home, cwd=Path(life.cwd), rows=store_rows(life.backend, home)
    ) as harness:
        store = harness.service(PERSISTENCE)
        log = await store.read("source")
        for number in range(10_000):
            child = f"{life.session}-{number}"
            await fork_log(store, log, child_id=child, now_ms=number)
            _acknowledge(child)


async def _first_writes(life: Life) -> None:
    """New sessions, one after the other, each with its first events."""
    home = Path(life.home)
    log = LogWriting()
    log.whole_turn("hi", "a", "b", "c", calls=("c1",))
    async with open_harness(
        home=home, cwd=Path(life.cwd), rows=store_rows(life.backend, home)
    ) as harness:
        store = harness.service(PERSISTENCE)
        for number in range(10_000):
            session_id = f"{life.session}-{number}"
            header = SessionHeader(
                version=FORMAT_VERSION, id=session_id, created_at=1, cwd=life.cwd
            )
            handle = await store.create(header)
            await handle.append(tuple(log.session.events))
            await handle.flush()
            _acknowledge(session_id)
            await handle.aclose()


SCENARIOS: Final = {
    "tools": _tools,
    "compacting": _compacting,
    "forks": _forks,
    "first-writes": _first_writes,
}

if __name__ == "__main__":
    main()
