"""Where dsh keeps things: the state directory, the sessions in it, the user's settings.

What comes in: the environment, and the working directory. What goes out: absolute paths. It creates
nothing but the state directory, and only when asked to prove that it can be written.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dsh.errors import UsageError
from dsh.hooks import frozen

if TYPE_CHECKING:
    from dsh.seams.environ import Environ

__all__ = ["PROJECT_FILE", "Places", "places_of", "workspace"]

PROJECT_FILE: Final = "dsh.yml"


@frozen(kw_only=True, slots=True)
class Places:
    """Absolute paths. Nothing is promised to exist."""

    state: Path
    settings: Path

    @property
    def sessions(self) -> Path:
        """Where session logs are kept, unless `session-jsonl.root` says otherwise."""
        return self.state / "sessions"

    def prepare(self) -> None:
        """Create the state directory and prove that it can be written. Raises UsageError."""
        try:
            self.sessions.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"cannot create the state directory {self.sessions}: {error.strerror or error}; "
                "set DSH_HOME to a directory you may write"
            ) from error
        if not os.access(self.sessions, os.W_OK | os.X_OK):
            raise UsageError(
                f"the state directory {self.sessions} is not writable; "
                "set DSH_HOME to a directory you may write"
            )


def places_of(environ: Environ, home: Path | None = None) -> Places:
    """The places of this process. `home` stands for $DSH_HOME.

    State: $DSH_HOME, else $XDG_STATE_HOME/dsh, else ~/.local/state/dsh. Settings: $DSH_HOME, else
    $XDG_CONFIG_HOME/dsh, else ~/.config/dsh, and there settings.yml.
    """
    if home is None:
        own = environ.get("DSH_HOME")
        home = Path(own) if own else None
    if home is not None:
        home = home.expanduser().absolute()
        return Places(state=home, settings=home / "settings.yml")
    return Places(
        state=_xdg(environ, "XDG_STATE_HOME", ".local/state") / "dsh",
        settings=_xdg(environ, "XDG_CONFIG_HOME", ".config") / "dsh" / "settings.yml",
    )


def _xdg(environ: Environ, name: str, under_home: str) -> Path:
    value = environ.get(name)
    # The XDG rule: a path that is not absolute counts as not set.
    if value and Path(value).is_absolute():
        return Path(value)
    own = environ.get("HOME")
    return (Path(own) if own else Path.home()) / under_home


def workspace(cwd: Path | None) -> Path:
    """The working directory of a run, absolute. Raises UsageError when it cannot be used."""
    try:
        path = Path.cwd() if cwd is None else cwd.expanduser().absolute()
    except FileNotFoundError as error:
        raise UsageError(
            "the current directory no longer exists; cd to another one, or use --cwd DIR"
        ) from error
    if not path.exists():
        raise UsageError(f"no such workspace: {path}; create it, or name another with --cwd DIR")
    if not path.is_dir():
        raise UsageError(f"the workspace {path} is not a directory; name one with --cwd DIR")
    if not os.access(path, os.R_OK | os.X_OK):
        raise UsageError(
            f"the workspace {path} cannot be read; change its rights, or use another: --cwd DIR"
        )
    return path
