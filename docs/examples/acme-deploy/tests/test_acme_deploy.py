"""The plugin in a whole small house, and what it stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen
from dsh import Context, Logged, define_tool, plugin, user_message
from dsh.testing import call, calls, open_test_house, says
from dsh.wire import decode_line, encode_line

from acme_deploy import acme_deploy
from acme_deploy.catalog import CATALOG, AcmeDeployConfig, DeployTarget
from acme_deploy.catalog import acme_deploy as deploy

if TYPE_CHECKING:
    from dsh.hooks import live

PRODUCTION = DeployTarget(name="production", command="make release")
CONFIG = AcmeDeployConfig(tool="run", targets=(PRODUCTION,))


@frozen
class RunArgs:
    """A command line."""

    command: str


async def run(args: RunArgs, _run: live.ToolRun) -> str:
    """Commands that end in `!` fail."""
    if args.command.endswith("!"):
        raise RuntimeError("make: *** [release] Error 1")
    return "released"


RUN = define_tool(name="run", description="Runs", args=RunArgs, output=str, execute=run)


async def test_deployments_are_logged_and_announced() -> None:
    logged: list[deploy.Finished] = []
    announced: list[str] = []

    @plugin(name="bell")
    async def bell(ctx: Context) -> None:
        @ctx.on(deploy.FINISHED)
        def hear(event: Logged[deploy.Finished]) -> None:
            logged.append(event.data)

        @ctx.on(deploy.ANNOUNCED)
        def ring(notice: deploy.Announced) -> None:
            announced.append(f"{notice.target.name}: {notice.outcome}")

    commands = ("make test", "make release", "make release!")
    wanted = [call("run", f'{{"command": "{command}"}}') for command in commands]
    async with open_test_house(replies=[calls(*wanted), says("ready")], tools=[RUN]) as house:
        await house.kernel.mount(acme_deploy, CONFIG).ready()
        await house.kernel.mount(bell).ready()
        handle = await house.agent()
        assert (await handle.agent.ask(user_message("release it"))).text == "ready"
        events = house.session(handle).events
        lines = [encode_line(event) for event in events if event.type == deploy.FINISHED.name]
    assert announced == ["production: done", "production: failed"]
    assert [(event.outcome, event.total) for event in logged] == [("done", 1), ("failed", 2)]
    # What is in the log names us, and comes back as what it was.
    assert all(f'"owner":"{CATALOG.owner}","ignorable":true'.encode() in line for line in lines)
    assert [decode_line(line).data for line in lines] == logged
