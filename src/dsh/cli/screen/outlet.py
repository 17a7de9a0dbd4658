"""Standard output and standard error: written without ever stopping the loop.

What comes in: text, or bytes of whole lines. What goes out: the same, in order, on a file
descriptor. A reader that is slow costs memory, never time: what does not fit waits for `flushed`.
A reader that is gone raises `OutletClosed` once. Nothing here knows what the text means.
"""

from __future__ import annotations

import errno
import os
import select
from contextlib import suppress
from typing import Final, final

import trio

__all__ = ["Outlet", "OutletClosed"]

#: A pipe that polls as writable takes this much without blocking (POSIX: PIPE_BUF ≥ 512).
PIECE: Final = select.PIPE_BUF


class OutletClosed(Exception):
    """The reader is gone (`broken`), or the device refused."""

    def __init__(self, name: str, error: OSError) -> None:
        super().__init__(f"cannot write to {name}: {error.strerror}")
        self.broken: Final = error.errno in (errno.EPIPE, errno.ECONNRESET)


@final
class Outlet:
    """One of the two output descriptors. `name` is how messages call it."""

    def __init__(self, fd: int, name: str, encoding: str | None = None) -> None:
        self.fd: Final = fd
        self.name: Final = name
        self.encoding: Final = encoding or "utf-8"
        self.is_terminal: Final = os.isatty(fd)
        self._poll: Final = select.poll()
        self._poll.register(fd, select.POLLOUT)
        self._waiting = bytearray()
        self._failed: OutletClosed | None = None

    def encodable(self, text: str, fallback: str) -> str:
        """`text` if this outlet's encoding has its characters, else `fallback`."""
        try:
            text.encode(self.encoding)
        except (UnicodeEncodeError, LookupError):
            return fallback
        return text

    def text(self, text: str) -> None:
        """Write text; what the encoding lacks is written as an escape. Raises OutletClosed."""
        self.data(text.encode(self.encoding, "backslashreplace"))

    @property
    def failed(self) -> bool:
        """True after a write failed; nothing more is written then."""
        return self._failed is not None

    @property
    def failure(self) -> OutletClosed | None:
        """Why the first failed write failed."""
        return self._failed

    def attempt(self, text: str) -> bool:
        """`text`, for what may be lost: False when the outlet is closed."""
        try:
            self.text(text)
        except OutletClosed:
            return False
        return True

    def data(self, data: bytes) -> None:
        """Write bytes as they are. Raises OutletClosed when an earlier or this write failed."""
        if self._failed is not None:
            raise self._failed
        self._waiting += data
        self._push()

    def _push(self) -> None:
        """Write what fits now. Never blocks."""
        while self._waiting and self._poll.poll(0):
            try:
                written = os.write(self.fd, self._waiting[:PIECE])
            except BlockingIOError:
                return
            except OSError as error:
                self._waiting.clear()
                self._failed = OutletClosed(self.name, error)
                raise self._failed from error
            del self._waiting[:written]

    async def flushed(self) -> None:
        """Return when everything is written. Cancellable; raises OutletClosed."""
        while self._waiting:
            await trio.lowlevel.wait_writable(self.fd)
            self._push()

    def finish(self, deadline_ms: int = 2000) -> None:
        """Write what still waits, outside of trio, for at most `deadline_ms`. Never raises."""
        with suppress(OutletClosed):
            while self._waiting and self._poll.poll(deadline_ms):
                self._push()
