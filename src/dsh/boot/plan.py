"""A plan: everything that is decided before anything is mounted.

What comes in: a profile's name, files, settings, `--set` arguments, rows and plugins given in
Python. What goes out: places, workspace, environment, and the composition; or one error with every
mistake. Files are read here, once, in the order of the layers.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dsh.boot.composition import Composition, composed, key_variables
from dsh.boot.discovery import Installed
from dsh.boot.environ import EnvironCredentials, process_environ
from dsh.boot.names import ROOMS
from dsh.boot.places import PROJECT_FILE, Places, places_of, workspace
from dsh.boot.profiles import Profile, profile_named
from dsh.boot.rooms import room
from dsh.boot.rows import Layer, Row, layer_of_node, layer_of_rows
from dsh.errors import ConfigError
from dsh.hooks import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dsh.boot.nodes import Issue, Place
    from dsh.kernel import Plugin
    from dsh.seams.environ import Environ

__all__ = ["Plan", "planned"]

BUILT_IN: Final = "the rooms of dsh"


@frozen(kw_only=True, slots=True, eq=False)
class Plan:
    """What will be mounted, for whom, and where."""

    profile: Profile
    places: Places
    cwd: Path
    environ: Environ
    credentials: EnvironCredentials
    composition: Composition
    #: What the layers that say anything are called, lowest first.
    layers: tuple[str, ...]
    #: The composition file in place of the project's own.
    file: Path | None
    #: Read the same layers anew, as they are then.
    again: Callable[[], Plan]


def planned(  # noqa: PLR0913 - the arguments of open_harness, and `only`
    config: str | Path | None = None,
    *,
    profile: str = "headless",
    rows: Sequence[Row] = (),
    sets: Sequence[str] = (),
    home: Path | None = None,
    cwd: Path | None = None,
    plugins: Sequence[Plugin] = (),
    environ: Environ | None = None,
    only: frozenset[str] | None = None,
    files: bool = True,
) -> Plan:
    """Read and check everything. Raises UsageError; nothing is created and nothing runs.

    `config`: a composition file in place of the project's own, accepted as it is; relative to the
    process's directory. `home` stands for $DSH_HOME. `plugins` may be named by rows; those that
    no row names are mounted after all rows. `only`: look at the rows with these ids alone. If not
    `files`, neither the project's composition nor the user's settings are read.
    """
    environ = environ if environ is not None else process_environ()
    chosen = profile_named(profile)
    places = places_of(environ, home)
    directory = workspace(cwd)
    issues: list[Issue] = []
    layers = [
        layer_of_rows(BUILT_IN, (Row(name=name) for name in ROOMS)),
        layer_of_rows(f"profile {chosen.name}", chosen.placed(places)),
    ]
    if files:
        layers.append(_project(config, directory, issues))
        layers.append(_file(places.settings, str(places.settings), issues, trusted=True))
    layers += _given(layers, rows, plugins)
    installed = Installed(plugins)

    def load(name: str, place: Place) -> Plugin | Issue:
        found = room(name)
        return found if found is not None else installed.load(name, place)

    composition = composed(layers, sets, load, issues=issues, only=only)
    credentials = EnvironCredentials(environ)
    credentials.reserve(key_variables(composition.mountables))
    return Plan(
        profile=chosen,
        places=places,
        cwd=directory,
        environ=environ,
        credentials=credentials,
        composition=composition,
        layers=tuple(layer.source for layer in layers if layer.rows),
        file=None if config is None else Path(config).expanduser().absolute(),
        again=partial(
            planned, config, profile=profile, rows=rows, sets=sets, home=home, cwd=cwd,
            plugins=plugins, environ=environ, only=only, files=files,
        ),
    )  # fmt: skip


def _given(
    layers: Sequence[Layer], rows: Sequence[Row], plugins: Sequence[Plugin]
) -> tuple[Layer, Layer]:
    """What the program gives: its rows, then its plugins that no row names."""
    own = layer_of_rows("rows given to open_harness", rows)
    named = {row.name for layer in (*layers, own) for row in layer.rows}
    rest = (Row(name=one.name) for one in plugins if one.name not in named)
    return own, layer_of_rows("plugins given to open_harness", rest)


def _project(config: str | Path | None, directory: Path, issues: list[Issue]) -> Layer:
    if config is not None:
        path = Path(config).expanduser()
        if not path.is_file():
            raise ConfigError(f"no composition file {path}; check --config")
        return _file(path, str(path), issues, trusted=True)
    return _file(directory / PROJECT_FILE, PROJECT_FILE, issues, trusted=False)


def _file(path: Path, shown: str, issues: list[Issue], *, trusted: bool) -> Layer:
    try:
        there = path.exists()
    except OSError:
        there = True
    if not there:
        return Layer(shown, (), trusted)
    # Imported here: a run without any file does not pay for the YAML library.
    from dsh.boot.yaml_file import read_file  # noqa: PLC0415

    return layer_of_node(shown, read_file(path, shown), issues, trusted=trusted)
