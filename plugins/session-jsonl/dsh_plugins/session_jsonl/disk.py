"""The few system calls that a session log needs, as one object that a test may replace.

What comes in: paths, descriptors, bytes and offsets. What goes out: what the system says; errors
are OSError as raised. Nothing is retried, buffered or interpreted here.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from dsh.seams.ownership import LockFiles

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Disk"]


class Disk(LockFiles):
    """The real disk. Every method is one call, so that a fault can be put at each of them."""

    def read(self, path: Path) -> bytes:
        """The whole content of a file."""
        return path.read_bytes()

    def sync(self, fd: int) -> None:
        """Force what was written through to the device."""
        os.fsync(fd)

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name; FileExistsError if the name is taken."""
        os.link(source, target)

    def rename(self, source: Path, target: Path) -> None:
        """Rename, replacing the target."""
        source.rename(target)
