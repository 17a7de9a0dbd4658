"""The built-in profiles: compositions kept as Python data, so that none is parsed at the start.

What comes in: the places of this process and the demo's workspace. What goes out: the rows of a
profile, and which provider and model it uses unless the command line says otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dsh.boot.demo import DEMO_ALLOWED, DEMO_SCRIPT
from dsh.boot.nearest import did_you_mean
from dsh.boot.rows import Row
from dsh.errors import UsageError
from dsh.hooks import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dsh.boot.places import Places

__all__ = ["PROFILES", "Profile", "profile_named"]


@frozen(kw_only=True, slots=True)
class Profile:
    """A named composition. `rows` come in mount order; room rows only configure their room."""

    name: str
    provider: str
    model: str
    rows: tuple[Row, ...]
    scripted: bool = False

    def placed(self, places: Places) -> tuple[Row, ...]:
        """The rows with what only this process knows: where sessions are kept."""
        store = Row(name="session-jsonl", config={"root": str(places.sessions)})
        return (store, *self.rows)


#: Providers that need nothing but their key, and what recovers from their failures, in this order.
MODEL: Final = (
    Row(name="openai-chat"),
    Row(name="scripted"),
    Row(name="llm-retry"),
    Row(name="token-meter"),
    Row(name="compaction"),
)
#: A capability is a row that provides it and a row that uses it: exchange the one, keep the other.
WORK: Final = (
    Row(name="approval"),
    Row(name="tool-timeout"),
    Row(name="fs-local"),
    Row(name="fs"),
    Row(name="shell-local"),
    Row(name="shell"),
)

PROFILES: Final[Mapping[str, Profile]] = {
    "headless": Profile(
        name="headless",
        provider="deepseek",
        model="deepseek-chat",
        rows=(
            Row(name="checkpoint"),
            Row(name="permissions", config={"ask": "deny"}),
            *MODEL,
            *WORK,
        ),
    ),
    "chat": Profile(
        name="chat",
        provider="deepseek",
        model="deepseek-chat",
        rows=(
            Row(name="checkpoint"),
            Row(name="chat"),
            Row(name="permissions", config={"ask": "ask"}),
            *MODEL,
            *WORK,
        ),
    ),
    "demo": Profile(
        name="demo",
        provider="scripted",
        model="scripted",
        scripted=True,
        rows=(
            Row(name="checkpoint"),
            Row(name="permissions", config={"ask": "deny", "rules": DEMO_ALLOWED}),
            Row(name="scripted", config={"script": DEMO_SCRIPT}),
            *WORK,
        ),
    ),
}


def profile_named(name: str) -> Profile:
    """The profile. Raises UsageError with the nearest name."""
    found = PROFILES.get(name)
    if found is None:
        hint = did_you_mean(name, PROFILES)
        raise UsageError(f"no profile named {name!r}{hint} Profiles: {', '.join(PROFILES)}")
    return found
