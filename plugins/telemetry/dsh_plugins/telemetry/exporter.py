"""The way to the collector: a bounded queue, and one task that sends from it.

What comes in: spans and log records, from synchronous listeners, which never wait. What goes out:
requests to the configured address and to no other. What does not fit into the queue, or is refused,
is dropped and counted. A collector that hangs holds up this task alone, and the end of the program
only for as long as `close` is given.
"""

from __future__ import annotations

from collections import deque
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Generic, TypeVar, final

import httpx
import trio
from attrs import field, mutable

from dsh.errors import HarnessError, LlmError
from dsh.hooks import frozen
from dsh.llm import http

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable, Mapping, Sequence

    from dsh.kernel import Clock
    from dsh.seams.environ import Credentials
    from dsh_plugins.telemetry.measures import Measures
    from dsh_plugins.telemetry.otlp import Encoder
    from dsh_plugins.telemetry.redaction import Redaction
    from dsh_plugins.telemetry.spans import LogRecord, Span

__all__ = ["Collector", "Exporter"]

T = TypeVar("T")

BATCH: Final = 256
#: How often a batch is tried, one interval after the other.
TRIES: Final = 5
CLOSE_SECONDS: Final = 0.25
AGAIN: Final = frozenset(
    {
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
    }
)


class _Failed(Exception):
    """A request that failed. `again`: it may be made once more."""

    def __init__(self, why: str, *, again: bool) -> None:
        super().__init__(why)
        self.again = again


@frozen(kw_only=True, slots=True)
class Collector:
    """Where to send, and how. `seconds`: for one request."""

    url: httpx.URL
    headers: Mapping[str, str] = field(repr=False)
    header_env: Mapping[str, str]
    credentials: Credentials = field(repr=False)
    transport: httpx.AsyncBaseTransport = field(repr=False)
    seconds: float

    async def post(self, signal: str, body: bytes) -> None:
        """Send one body. Raises _Failed, whose text holds no secret."""
        headers = {"Content-Type": "application/json", **self.headers}
        for name, variable in self.header_env.items():
            try:
                headers[name] = self.credentials.resolve(variable).reveal()
            except HarnessError as error:
                raise _Failed(error.message, again=False) from None
        path = f"{self.url.path.rstrip('/')}/v1/{signal}"
        timeouts = dict.fromkeys(("connect", "read", "write"), self.seconds)
        request = httpx.Request(
            "POST",
            self.url.copy_with(path=path),
            content=body,
            headers=headers,
            extensions={"timeout": {**timeouts, "pool": None}},
        )
        status = None
        with trio.move_on_after(self.seconds):
            status = await self._status(request)
        if status is None:
            raise _Failed(f"no answer within {self.seconds:g} s", again=True)
        if not HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
            raise _Failed(f"it answered {status}", again=status in AGAIN)

    async def _status(self, request: httpx.Request) -> int:
        try:
            response = await self.transport.handle_async_request(request)
        except (httpx.HTTPError, OSError) as error:
            raise _Failed(f"it cannot be reached ({type(error).__name__})", again=True) from None
        except LlmError as error:
            raise _Failed(error.message, again=False) from None
        try:
            body = http.Body(response)
        except LlmError:
            await response.aclose()
        else:
            await body.read_out(CLOSE_SECONDS)
            await body.aclose(CLOSE_SECONDS)
        return response.status_code


@mutable(slots=True, eq=False)
class _Queue(Generic[T]):
    """What waits to be sent under one path. `held`: a batch that was tried `tries` times."""

    signal: str
    most: int
    write: Callable[[Sequence[T]], bytes]
    waiting: deque[T] = field(factory=deque)
    held: list[T] = field(factory=list)
    tries: int = 0

    def add(self, item: T) -> bool:
        """False: there is no room."""
        if len(self.waiting) + len(self.held) >= self.most:
            return False
        self.waiting.append(item)
        return True

    def take(self) -> list[T]:
        """The batch to send next; empty if nothing waits."""
        while self.waiting and len(self.held) < BATCH:
            self.held.append(self.waiting.popleft())
        return self.held

    def done(self) -> None:
        """The batch is sent, or given up."""
        self.held = []
        self.tries = 0


@final
class Exporter:
    """Sends every `interval` seconds, and when it is closed."""

    def __init__(
        self,
        collector: Collector,
        encoder: Encoder,
        measures: Measures | None,
        redaction: Redaction,
        *,
        clock: Clock,
        log: logging.Logger,
        interval: float,
        queue: int,
    ) -> None:
        self._collector: Final = collector
        self._encoder: Final = encoder
        self._measures: Final = measures
        self._redaction: Final = redaction
        self._clock: Final = clock
        self._log: Final = log
        self._interval: Final = interval
        self._spans: Final = _Queue["Span"]("traces", queue, encoder.traces)
        self._logs: Final = _Queue["LogRecord"]("logs", queue, encoder.logs)
        self._sending: Final = trio.Lock()
        self._complained = False
        self.dropped = 0

    def add_span(self, span: Span) -> None:
        """Take a finished span. Never waits."""
        if not self._spans.add(span):
            self._drop("traces", 1)

    def add_log(self, record: LogRecord) -> None:
        """Take a record. Never waits."""
        if not self._logs.add(record):
            self._drop("logs", 1)

    async def run(self) -> None:
        """Send, for ever."""
        while True:
            await trio.sleep(self._interval)
            async with self._sending:
                await self._flush()

    async def close(self, seconds: float) -> None:
        """Send what is left, for at most so long; drop the rest."""
        with trio.move_on_after(seconds):
            async with self._sending:
                await self._flush()
        rest = len(self._spans.take()) + len(self._spans.waiting)
        rest += len(self._logs.take()) + len(self._logs.waiting)
        if rest:
            self._log.warning("%d spans and log records were not sent: no time was left", rest)
        with trio.move_on_after(CLOSE_SECONDS, shield=True):
            await self._collector.transport.aclose()

    async def _flush(self) -> None:
        self._redaction.renew()
        await self._emptied(self._spans)
        await self._emptied(self._logs)
        if self._measures is not None and self._measures.snapshot():
            body = self._encoder.metrics(self._measures, self._clock.now_ms())
            try:
                await self._collector.post("metrics", body)
            except _Failed as error:  # the next snapshot has it all
                self._complain("metrics", error)

    async def _emptied(self, queue: _Queue[T]) -> None:
        """Send batch by batch, until nothing waits or the collector does not take it."""
        while batch := queue.take():
            try:
                await self._collector.post(queue.signal, queue.write(batch))
            except _Failed as error:
                self._complain(queue.signal, error)
                queue.tries += 1
                if error.again and queue.tries < TRIES:
                    return
                self._drop(queue.signal, len(batch))
            queue.done()

    def _drop(self, signal: str, count: int) -> None:
        self.dropped += count
        if self._measures is not None:
            self._measures.add("dsh.telemetry.dropped", count, {"signal": signal})

    def _complain(self, signal: str, error: _Failed) -> None:
        """Say it once; a collector may be away for hours."""
        if not self._complained:
            self._complained = True
            self._log.warning("%s could not be sent to the collector: %s", signal, error)
