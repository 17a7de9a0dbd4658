"""The lints: what the grammar allows and review does not.

What comes in: resolved catalogs. What goes out: faults, each under the id of its rule in `RULES`.
A rule looks at everything and decides about one thing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from . import lint_fields, lint_names, lint_past, lint_rules

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .faults import Faults
    from .model import Catalog

__all__ = ["RULES", "lint", "lint_one"]

#: Every lint by its id; the first line of its documentation says what it holds.
RULES: Final[Mapping[str, Callable[[Catalog, tuple[Catalog, ...], Faults], None]]] = {
    "name-not-injective": lint_names.name_not_injective,
    "event-twice": lint_names.event_twice,
    "module-clash": lint_names.module_clash,
    "reserved-name": lint_names.reserved_name,
    "near-neighbour": lint_names.near_neighbour,
    "wire-clash": lint_names.wire_clash,
    "since-form": lint_rules.since_form,
    "emit-follows-emitter": lint_rules.emit_follows_emitter,
    "loop-phase-closed": lint_rules.loop_phase_closed,
    "surface-message": lint_rules.surface_message,
    "decision-size": lint_rules.decision_size,
    "unused-type": lint_rules.unused_type,
    "unused-opt-out": lint_rules.unused_opt_out,
    "missing-unit": lint_fields.missing_unit,
    "absence": lint_fields.absence,
    "live-in-stored": lint_fields.live_in_stored,
    "map-in-stored": lint_fields.map_in_stored,
    "logged-elsewhere": lint_fields.logged_elsewhere,
    "config-only": lint_fields.config_only,
    "default-bounds": lint_fields.default_bounds,
    "limit-number": lint_fields.limit_number,
    "reserved-reused": lint_past.reserved_reused,
    "foreign-domain": lint_past.foreign_domain,
    "upcast-twice": lint_past.upcast_twice,
}


def lint(core: Catalog, extensions: tuple[Catalog, ...], faults: Faults) -> None:
    """Apply every rule to the core's catalog and to those of plugins.

    While a file cannot be read in full, nothing is called unused: its user may be what is missing.
    """
    incomplete = bool(faults.found)
    for catalog in (core, *extensions):
        others = tuple(other for other in (core, *extensions) if other is not catalog)
        lint_one(catalog, others, faults, incomplete=incomplete)


def lint_one(
    catalog: Catalog, others: tuple[Catalog, ...], faults: Faults, *, incomplete: bool
) -> None:
    """Apply every rule to one catalog, with those beside it in view."""
    for name, rule in RULES.items():
        if not (incomplete and name.startswith("unused-")):
            rule(catalog, others, faults)
