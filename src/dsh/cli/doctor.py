"""`dsh doctor`: is everything that a run needs in order, and if not, what is to be done?

What comes in: typed options. What goes out: one finding for each thing that was looked at, on
standard output, and exit code 1 when something is to fix. It works with a broken composition: what
cannot be looked at then is skipped, and says so. It sends nothing anywhere and shows no secret.
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

from dsh.boot import Harness, Plan, mounted, places_of, planned, process_environ, rows_of
from dsh.cli.failures import explained
from dsh.cli.findings import Finding, Status, as_json, printed, summary
from dsh.cli.outlet import OutletClosed
from dsh.cli.plugins import NO_AGENTS
from dsh.cli.screen import Screen, open_screen
from dsh.errors import ConfigError, HarnessError, MissingCredential, UsageError
from dsh.kernel import FiberProblem, FiberState
from dsh.llm import LLM
from dsh.seams.persistence import PERSISTENCE, SessionPersistence

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from dsh.cli.arguments import DoctorOptions

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
            printed(findings, screen)
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
            findings += _plugins(harness, plan)
            findings += heard.findings()
            findings += _listeners(harness)
            findings += _keys(harness, plan)
            findings += [one async for one in _sessions(harness.kernel.root.get(PERSISTENCE))]
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


def _plugins(harness: Harness, plan: Plan) -> Iterator[Finding]:
    problems = harness.kernel.audit()
    for problem in problems:
        place = harness.rows.get(problem.id)
        where = f" (row at {place.row.row.place})" if place is not None else ""
        optional = place is not None and place.row.row.optional
        yield Finding(
            "warn" if optional else "FAIL",
            "plugin",
            f"{problem.reason}{where}",
            _remedy(problem, plan),
        )
    for issue in plan.composition.skipped:
        yield Finding("warn", "plugin", f"optional row left out: {issue}")
    if not problems:
        views = rows_of(harness)
        yield Finding("ok", "plugin", f"{len(views)} rows, all active: dsh plugins lists them")


def _remedy(problem: FiberProblem, plan: Plan) -> str:
    off = f"switch it off: a row with `id: {problem.id}` and `disabled: true`"
    if problem.cycle:
        return f"disable one of {', '.join(problem.cycle)}"
    if problem.state is FiberState.PENDING:
        for row in plan.composition.disabled:
            if row.name in problem.missing or row.id in problem.missing:
                return f'delete "disabled: true" of the row {row.id!r} (first at {row.place})'
        return f"add a row whose plugin provides {', '.join(problem.missing)}, or {off}"
    return f"repair it at the place named, or {off}"


def _listeners(harness: Harness) -> Iterator[Finding]:
    count = 0
    silent = False
    for view in rows_of(harness):
        for row in view.listeners:
            count += 1
            if row.never is not None:
                silent = True
                text = f"{row.plugin} at {row.place} can never run: {row.never}"
                yield Finding("warn", "listener", text)
    if not silent:
        yield Finding("ok", "listener", f"{count} registered, each can be reached")


def _keys(harness: Harness, plan: Plan) -> Iterator[Finding]:
    """Whether each route could be used now; only the profile's own provider has to be."""
    llm = harness.kernel.root.get(LLM)
    if llm is None:
        yield Finding("skip", "key", "skipped: the model seam is not active")
        return
    for provider in sorted(llm.routes()):
        try:
            llm.verify(provider)
        except HarnessError as error:
            problem, _, remedy = str(error).partition("; ")
            needed = provider == plan.profile.provider
            lesser: Status = "warn" if isinstance(error, MissingCredential) else "skip"
            yield Finding(
                "FAIL" if needed else lesser, "key", f"{provider}: {problem}", remedy or None
            )
        else:
            yield Finding("ok", "key", f"{provider}: usable")


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
