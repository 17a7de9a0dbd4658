"""The seam ORIGINS: where the values of a plugin's configuration were written.

What comes in: a plugin's name, and the way to a value in its configuration. What goes out: the
layer it came from, with line and column where that is a file, in words for a log or a message.
Boot provides it for the composition that runs; a plugin that is mounted by itself has none.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from dsh.kernel import ServiceKey

__all__ = ["ORIGINS", "Origins"]


class Origins(ABC):
    """Knows the composition. Quick; may be asked at any time."""

    @abstractmethod
    def of(self, plugin: str, *path: str | int) -> str | None:
        """Where the value at `path` was written, as in `dsh.yml:3:7` or `profile chat`.

        If nothing was written there, the nearest thing around it. None: no row has this plugin.
        """


ORIGINS: Final[ServiceKey[Origins]] = ServiceKey("origins")
