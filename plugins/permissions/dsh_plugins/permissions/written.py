"""Where the rules in force were written: a layer, a line of a file, the session, or here.

What comes in: the rules of the configuration, and who knows its places. What goes out: words for
the log, one for each rule, and the layers of all of them. It changes no rule.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from dsh.hooks import frozen
from dsh_plugins.permissions.table import BUILT_IN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dsh.kernel import Late
    from dsh.seams.origins import Origins
    from dsh_plugins.permissions.catalog import PermissionRule

__all__ = ["Written"]

PLUGIN: Final = "permissions"
SESSION: Final = "session"
#: Of a plugin that was mounted without a composition.
UNKNOWN: Final = "configuration"
_LINE: Final = re.compile(r":\d+:\d+$")


@frozen(slots=True, eq=False)
class Written:
    """The configured rules, and the composition's places as they are when asked."""

    _rules: Sequence[PermissionRule]
    _origins: Late[Origins]

    def _places(self) -> Mapping[PermissionRule, str]:
        origins = self._origins.current
        found = dict.fromkeys(BUILT_IN, "built-in")
        for at, rule in enumerate(self._rules):
            place = None if origins is None else origins.of(PLUGIN, "rules", at)
            found[rule] = UNKNOWN if place is None else place
        return found

    def sources(
        self, rules: Sequence[PermissionRule], remembered: Sequence[PermissionRule]
    ) -> tuple[str, ...]:
        """The origin of each of `rules`, in their order."""
        places = self._places()
        kept = frozenset(remembered)
        return tuple(SESSION if rule in kept else places.get(rule, UNKNOWN) for rule in rules)

    def layers(self, sources: Sequence[str]) -> str:
        """Each layer in which rules were written, once; the session last."""
        layers = dict.fromkeys(_LINE.sub("", source) for source in sources)
        return ", ".join(sorted(layers, key=lambda layer: layer == SESSION))
