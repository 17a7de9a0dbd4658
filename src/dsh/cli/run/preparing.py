"""What `dsh run` and `dsh chat` do before anything is mounted: workspace, rules, logging.

What comes in: typed options. What goes out: a plan, or one refusal; and dsh's loggers shown to the
person. Nothing runs yet.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeVar

from attrs import evolve

from dsh.boot import PROFILES, Plan, Row, demo_workspace, furnish, planned
from dsh.cli.failures import ContainedFailures
from dsh.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dsh.cli.grammar.arguments import RunOptions
    from dsh.cli.grammar.chat import ChatOptions
    from dsh.cli.screen.outputs import Screen

__all__ = ["planned_for", "show_contained", "with_demo"]


Options = TypeVar("Options", "RunOptions", "ChatOptions")


def with_demo(options: Options, screen: Screen) -> Options:
    """Give the demo its workspace, and say first of all that its model is scripted."""
    profile = PROFILES.get(options.profile)
    if profile is None or not profile.scripted:
        return options
    screen.say("demo: the model is scripted, whatever you ask; the tools and the log are real\n")
    workspace = options.cwd if options.cwd is not None else demo_workspace()
    furnish(workspace)
    screen.say(f"workspace {workspace}\n")
    return evolve(options, cwd=workspace)


def planned_for(options: RunOptions | ChatOptions) -> Plan:
    """Read and check everything the options name. Raises UsageError."""
    return planned(
        options.config,
        profile=options.profile,
        rows=_permission_rows(options.allow, yolo=options.yolo),
        sets=options.sets,
        cwd=options.cwd,
    )


def show_contained(say: Callable[[str], None], *, debug: bool) -> None:
    """Show what dsh's loggers report, through `say`."""
    logger = logging.getLogger("dsh")
    logger.handlers[:] = [ContainedFailures(say, debug=debug)]
    logger.setLevel(logging.DEBUG if debug else logging.WARNING)
    logger.propagate = False


def _permission_rows(allow: Sequence[str], *, yolo: bool) -> tuple[Row, ...]:
    """`--allow` and `--yolo` as rules of the permissions row, beside all others."""
    rules: list[dict[str, object]] = []
    for allowed in allow:
        tool, colon, pattern = allowed.partition(":")
        if not tool or (colon and not pattern):
            raise UsageError(
                f"--allow {allowed!r} names no {'pattern' if tool else 'tool'}; "
                "write --allow bash or --allow 'bash:make *'"
            )
        rule: dict[str, object] = {"decision": "allow", "tool": tool}
        rules.append({**rule, "pattern": pattern} if colon else rule)
    if yolo:
        rules.append({"decision": "allow", "tool": "*"})
    flag = "--yolo" if yolo else "--allow"
    return (Row(name="permissions", config={"rules": rules}, source=flag),) if rules else ()
