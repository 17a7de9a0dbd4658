"""The table of permission rules: one verdict for one call's arguments.

What comes in: rules, and a call with its tool. What goes out: allow, ask or deny, and why. Of all
rules that match the strictest decides; a call that no rule matches is asked about. What a person
allowed for a session is not asked about again, but stays denied where a rule denies it. The table
is pure: it holds no state of calls and asks nobody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson

from dsh.hooks import frozen
from dsh.tools import Subject
from dsh_plugins.permissions.catalog import PermissionDecision, PermissionRule
from dsh_plugins.permissions.patterns import allows, exactly, matches, names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dsh.hooks import JsonValue
    from dsh.tools import Tool

__all__ = ["BUILT_IN", "Call", "Table", "Verdict"]

#: What only looks, and only inside the workspace: without an absolute pattern no path outside.
BUILT_IN: Final = tuple(
    PermissionRule(decision="allow", tool=tool) for tool in ("read_file", "glob", "grep")
)
STRICTNESS: Final = {"deny": 0, "ask": 1, "allow": 2}


@frozen(kw_only=True, slots=True)
class Verdict:
    """What becomes of a call. `reason` says why, for the model and for whoever is asked."""

    decision: PermissionDecision
    reason: str
    remedy: str


def _said(rule: PermissionRule) -> str:
    pattern = f":{rule.pattern}" if rule.pattern is not None else ""
    return f"{rule.decision} {rule.tool}{pattern}"


class Table:
    """Rules in force, for every session alike."""

    def __init__(self, rules: Sequence[PermissionRule]) -> None:
        ordered = sorted((*rules, *BUILT_IN), key=lambda rule: STRICTNESS[rule.decision])
        self._denying: Final = tuple(one for one in ordered if one.decision == "deny")
        self._others: Final = tuple(one for one in ordered if one.decision != "deny")

    def rules(self, remembered: Sequence[PermissionRule] = ()) -> tuple[PermissionRule, ...]:
        """All rules, the strongest first."""
        return (*self._denying, *remembered, *self._others)

    def judge(
        self,
        call: Call,
        remembered: Sequence[PermissionRule] = (),
    ) -> Verdict:
        """The verdict on these very arguments. A subject that cannot be made out is denied."""
        remedy = f"allow it with --allow {call.name}"
        try:
            subject = call.subject()
        except Exception as error:  # noqa: BLE001 - fail closed, whatever a subject raises
            reason = f"the permission rules cannot judge this call: {error!s:.200}"
            return Verdict(decision="deny", reason=reason, remedy=remedy)
        if subject.outside:
            remedy = f"allow it with --allow '{call.name}:{subject.absolute}'"
        for rule in self.rules(remembered):
            if not names(rule.tool, call.name):
                continue
            met = allows if rule.decision == "allow" else matches
            if met(rule.pattern, subject, exact=rule.exact):
                reason = f"the permission rule {_said(rule)!r}"
                return Verdict(decision=rule.decision, reason=reason, remedy=remedy)
        where = f" outside the workspace ({subject.absolute})" if subject.outside else ""
        return Verdict(decision="ask", reason=f"no rule for {call.name}{where}", remedy=remedy)


@frozen(kw_only=True, slots=True)
class Call:
    """One call to be judged. `tool` is None if it is not visible any more."""

    name: str
    tool: Tool | None
    arguments: JsonValue
    cwd: str

    def subject(self) -> Subject:
        """What the rules' patterns are matched against. Raises what the tool's own raises."""
        if self.tool is not None and self.tool.subject is not None:
            return self.tool.subject(self.arguments, self.cwd)
        text = orjson.dumps(self.arguments, option=orjson.OPT_SORT_KEYS).decode()
        return Subject(kind="json", text=text)

    def exact_rule(self) -> PermissionRule:
        """The rule that allows this call and nothing else. Raises like `subject`."""
        pattern = exactly(self.subject())
        return PermissionRule(decision="allow", tool=self.name, pattern=pattern, exact=True)
