"""The preview seam: how much of what tools print and change a conversation shows.

What comes in: a configuration. What goes out: three numbers, as of now. Without a provider the
defaults hold; whoever shows nothing has no use for it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from dsh.hooks import frozen
from dsh.kernel import ServiceKey

__all__ = ["PREVIEWS", "PreviewLines", "Previews"]


@frozen(kw_only=True, slots=True)
class PreviewLines:
    """Lines of a tool's output, of a failed one's, and of an edit; each 0 or more."""

    tool: int = 1
    failed: int = 3
    change: int = 20


class Previews(ABC):
    """Who provides this was told how much to show."""

    @abstractmethod
    def lines(self) -> PreviewLines:
        """How much is shown from now on."""


PREVIEWS: Final[ServiceKey[Previews]] = ServiceKey("previews")
