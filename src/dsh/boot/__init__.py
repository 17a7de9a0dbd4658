"""Boot: composition rows to mounted plugins, and the one place that reads the environment.

What comes in: profiles, composition files, settings, `--set` arguments, the process's environment.
What goes out: a running house (`open_harness`), or one refusal that names every mistake with its
place. It knows plugins by name only, and never prints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dsh.boot.demo import DEMO_PROMPT, demo_workspace, furnish
    from dsh.boot.environ import ProcessEnviron, process_environ
    from dsh.boot.harness import Harness, mounted, open_harness
    from dsh.boot.learning import learned, read_known
    from dsh.boot.live import Live
    from dsh.boot.names import canonical
    from dsh.boot.nearest import did_you_mean
    from dsh.boot.news import News
    from dsh.boot.origins import Written, written_values
    from dsh.boot.overview import RowView, chain_of, listeners_of, rows_of
    from dsh.boot.places import Places, places_of, workspace
    from dsh.boot.plan import Plan, planned
    from dsh.boot.profiles import PROFILES, Profile
    from dsh.boot.rows import Row
    from dsh.boot.watch import watching
else:
    from importlib import import_module

    # Each name is imported when it is first asked for: `dsh --version` and the `sessions` commands
    # do not pay for what only a run needs.
    _HOMES = {
        "DEMO_PROMPT": "demo",
        "PROFILES": "profiles",
        "Harness": "harness",
        "Live": "live",
        "News": "news",
        "Places": "places",
        "Plan": "plan",
        "ProcessEnviron": "environ",
        "RowView": "overview",
        "chain_of": "overview",
        "rows_of": "overview",
        "listeners_of": "overview",
        "Profile": "profiles",
        "Row": "rows",
        "canonical": "names",
        "demo_workspace": "demo",
        "did_you_mean": "nearest",
        "furnish": "demo",
        "learned": "learning",
        "mounted": "harness",
        "open_harness": "harness",
        "places_of": "places",
        "planned": "plan",
        "process_environ": "environ",
        "read_known": "learning",
        "watching": "watch",
        "workspace": "places",
        "written_values": "origins",
        "Written": "origins",
    }

    def __getattr__(name: str) -> object:
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"dsh.boot has no {name!r}; it has: {', '.join(__all__)}")
        value: object = getattr(import_module(f"dsh.boot.{home}"), name)
        globals()[name] = value
        return value


__all__ = [
    "DEMO_PROMPT",
    "PROFILES",
    "Harness",
    "Live",
    "News",
    "Places",
    "Plan",
    "ProcessEnviron",
    "Profile",
    "Row",
    "RowView",
    "Written",
    "canonical",
    "chain_of",
    "demo_workspace",
    "did_you_mean",
    "furnish",
    "learned",
    "listeners_of",
    "mounted",
    "open_harness",
    "places_of",
    "planned",
    "process_environ",
    "read_known",
    "rows_of",
    "watching",
    "workspace",
    "written_values",
]
