"""Reading a response's body, and leaving it unfinished without leaving anything behind.

What comes in: a response whose headers are there. What goes out: its bytes, decompressed, one
network read at a time. The HTTP library below is a stack of generators, each of which must be
unwound in this task: a body that is left early is therefore read on inside a cancelled scope, so
that the innermost read fails at once and every layer closes behind it, the connection first.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final, Protocol, final

import httpx
import trio

from dsh.errors import LlmError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["Body"]


class _Inflater(Protocol):
    @property
    def unconsumed_tail(self) -> bytes: ...

    def decompress(self, data: bytes, /, max_length: int = 0) -> bytes: ...


@final
class Body:
    """One body. `read()` until it gives b"", then or earlier `aclose()`."""

    __slots__ = ("_inflater", "_reads", "_response")

    def __init__(self, response: httpx.Response) -> None:
        stream = response.stream
        if not isinstance(stream, httpx.AsyncByteStream):
            raise TypeError(f"{type(stream).__name__} is not a stream that trio can read")
        self._response: Final = response
        self._reads: AsyncIterator[bytes] | None = aiter(stream)
        self._inflater: Final = _inflater(response.headers.get("content-encoding", ""))

    async def read(self, limit: int = 0) -> bytes:
        """The next bytes, b"" at the end. Raises httpx errors, or LlmError MALFORMED_RESPONSE.

        `limit` bounds what one read may swell to when it is decompressed; 0: no bound.
        """
        reads = self._reads
        while reads is not None:
            try:
                piece = await anext(reads)
            except StopAsyncIteration:
                self._reads = None
                break
            if self._inflater is not None:
                piece = self._inflate(self._inflater, piece, limit)
            # An empty piece is no end: a compressor may hold everything back.
            if piece:
                return piece
        return b""

    async def read_up_to(self, limit: int, seconds: float) -> bytes:
        """At most `limit` bytes, within `seconds`. What breaks off gives what came of it."""
        found = bytearray()
        with trio.move_on_after(seconds):
            try:
                while len(found) < limit:
                    piece = await self.read(limit)
                    if not piece:
                        break
                    found += piece
            except (httpx.HTTPError, httpx.StreamError, OSError):
                pass
            except LlmError as error:
                return error.message.encode()
        return bytes(found[:limit])

    async def read_out(self, seconds: float) -> None:
        """Read on to the end for at most so long, so that the connection can be used again."""
        reads = self._reads
        if reads is None:
            return
        with trio.move_on_after(seconds):
            await _exhaust(reads)
            self._reads = None

    async def aclose(self, seconds: float) -> None:
        """Close the response; if the body was not read to its end, the connection with it."""
        reads, self._reads = self._reads, None
        if reads is None:
            # Its connection went back to the pool when the last byte was read.
            await self._response.aclose()
            return
        with trio.CancelScope(shield=True) as left:
            left.cancel()
            await _exhaust(reads)
        with trio.move_on_after(seconds, shield=True):
            await self._response.aclose()

    def _inflate(self, inflater: _Inflater, piece: bytes, limit: int) -> bytes:
        try:
            return inflater.decompress(piece, limit)
        except zlib.error:
            raise LlmError(
                "the body is not compressed as its headers say", code="MALFORMED_RESPONSE"
            ) from None


async def _exhaust(reads: AsyncIterator[bytes]) -> None:
    try:
        async for _ in reads:
            pass
    except (httpx.HTTPError, httpx.StreamError, OSError):
        # Nobody wants these bytes; how their connection ends does not matter.
        pass


def _inflater(encoding: str) -> _Inflater | None:
    match encoding.strip().lower():
        case "" | "identity":
            return None
        case "gzip" | "x-gzip":
            return zlib.decompressobj(zlib.MAX_WBITS | 16)
        case "deflate":
            return zlib.decompressobj()
        case other:
            raise LlmError(
                f"the body is compressed as {other!r}, which was not asked for",
                code="MALFORMED_RESPONSE",
            )
