"""The process environment and its secrets, as services: the seam ENVIRON and the seam CREDENTIALS.

What comes in: names of variables. What goes out: their values, and for keys a `Secret` that no
repr, log line or traceback shows. Boot provides both and is the only reader of the environment;
everything else asks here, so that a test or an embedding program can give another one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final, NoReturn, final

from typing_extensions import override

from dsh.kernel import ServiceKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["CREDENTIALS", "ENVIRON", "Credentials", "Environ", "Secret"]


@final
class Secret:
    """A key that shows itself only to `reveal()`. `name` is the variable it came from."""

    __slots__ = ("_value", "name")

    def __init__(self, name: str, value: str) -> None:
        self.name: Final = name
        self._value: Final = value

    def reveal(self) -> str:
        """The key itself. Put it into a header and nowhere else."""
        return self._value

    @override
    def __repr__(self) -> str:
        return f"<secret {self.name}>"

    @override
    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self!r} is not copied to other processes; resolve it there")


class Environ(ABC):
    """The variables this process was started with."""

    @abstractmethod
    def get(self, name: str) -> str | None:
        """The value of the variable, or None when it is not set. Empty text is a value."""

    @abstractmethod
    def variables(self) -> Mapping[str, str]:
        """All variables, a snapshot. Whoever passes it on takes out `secret_names()` first."""


class Credentials(ABC):
    """The keys of model providers, by the name of their environment variable."""

    @abstractmethod
    def resolve(self, name: str) -> Secret:
        """The key that `name` holds now.

        Raises MissingCredential when the variable is not set, is empty, or holds what no HTTP
        header can carry (white space, line breaks, characters beyond ASCII). The text names the
        variable and never shows the value.
        """

    @abstractmethod
    def reserve(self, names: Iterable[str]) -> None:
        """Say that these variables hold keys, so that no child process inherits them."""

    @abstractmethod
    def secret_names(self) -> frozenset[str]:
        """Every variable that no child process may inherit.

        The reserved ones, those that were resolved, and what ends in _API_KEY, _TOKEN or _SECRET.
        """


ENVIRON: Final[ServiceKey[Environ]] = ServiceKey("environ")
CREDENTIALS: Final[ServiceKey[Credentials]] = ServiceKey("credentials")
