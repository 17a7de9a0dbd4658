"""`dsh doctor`: is everything that a run needs in order, and if not, what is to be done?

What comes in: typed options. What goes out: one finding for each thing that was looked at, on
standard output, and exit code 1 when something is to fix. It works with a broken composition: what
cannot be looked at then is skipped, and says so. It sends nothing anywhere unless it is told to,
and shows no secret.
"""

from __future__ import annotations

import gc
import logging
import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Final

import orjson
import trio
from typing_extensions import override

from dsh.boot import Plan, mounted, places_of, planned, process_environ, read_known
from dsh.cli.doctor.examining import asked, looked_at, session_findings, values_of
from dsh.cli.doctor.findings import Finding, as_json, lines_of, summary
from dsh.cli.failures import explained
from dsh.cli.plugins.command import NO_AGENTS
from dsh.cli.screen.outlet import OutletClosed
from dsh.cli.screen.outputs import Screen, open_screen
from dsh.cli.sessions.choosing import chosen
from dsh.errors import ConfigError, HarnessError, UsageError
from dsh.seams.persistence import PERSISTENCE, SessionPersistence

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from dsh.boot import Harness
    from dsh.cli.grammar.arguments import DoctorOptions

__all__ = ["doctor"]

EXIT_TO_FIX: Final = 1
#: How many logs, the newest first, are read to their end.
LOGS_READ: Final = 50
LOG_BYTES: Final = 50_000_000
PLUGIN_LOGGER: Final = "dsh.plugin."


def doctor(options: DoctorOptions) -> int:
    """Look at everything and print it. 0: nothing is to fix; 1: something is."""
    screen = open_screen(options.color, process_environ())
    heard = _Heard()
    logging.getLogger("dsh").handlers[:] = [heard]
    logging.getLogger("dsh").propagate = False
    gc.freeze()
    gc.enable()
    findings: list[Finding] = []
    code = 0
    try:
        trio.run(_examine, options, screen, findings, heard)
        if options.json:
            for one in findings:
                screen.out.data(orjson.dumps(as_json(one)) + b"\n")
        else:
            for line in lines_of(findings, screen.styled):
                screen.out.text(line + "\n")
            screen.out.text(summary(findings) + "\n")
        code = EXIT_TO_FIX if any(one.status == "FAIL" for one in findings) else 0
    except OutletClosed as error:
        code = 141 if error.broken else 1
    except BaseException as error:  # noqa: BLE001 - the last frame: a person gets a sentence
        text, code = explained(error, debug=options.debug, before_session=True)
        screen.say(text)
    screen.finish()
    return code


class _Heard(logging.Handler):
    """What plugins warn of while they start: a part of theirs that does not work."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[tuple[str, str]] = []

    @override
    def emit(self, record: logging.LogRecord) -> None:
        if record.name.startswith(PLUGIN_LOGGER):
            self.said.append((record.name.removeprefix(PLUGIN_LOGGER), record.getMessage()))

    def findings(self) -> Iterator[Finding]:
        for plugin, text in self.said:
            yield Finding("warn", "plugin", f"{plugin}: {text}")


async def _examine(
    options: DoctorOptions, screen: Screen, findings: list[Finding], heard: _Heard
) -> None:
    findings.append(_versions())
    findings.append(_state())
    plan = _plan(options, findings)
    if plan is None:
        skipped = "skipped: the composition cannot be read"
        findings += [Finding("skip", what, skipped) for what in ("plugin", "key")]
        plan = _without_files(options)
    else:
        async with mounted(plan) as harness:
            findings += looked_at(harness, plan)
            findings += heard.findings()
            if options.values:
                findings += values_of(plan)
            if options.online:
                findings += await asked(harness, plan)
            store = harness.kernel.root.get(PERSISTENCE)
            if options.session is not None:
                findings += await _session(options.session, store, harness, plan)
            else:
                findings += [one async for one in _sessions(store)]
            findings.append(_terminal(screen))
        return
    if plan is None:
        findings.append(Finding("skip", "sessions", "skipped: there is no store to look into"))
    else:
        async with mounted(plan) as harness:
            findings += [one async for one in _sessions(harness.kernel.root.get(PERSISTENCE))]
    findings.append(_terminal(screen))


def _versions() -> Finding:
    try:
        own = version("dsh-trio")
    except PackageNotFoundError:
        own = "(from a source tree)"
    text = f"python {platform.python_version()}, trio {trio.__version__}, dsh {own}"
    return Finding("ok", "versions", text)


def _state() -> Finding:
    places = places_of(process_environ())
    try:
        places.prepare()
    except UsageError as error:
        return Finding("FAIL", "state", str(error), "export DSH_HOME=DIR, a directory of yours")
    return Finding("ok", "state", str(places.state))


def _plan(options: DoctorOptions, findings: list[Finding]) -> Plan | None:
    try:
        plan = planned(
            options.config,
            profile=options.profile,
            rows=(NO_AGENTS,),
            sets=options.sets,
            cwd=options.cwd,
        )
    except ConfigError as error:
        if not error.issues:
            findings.append(Finding("FAIL", "config", str(error)))
        findings += [
            Finding("FAIL", "config", issue, f"edit {_file_of(issue)}") for issue in error.issues
        ]
        return None
    except UsageError as error:
        findings.append(Finding("FAIL", "config", str(error)))
        return None
    layers = " < ".join(plan.layers[:-1])  # the last one is ours
    findings.append(Finding("ok", "config", layers))
    return plan


def _file_of(issue: str) -> str:
    """The place at the beginning of an issue: `file:line:column`, or the layer's name."""
    return issue.partition(": ")[0]


def _without_files(options: DoctorOptions) -> Plan | None:
    try:
        return planned(profile=options.profile, rows=(NO_AGENTS,), cwd=options.cwd, files=False)
    except UsageError:
        return None


async def _session(
    typed: str, store: SessionPersistence | None, harness: Harness, plan: Plan
) -> list[Finding]:
    """One session, looked at closely."""
    if store is None:
        return [Finding("FAIL", "session", "no row stores sessions", "add the row session-jsonl")]
    found = await chosen(store, typed, plan.cwd)
    try:
        log = await read_known(store, found.id)
    except HarnessError as error:
        return [Finding("FAIL", "session", str(error), f"dsh sessions salvage {found.id}")]
    return list(session_findings(harness, log))


async def _sessions(store: SessionPersistence | None) -> AsyncIterator[Finding]:
    if store is None:
        yield Finding("skip", "sessions", "skipped: no row stores sessions")
        return
    stored = await store.list()
    torn = 0
    for one in stored:
        if one.header is None:
            yield Finding(
                "warn",
                "sessions",
                f"{one.id} is unreadable: {one.problem or 'no reason given'}",
                f"dsh sessions salvage {one.id}",
            )
    readable = [one for one in stored if one.header is not None]
    budget = LOG_BYTES
    for one in readable[:LOGS_READ]:
        budget -= one.bytes
        if budget < 0:
            break
        try:
            log = await store.read(one.id)
        except HarnessError as error:
            yield Finding("warn", "sessions", str(error), f"dsh sessions verify {one.id}")
            continue
        torn += log.torn is not None
    tails = f", {torn} torn tail{'s' * (torn != 1)} (repaired on resume)" if torn else ""
    yield Finding("ok", "sessions", f"{len(readable)} readable{tails}")


def _terminal(screen: Screen) -> Finding:
    if not screen.out.is_terminal:
        return Finding("skip", "terminal", "skipped: standard output is no terminal")
    encoding = getattr(sys.stdout, "encoding", None) or "unknown encoding"
    size = os.get_terminal_size(screen.out.fd)
    colours = "colours" if screen.colored else "no colours"
    return Finding("ok", "terminal", f"{encoding}, {colours}, {size.columns}x{size.lines}")
