"""The process environment: the one place of dsh that reads it, and its two services.

What comes in: the variables of the process, or a mapping an embedding program or a test gives.
What goes out: the providers of ENVIRON and CREDENTIALS. It never writes the environment, and never
shows a value of a key.
"""

from __future__ import annotations

import os
import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from dsh.errors import MissingCredential
from dsh.kernel import Context, Plugin, plugin
from dsh.seams.environ import CREDENTIALS, ENVIRON, Credentials, Environ, Secret

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["EnvironCredentials", "ProcessEnviron", "environ_plugin", "process_environ"]

SECRET_ENDINGS: Final = ("_API_KEY", "_TOKEN", "_SECRET")
PRINTABLE: Final = range(0x21, 0x7F)
VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class ProcessEnviron(Environ):
    """A snapshot of variables, taken once."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables: Final = MappingProxyType(dict(variables))

    @override
    def get(self, name: str) -> str | None:
        return self._variables.get(name)

    @override
    def variables(self) -> Mapping[str, str]:
        return self._variables


def process_environ() -> ProcessEnviron:
    """The variables this process has now."""
    return ProcessEnviron(os.environ)  # noqa: TID251 - the one reader


class EnvironCredentials(Credentials):
    """Keys taken from an `Environ`, checked for what a header can carry."""

    def __init__(self, environ: Environ) -> None:
        self._environ: Final = environ
        self._reserved: Final[set[str]] = set()

    @override
    def resolve(self, name: str) -> Secret:
        if not VARIABLE.fullmatch(name):
            # Perhaps the key itself stands there: it must not be shown.
            raise MissingCredential(
                "apiKeyEnv holds what is no name of an environment variable; "
                "give the name, as in DEEPSEEK_API_KEY, and export the key under it"
            )
        self._reserved.add(name)
        value = self._environ.get(name)
        if value is None or not value:
            state = "not set" if value is None else "empty"
            raise MissingCredential(
                f"{name} is {state}; export it with the provider's key, "
                "or try without a key: add --profile demo"
            )
        fault = _unsendable(value)
        if fault is not None:
            raise MissingCredential(
                f"{name} holds {fault}, which no HTTP header can carry; "
                "export the key alone, as the provider shows it",
                code="INVALID_CREDENTIAL",
            )
        return Secret(name, value)

    @override
    def reserve(self, names: Iterable[str]) -> None:
        self._reserved.update(names)

    @override
    def secret_names(self) -> frozenset[str]:
        guessed = (
            name for name in self._environ.variables() if name.upper().endswith(SECRET_ENDINGS)
        )
        return frozenset(self._reserved).union(guessed)


def _unsendable(value: str) -> str | None:
    """What in `value` is no part of a key, in words that do not show it."""
    for position, character in enumerate(value):
        if ord(character) in PRINTABLE:
            continue
        where = f"at character {position + 1} of {len(value)}"
        if character in "\r\n":
            return f"a line break {where}"
        if value.startswith("Bearer "):
            return "the word 'Bearer' before the key"
        if character.isspace():
            return f"white space {where}"
        if not character.isprintable() and character.isascii():
            return f"a control character {where}"
        return f"a character beyond ASCII {where}"
    return None


def environ_plugin(environ: Environ, credentials: Credentials) -> Plugin:
    """The row that provides ENVIRON and CREDENTIALS."""

    @plugin(name="environ", provides=(ENVIRON, CREDENTIALS))
    async def apply(ctx: Context) -> None:
        ctx.provide(ENVIRON, environ)
        ctx.provide(CREDENTIALS, credentials)

    return apply
