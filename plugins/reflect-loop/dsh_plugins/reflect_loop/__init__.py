"""The plugin `reflect-loop`: a loop that plans, acts and looks back, in place of `agent-loop`.

What comes in: open turns with their input. What goes out: the same steps as of any loop, with
messages of its own between them. Opening, closing, cancelling and waking are the machinery's; this
is only what happens inside a turn. It keeps nothing between turns.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from dsh import Context, plugin, required, user_message
from dsh.agent import LOOPS, Loops, OpenTurn, StepDone
from dsh.catalog.config import AgentLoopConfig
from dsh.catalog.records import PluginSource, UserMessage
from dsh.hooks import frozen

__all__ = ["MISSING", "ROUNDS", "plan_act_reflect", "reflect_loop"]

#: How often the model looks back and may act again.
ROUNDS: Final = 3

#: How a reflection begins that found something missing.
MISSING: Final = "MISSING"

Part: TypeAlias = Literal["plan", "act", "reflect"]

SAYS: Final[dict[Part, str]] = {
    "plan": (
        "Before you act: write a short plan. Say what is asked for, which steps lead there, and "
        "how you will see that it is done. You may use tools to look around first."
    ),
    "act": "Carry out the plan now. Use the tools you need, then report what you did.",
    "reflect": (
        "Look back: compare what was asked for with what is done now. If something is missing or "
        f"wrong, begin your answer with {MISSING} and say what. Otherwise give the final answer."
    ),
}


@frozen
class ReflectDeps:
    """What makes a loop of a program."""

    loops: Loops = required(LOOPS)


@plugin(name="reflect-loop", config=AgentLoopConfig, deps=ReflectDeps)
async def reflect_loop(ctx: Context, config: AgentLoopConfig, deps: ReflectDeps) -> None:
    """Serve agents until unloaded; then end them all, each closing its turn and its log."""
    await deps.loops.serve(ctx, config, plan_act_reflect)


async def plan_act_reflect(turn: OpenTurn) -> None:
    """Plan what waits, act on it, look back; act again while something is missing."""
    # A turn whose prompt was withdrawn has nothing to plan; the step finds that out.
    planned = await _until_answered(turn, *(_said("plan") if turn.waiting else ()))
    if planned is None or planned.cut:
        return
    for _ in range(ROUNDS):
        acted = await _until_answered(turn, *_said("act"))
        if acted is None or acted.cut:
            return
        found = await _until_answered(turn, *_said("reflect"))
        if found is None or found.cut or not found.text.lstrip().startswith(MISSING):
            return


async def _until_answered(turn: OpenTurn, *messages: UserMessage) -> StepDone | None:
    """One part of the turn: say what is due, then step until the model has seen every result."""
    done = await turn.step(*messages)
    while done is not None and done.owes:
        done = await turn.step()
    return done


def _said(part: Part) -> tuple[UserMessage]:
    source = PluginSource(plugin="reflect-loop", data={"part": part})
    return (user_message(SAYS[part], source=source),)
