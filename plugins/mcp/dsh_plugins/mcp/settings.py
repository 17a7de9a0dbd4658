"""What the configuration of one server means: a program, or an address, checked.

What comes in: a `McpServer` of the configuration, the environment, the credentials. What goes out:
a `Program` or an `Endpoint`. Keys are looked up when they are used, appear in no text, and no child
gets a variable that holds one unless the configuration names it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, TypeAlias

import httpx
from attrs import field

from dsh.errors import PluginError
from dsh.hooks import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dsh.seams.environ import Credentials, Environ, Secret
    from dsh_plugins.mcp.catalog import McpServer

__all__ = ["Endpoint", "Program", "Target", "target_of"]

#: With the prefix and two separators it leaves a tool's own name 32 characters at least.
NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,23}")
HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
HEADER_VALUE: Final = re.compile(r"[\x20-\x7e]*")
#: Programs that would wait for a person, or draw on a terminal, do neither here.
PLAIN: Final = {"TERM": "dumb"}
#: A shorter value is no secret that could be recognised in a text.
SECRET_MIN: Final = 6


@frozen(kw_only=True, slots=True, eq=False)
class Program:
    """A server to start. `cwd` None: where dsh itself runs."""

    command: str
    args: tuple[str, ...]
    cwd: str | None
    variables: Mapping[str, str] = field(repr=False)
    passed: tuple[str, ...]
    environ: Environ = field(repr=False)
    credentials: Credentials = field(repr=False)

    def environment(self) -> dict[str, str]:
        """Its environment: ours without keys, what the configuration names, and what it adds."""
        secret = self.credentials.secret_names() - set(self.passed)
        ours = self.environ.variables()
        kept = {name: value for name, value in ours.items() if name not in secret}
        return kept | PLAIN | dict(self.variables)

    def hide(self, text: str) -> str:
        """`text` without the values of the variables that were passed on."""
        for name in self.passed:
            value = self.environ.get(name)
            if value is not None and len(value) >= SECRET_MIN:
                text = text.replace(value, f"[the value of {name}]")
        return text


@frozen(kw_only=True, slots=True, eq=False)
class Endpoint:
    """A server to reach. Headers that hold keys are made for each request."""

    url: httpx.URL
    headers: Mapping[str, str] = field(repr=False)
    header_env: Mapping[str, str]
    bearer_env: str | None
    credentials: Credentials = field(repr=False)

    @property
    def where(self) -> str:
        """The server as errors name it: without path and query, which may hold a token."""
        return f"{self.url.scheme}://{self.url.netloc.decode()}"

    def signed(self) -> dict[str, str]:
        """All headers of its own. Raises MissingCredential naming the variable."""
        made = dict(self.headers)
        for name, variable in self.header_env.items():
            made[name] = self.credentials.resolve(variable).reveal()
        if self.bearer_env is not None:
            made["Authorization"] = f"Bearer {self.credentials.resolve(self.bearer_env).reveal()}"
        return made

    def secrets(self) -> tuple[Secret, ...]:
        """What must not appear in any text."""
        names = [*self.header_env.values(), *([self.bearer_env] if self.bearer_env else [])]
        return tuple(self.credentials.resolve(name) for name in names)

    def hide(self, text: str) -> str:
        """`text` without the keys, should the server have repeated them."""
        for secret in self.secrets():
            text = text.replace(secret.reveal(), f"[the value of {secret.name}]")
        return text


Target: TypeAlias = Program | Endpoint


def target_of(name: str, given: McpServer, environ: Environ, credentials: Credentials) -> Target:
    """The program or the address. Raises PluginError (BAD_CONFIG), saying what to write."""
    if not NAME.fullmatch(name):
        raise _bad(
            name, "is no name: use small letters, digits, `_` and `-`, at most 24, a letter first"
        )
    if (given.command is None) == (given.url is None):
        both = "says both `command` and `url`" if given.url else "says neither `command` nor `url`"
        raise _bad(name, f"{both}: give the program to start, or the address to reach")
    if given.command is not None:
        extra = [
            *given.headers,
            *given.header_env,
            *([given.bearer_env] if given.bearer_env else []),
        ]
        if extra:
            raise _bad(
                name, "has a `command`, so headers say nothing; pass variables with `envFrom`"
            )
        credentials.reserve(given.env_from)
        return Program(
            command=given.command,
            args=given.args,
            cwd=given.cwd,
            variables=given.env,
            passed=given.env_from,
            environ=environ,
            credentials=credentials,
        )
    if given.args or given.env or given.env_from or given.cwd:
        raise _bad(
            name, "has a `url`, so nothing is started: `args`, `env`, `envFrom` and `cwd` go"
        )
    for header, value in given.headers.items():
        if not HEADER_NAME.fullmatch(header) or not HEADER_VALUE.fullmatch(value):
            raise _bad(name, f"has a header {header!r} that cannot be sent")
    for header in given.header_env:
        if not HEADER_NAME.fullmatch(header):
            raise _bad(name, f"has a header {header!r} that cannot be sent")
    used = [*given.header_env.values(), *([given.bearer_env] if given.bearer_env else [])]
    credentials.reserve(used)
    return Endpoint(
        url=_address(name, given.url or ""),
        headers=given.headers,
        header_env=given.header_env,
        bearer_env=given.bearer_env,
        credentials=credentials,
    )


def _address(name: str, text: str) -> httpx.URL:
    try:
        url = httpx.URL(text.strip())
    except httpx.InvalidURL:
        raise _bad(name, "has a `url` that is no address") from None
    if url.scheme not in {"http", "https"} or not url.host:
        raise _bad(name, "has a `url` that is no http:// or https:// address")
    if url.userinfo:
        raise _bad(name, "has a user name or password in its `url`; use `bearerEnv` or `headerEnv`")
    return url


def _bad(name: str, problem: str) -> PluginError:
    return PluginError(f"the server {name!r} {problem} (at mcp.servers)", code="BAD_CONFIG")
