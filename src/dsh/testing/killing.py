"""What kill -9 must not cost: houses killed at random instants, and what is left judged.

What comes in: a kind of store, what the house is doing, how often to kill it. What goes out: how
many were killed, and every loss in words. The model server is ours and strict, so it knows what
reached it; the client's file and the marks of the tools are written by the killed process itself.
"""

from __future__ import annotations

import random
import subprocess
import sys
from contextlib import asynccontextmanager
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast, final

import orjson
import trio
from attrs import evolve

from dsh import open_harness, user_message
from dsh.boot import ProcessEnviron, process_environ
from dsh.catalog import records
from dsh.errors import SessionError, SessionNotFound
from dsh.llm import ScriptedCall, ScriptEntry
from dsh.seams.persistence import PERSISTENCE
from dsh.session import verify
from dsh.testing.killed_terminal import open_terminal
from dsh.testing.lives import Ended, Life, store_rows
from dsh.testing.losses import Found, Kills, judged_copies
from dsh.testing.model_server import (
    ModelServer,
    RecordedRequest,
    Wait,
    WireReply,
    delta,
    error_reply,
    open_model_server,
    sse_reply,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator, Sequence

    from dsh.testing.lives import Backend
    from dsh.testing.model_server import Answer

__all__ = ["DOING", "Killer", "instants", "open_killer"]

WORDS: Final = 80
WORD_SECONDS: Final = 0.003
STEPS: Final = 6
RETRY: Final = "llm-retry"
#: What a terminal must be called, so that a conversation has its editor.
AN_EDITORS: Final = {"TERM": "xterm-256color", "LANG": "C.UTF-8"}
#: What a house can be doing, and for how many seconds a life of it lasts on an idle machine.
DOING: Final = {
    "streaming": 0.5,
    "streaming as json": 0.5,
    "retrying": 1.1,
    "tools": 0.45,
    "compacting": 0.6,
    "forks": 0.5,
    "first-writes": 0.5,
    "chat streaming": 0.7,
    "chat tools": 0.9,
    "chat retrying": 1.3,
}


class _Model:
    """What the model says: words, calls for some steps, a failure at first, or that it goes on."""

    def __init__(self, home: Path) -> None:
        self._home: Final = home
        self._failed: set[str] = set()

    def __call__(self, request: RecordedRequest) -> Answer:
        body = cast("dict[str, object]", orjson.loads(request.body))
        messages = cast("list[dict[str, object]]", body["messages"])
        asked = [str(m["content"]) for m in messages if m["role"] == "user"]
        if asked[-1] == "go on":
            return ScriptEntry(text="later")
        if asked[-1].startswith("fail first") and asked[-1] not in self._failed:
            self._failed.add(asked[-1])
            return error_reply(503, {"error": {"message": "overloaded"}})
        results = sum(message["role"] == "tool" for message in messages)
        if asked[-1] == "use tools" and results < 3 * STEPS:
            return ScriptEntry(text="marking", tools=tuple(_calls(results)))
        if asked[-1].startswith("use bash, ") and results < 3 * STEPS:
            effects = f"{self._home}/{asked[-1].removeprefix('use bash, ')}.effects"
            return ScriptEntry(text=f"marking {results}.", tools=tuple(_shells(results, effects)))
        return _words()


def _calls(first: int) -> Iterator[ScriptedCall]:
    for number in range(3):
        yield ScriptedCall(
            name="mark", arguments=f'{{"number": {number}}}', id=f"c{first + number}"
        )


def _shells(first: int, effects: str) -> Iterator[ScriptedCall]:
    """Commands that leave a line with the id of their call, and say it."""
    for number in range(first, first + 3):
        command = f"echo c{number} >> {effects}; echo marked {number}."
        arguments = orjson.dumps({"command": command}).decode()
        yield ScriptedCall(name="bash", arguments=arguments, id=f"c{number}")


def _words() -> WireReply:
    steps: list[bytes | Wait] = []
    for number in range(WORDS):
        steps += (delta(content=f"w{number}. "), Wait(WORD_SECONDS))
    return sse_reply(*steps, delta(finish="stop"))


@final
class Killer:
    """One zygote, its model server and its places. Made by `open_killer`; one life at a time."""

    def __init__(
        self, folder: Path, backend: Backend, zygote: trio.Process, server: ModelServer
    ) -> None:
        self._home: Final = folder / "home"
        self._cwd: Final = folder / "work"
        self._backend: Final[Backend] = backend
        self._zygote: Final = zygote
        self._server: Final = server
        self._buffer = b""
        self._lives = 0
        self._spans: Final = dict(DOING)

    @property
    def variables(self) -> dict[str, str]:
        """What a life finds in its environment."""
        return {
            "DSH_HOME": str(self._home),
            "HOME": str(self._home),
            "DEEPSEEK_API_KEY": "sk-test-key",
            "DEEPSEEK_BASE_URL": self._server.base_url,
            "TERM": "dumb",
        }

    async def prepare(self) -> None:
        """Make the places, and the session that forks are made of."""
        self._cwd.mkdir(parents=True)
        self._home.mkdir()
        rows = store_rows(self._backend, self._home)
        settings: list[dict[str, object]] = [
            {"id": row.name, "name": row.name, "config": dict(row.config), "disabled": row.disabled}
            for row in rows
        ]
        window = {"providers": {"deepseek": {"contextWindow": 100_000}}}
        settings.append({"id": "openai-chat", "config": window})
        if any(entry.name == RETRY for entry in entry_points(group="dsh.plugins")):
            settings.append({"id": RETRY, "name": RETRY, "config": {}, "disabled": False})
        (self._home / "settings.yml").write_bytes(orjson.dumps(settings))
        await self._goes_on("source", "hello", fresh=True)

    async def kill(self, doing: str, part: float, kills: Kills) -> None:
        """One life, killed after this part of it; what it left is judged into `kills`.

        How long a life is, is learned: a busy machine makes it longer.
        """
        self._lives += 1
        delay = part * self._spans[doing]
        session = f"k{self._lives}"
        life = Life(
            arguments=self._arguments(doing, session),
            session=session,
            backend=self._backend,
            home=str(self._home),
            cwd=str(self._cwd),
            out=str(self._home / f"{session}.out"),
            delay=delay,
            variables=self.variables,
        )
        before = len(self._server.requests)
        effects = self._home / (f"{session}.effects" if doing == "chat tools" else "effects")
        effects.unlink(missing_ok=True)
        ended, shown, screen = await self._lived(doing, life)
        kills.killed += ended.killed
        kills.ended += not ended.killed
        found = Found(
            client=_lines(Path(life.out)),
            effects=_lines(effects),
            shown=shown,
            screen=screen,
            requests=self._server.requests[before:],
        )
        if not ended.killed or found.over:
            self._spans[doing] = max(self._spans[doing] * 0.9, 0.1)
        elif found.nothing:
            self._spans[doing] = min(self._spans[doing] * 1.2, 10.0)
        where = f"life {self._lives}, {doing}, killed after {delay * 1000:.1f} ms: "
        losses = await self._judged(doing, session, found, kills)
        kills.losses += [where + loss for loss in losses]

    def _arguments(self, doing: str, session: str) -> tuple[str, ...]:
        match doing:
            case "streaming":
                return ("run", "--session", session, "say words")
            case "streaming as json":
                return ("run", "--json", "--session", session, "say words")
            case "retrying":
                return ("run", "--json", "--session", session, f"fail first, {session}")
            case "chat streaming" | "chat tools" | "chat retrying":
                return ("chat", "--session", session, "--yolo")
            case _:
                return (doing,)

    @staticmethod
    def _prompt(doing: str, session: str) -> str:
        """What is typed in a conversation that is to do this."""
        match doing:
            case "chat tools":
                return f"use bash, {session}"
            case "chat retrying":
                return f"fail first, {session}"
            case _:
                return "say words"

    async def _lived(self, doing: str, life: Life) -> tuple[Ended, bytes, Sequence[str]]:
        """How it ended, the bytes on its screen, and the lines of its conversation."""
        chatting = doing.startswith("chat")
        if not chatting and doing != "streaming":
            return await self._told(life), b"", ()
        typed = ""
        if chatting:
            typed = self._prompt(doing, life.session)
            life = evolve(life, variables={**life.variables, **AN_EDITORS})
        async with open_terminal(typed, raw=not chatting) as terminal:
            ended = await self._told(evolve(life, out=terminal.name, terminal=chatting))
            if chatting:
                return ended, b"", terminal.lines()
            return ended, terminal.shown(), ()

    async def _told(self, life: Life) -> Ended:
        assert self._zygote.stdin is not None
        assert self._zygote.stdout is not None
        await self._zygote.stdin.send_all(life.line())
        with trio.fail_after(60):
            while b"\n" not in self._buffer:
                piece = await self._zygote.stdout.receive_some()
                assert piece, "the zygote is gone"
                self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\n")
        return Ended(**cast("dict[str, object]", orjson.loads(line)))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    async def _judged(self, doing: str, session: str, found: Found, kills: Kills) -> list[str]:
        async with open_harness(
            home=self._home, cwd=self._cwd, rows=store_rows(self._backend, self._home)
        ) as harness:
            store = harness.service(PERSISTENCE)
            if doing in ("forks", "first-writes"):
                return await judged_copies(store, session, found, kills)
            try:
                log = await store.read(session)
            except SessionNotFound:
                return found.without_log()
            except SessionError as error:
                return [f"cannot be read: {error.message}"]
            losses = found.missing_in(log, kills)
            losses += [
                f"seq {problem.seq}: {problem.text}"
                for problem in verify(log)
                if problem.seq is not None
            ]
        losses += await self._goes_on(session, "go on")
        kills.resumed += 1
        return losses

    async def _goes_on(self, session: str, prompt: str, *, fresh: bool = False) -> list[str]:
        """Resume it, ask once more, and see that the strict server takes the request."""
        refused = len(self._server.refusals)
        async with open_harness(
            home=self._home,
            cwd=self._cwd,
            rows=store_rows(self._backend, self._home),
            environ=ProcessEnviron(self.variables),
        ) as harness:
            options = records.AgentOptions(provider="deepseek", model="deepseek-chat")
            agents = harness.agents
            try:
                handle = await (
                    agents.create(session, options=options, cwd=str(self._cwd))
                    if fresh
                    else agents.resume(session, options=options)
                )
            except SessionError as error:
                return [f"does not resume: {error.message}"]
            outcome = await handle.agent.ask(user_message(prompt))
            await handle.aclose()
            log = await harness.service(PERSISTENCE).read(session)
        losses = [f"after the resume, seq {one.seq}: {one.text}" for one in verify(log)]
        if not isinstance(outcome.reason, records.CompletedTurnEnd):
            losses.append(f"the next turn ended with {outcome.reason}")
        losses += [f"the server refused: {text}" for text in self._server.refusals[refused:]]
        return losses


def _lines(path: Path) -> list[bytes]:
    """The complete lines of a file; none if it is not there."""
    try:
        return path.read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        return []


@asynccontextmanager
async def open_killer(folder: Path, backend: Backend) -> AsyncGenerator[Killer]:
    """A warm zygote and a strict model server, for the length of the block."""
    environment = process_environ().variables()
    model = _Model(folder / "home")
    async with open_model_server(model, strict=True) as server, trio.open_nursery() as nursery:
        zygote = await trio.lowlevel.open_process(
            [sys.executable, "-m", "dsh.testing.lives"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        killer = Killer(folder, backend, zygote, server)
        try:
            await killer.prepare()
            yield killer
        finally:
            zygote.kill()
            with trio.CancelScope(shield=True):
                await zygote.wait()
            nursery.cancel_scope.cancel()


def instants(doing: str, seed: int) -> Iterator[float]:
    """Random instants, as parts of the life of a house that is doing this, without end.

    Every other one comes late, because a house does most of what matters there.
    """
    chance = random.Random(f"{doing} {seed}")
    while True:
        yield chance.uniform(0.5, 1)
        yield chance.uniform(0.02, 1)
