"""The plugin `model-router`: which model serves which step, and who steps in when it fails.

What comes in: each request's configuration, and attempts that failed. What goes out: another
provider, model and effort for a request; and the wish for another attempt, once for each fallback
and turn. It changes nothing else of a request, and logs nothing itself: the loop logs every route.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import define, evolve

from dsh import Context, Next, plugin
from dsh import catalog as ev
from dsh_plugins.model_router.catalog import ModelRouterConfig

if TYPE_CHECKING:
    from dsh.catalog.records import LlmCallConfig
    from dsh_plugins.model_router.catalog import FallbackRoute, StepRoute

__all__ = ["model_router"]


@define
class Course:
    """What was chosen for one agent.

    `base` is the configuration without this plugin's doing; the loop starts each request from the
    one before, so it has to be remembered. `fallen` counts the fallbacks in use, in `turn`.
    """

    base: LlmCallConfig | None = None
    chosen: tuple[str, str] | None = None
    turn: int = 0
    fallen: int = 0

    def enter(self, turn: int) -> None:
        """A new turn begins with the first choice."""
        if self.turn != turn:
            self.turn, self.fallen = turn, 0

    def routed(
        self, config: ModelRouterConfig, step: int, proposed: LlmCallConfig
    ) -> LlmCallConfig:
        """The configuration of the request of `step`."""
        if self.base is None or (proposed.provider, proposed.model) != self.chosen:
            self.base = proposed
        target = _target(config, self.fallen, step)
        if target is None:
            self.chosen = None
            return self.base
        self.chosen = (target.provider, target.model)
        return evolve(
            self.base,
            provider=target.provider,
            model=target.model,
            reasoning_effort=target.reasoning_effort,
        )


def _target(config: ModelRouterConfig, fallen: int, step: int) -> StepRoute | FallbackRoute | None:
    if fallen:
        return config.fallbacks[fallen - 1]
    return next(
        (
            rule
            for rule in config.steps
            if rule.first <= step and (rule.last is None or step <= rule.last)
        ),
        None,
    )


@plugin(name="model-router", config=ModelRouterConfig)
async def model_router(ctx: Context, config: ModelRouterConfig) -> None:
    """Route each request; let a fallback take over."""
    courses: dict[str, Course] = {}

    @ctx.on(ev.agent.REQUEST)
    async def route(ask: ev.agent.Request, call_next: Next[LlmCallConfig]) -> LlmCallConfig:
        proposed = await call_next()
        course = courses.setdefault(ask.agent.id, Course())
        course.enter(ask.turn)
        return course.routed(config, ask.step, proposed)

    @ctx.on(ev.agent.REQUEST_ERROR)
    async def step_in(
        failed: ev.agent.RequestError, call_next: Next[ev.agent.Retry | None]
    ) -> ev.agent.Retry | None:
        decision = await call_next()
        if decision is not None or failed.failure.code not in config.codes:
            return decision
        course = courses.setdefault(failed.agent.id, Course())
        course.enter(failed.turn)
        if course.fallen >= len(config.fallbacks) or failed.signal.cancelled:
            return None
        fallback = config.fallbacks[course.fallen]
        course.fallen += 1
        ctx.log.warning(
            "provider %r failed with %s; %s/%s takes over for this turn",
            failed.provider,
            failed.failure.code,
            fallback.provider,
            fallback.model,
        )
        return ev.agent.Retry()

    @ctx.on(ev.agent.DISPOSED)
    def forget(notice: ev.agent.Disposed) -> None:
        courses.pop(notice.agent.id, None)
