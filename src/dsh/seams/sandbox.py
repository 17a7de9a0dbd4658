"""The sandbox seam: what a process of a tool is started through, so that it stays in the workspace.

What comes in: the arguments of a process, and the workspace. What goes out: other arguments, which
start the same process confined. Who starts processes for tools asks here; without a provider they
run as they are. This module confines nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

from dsh.kernel import ServiceKey

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dsh.kernel import Late

__all__ = ["SANDBOX", "Sandbox", "confining"]


class Sandbox(ABC):
    """Confines processes."""

    @abstractmethod
    def confined(self, argv: Sequence[str], cwd: str) -> tuple[str, ...]:
        """`argv` so that it runs in `cwd` and writes nowhere else.

        The process that is started becomes, or waits for, the confined one, and passes its exit
        status on. Raises ToolError if it may not run unconfined and cannot be confined.
        """


SANDBOX: Final[ServiceKey[Sandbox]] = ServiceKey("sandbox")


def confining(sandbox: Late[Sandbox]) -> Callable[[Sequence[str], str], Sequence[str]]:
    """`confined` of whatever sandbox there is when a process starts; without one, no change."""

    def confined(argv: Sequence[str], cwd: str) -> Sequence[str]:
        found = sandbox.current
        return argv if found is None else found.confined(argv, cwd)

    return confined
