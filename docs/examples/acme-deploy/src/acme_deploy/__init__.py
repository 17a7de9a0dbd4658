"""The plugin `acme-deploy`: records in the session log what an agent deployed.

What comes in: the outcome of every tool call. What goes out: for a command that deploys to one of
the configured targets, `acme.deploy/finished` in the log and `acme.deploy/announced` to whoever
listens. It runs no command and refuses none.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from dsh import Context, plugin
from dsh import catalog as ev
from dsh.hooks import live

from acme_deploy.catalog import AcmeDeployConfig
from acme_deploy.catalog import acme_deploy as deploy

if TYPE_CHECKING:
    from acme_deploy.catalog import DeployOutcome, DeployTarget

__all__ = ["acme_deploy"]


def target_of(config: AcmeDeployConfig, call: live.ToolExecution) -> DeployTarget | None:
    """The target that a call deploys to; None for any other call."""
    match call.arguments:
        case {"command": str(command)} if call.name == config.tool:
            fitting = (each for each in config.targets if command.startswith(each.command))
            return next(fitting, None)
        case _:
            return None


@plugin(name="acme-deploy", config=AcmeDeployConfig)
async def acme_deploy(ctx: Context, config: AcmeDeployConfig) -> None:
    """Log and announce each deployment."""
    totals: defaultdict[str, int] = defaultdict(int)

    @ctx.on(ev.tools.RESULT)
    def watch(notice: ev.tools.Result) -> None:
        agent, target = notice.exec.agent, target_of(config, notice.exec)
        if agent is None or target is None:
            return
        outcome: DeployOutcome = "done" if isinstance(notice.result, live.ToolSuccess) else "failed"
        totals[agent.id] += 1
        agent.session.append(
            deploy.Finished(
                call_id=notice.exec.call_id,
                target=target,
                outcome=outcome,
                total=totals[agent.id],
            )
        )
        ctx.emit(deploy.Announced(agent=agent, target=target, outcome=outcome))

    @ctx.on(ev.agent.DISPOSED)
    def forget(notice: ev.agent.Disposed) -> None:
        totals.pop(notice.agent.id, None)
