"""The plugin `telemetry`: traces, metrics and logs for an OpenTelemetry collector.

What comes in: the events of sessions, frames of attempts, bodies of tools. What goes out: OTLP
requests to one address. It changes nothing, waits for nothing, and holds no listener up: what
cannot be sent in time is dropped and counted.
"""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Final

import httpx

from dsh import Context, Next, plugin
from dsh import catalog as ev
from dsh.errors import PluginError
from dsh.hooks import frozen
from dsh.kernel import required
from dsh.llm import http
from dsh.seams.environ import CREDENTIALS, ENVIRON, Credentials, Environ
from dsh_plugins.telemetry.catalog import TelemetryConfig
from dsh_plugins.telemetry.exporter import Collector, Exporter
from dsh_plugins.telemetry.journal import record_of
from dsh_plugins.telemetry.measures import Measures
from dsh_plugins.telemetry.otlp import Encoder
from dsh_plugins.telemetry.recorder import Recorder
from dsh_plugins.telemetry.redaction import Redaction

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dsh.hooks.live import ToolResult
    from dsh_plugins.telemetry.spans import Span

__all__ = ["telemetry"]

VARIABLE: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
DEFAULT: Final = "http://127.0.0.1:4318"
HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


@frozen
class _Deps:
    environ: Environ = required(ENVIRON)
    credentials: Credentials = required(CREDENTIALS)


@plugin(name="telemetry", config=TelemetryConfig, deps=_Deps)
async def telemetry(ctx: Context, config: TelemetryConfig, deps: _Deps) -> None:
    """Listen to everything that has a span, and send it from a task of its own."""
    measures = Measures(ctx.clock.now_ms())
    exporter = _exporter(ctx, config, deps, measures)
    recorder = Recorder(
        exporter.add_span if config.traces else _dropped, measures, content=config.content
    )

    async def sending() -> Callable[[], Awaitable[None]]:
        async def close() -> None:
            recorder.close(ctx.clock.now_ms())
            await exporter.close(config.shutdown_ms / 1000)

        return close

    # First in, last out: the listeners are gone, and the task is, before the rest is sent.
    await ctx.aeffect(sending, label="the last telemetry")
    ctx.spawn(exporter.run, label="telemetry")
    _listen(ctx, recorder)
    if config.logs:

        @ctx.on(ev.session.EVENT)
        def logged(event: ev.session.Event) -> None:
            if isinstance(event.event.data, ev.assistant.Chunk):
                return  # what most events are
            place = recorder.where(event.session)
            exporter.add_log(record_of(event, place, content=config.content))

        del logged


def _listen(ctx: Context, recorder: Recorder) -> None:
    ctx.on(ev.agent.CREATED)(lambda event: recorder.joined(event.agent))
    ctx.on(ev.agent.DISPOSED)(lambda event: recorder.left(event.agent))
    ctx.on(ev.session.DISPOSED)(lambda event: recorder.closed(event.session.id, ctx.clock.now_ms()))
    ctx.on(ev.turn.START)(recorder.turn_started)
    ctx.on(ev.turn.END)(recorder.turn_ended)
    ctx.on(ev.step.START)(recorder.step_started)
    ctx.on(ev.step.END)(recorder.step_ended)
    ctx.on(ev.request.HEADER)(recorder.configured)
    ctx.on(ev.assistant.MESSAGE)(recorder.replied)
    ctx.on(ev.llm.RETRY)(recorder.retried)
    ctx.on(ev.tool.CALL)(recorder.called)
    ctx.on(ev.tool.RESULT)(recorder.answered)

    @ctx.on(ev.agent.ASSISTANT_STREAM)
    def framed(event: ev.agent.AssistantStream) -> None:
        recorder.framed(event, ctx.clock.now_ms)

    @ctx.on(ev.tools.EXECUTE, prepend=True)
    async def around(event: ev.tools.Execute, call_next: Next[ToolResult]) -> ToolResult:
        recorder.began(event.exec, ctx.clock.now_ms())
        try:
            return await call_next()
        finally:
            recorder.ended(event.exec, ctx.clock.now_ms())

    del framed, around


def _exporter(ctx: Context, config: TelemetryConfig, deps: _Deps, measures: Measures) -> Exporter:
    redaction = Redaction(config.redact, deps.environ, deps.credentials)
    for name, value in (*config.headers.items(), *((name, "") for name in config.header_env)):
        if not HEADER_NAME.fullmatch(name) or not value.isascii() or not value.isprintable():
            where = "headers" if name in config.headers else "headerEnv"
            raise PluginError(
                f"the header {name!r} cannot be sent (at telemetry.{where})", code="BAD_CONFIG"
            )
    deps.credentials.reserve(config.header_env.values())
    resource = {"service.name": config.service_name, "service.version": _own_version()}
    return Exporter(
        Collector(
            url=_address(config.endpoint or deps.environ.get(VARIABLE) or DEFAULT),
            headers=config.headers,
            header_env=config.header_env,
            credentials=deps.credentials,
            transport=http.Pools(deps.environ),
            seconds=config.timeout_ms / 1000,
        ),
        Encoder(resource, _own_version(), redaction, content=config.content),
        measures if config.metrics else None,
        redaction,
        clock=ctx.clock,
        log=ctx.log,
        interval=config.interval_ms / 1000,
        queue=config.queue,
    )


def _address(text: str) -> httpx.URL:
    try:
        url = httpx.URL(text.strip())
    except httpx.InvalidURL:
        url = httpx.URL("")
    if url.scheme not in {"http", "https"} or not url.host or url.userinfo:
        raise PluginError(
            f"the collector's address is no http:// or https:// address without a password; write "
            f"it as in {DEFAULT} at telemetry.endpoint or in {VARIABLE}",
            code="BAD_CONFIG",
        )
    return url


def _dropped(_span: Span) -> None:
    """No traces are wanted."""


def _own_version() -> str:
    try:
        return version("dsh-trio")
    except PackageNotFoundError:
        return "0"
