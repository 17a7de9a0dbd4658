"""The files of a new plugin, as text with NAME, PACKAGE, OBJECT and CLASS to be put in.

What comes in: a plugin's name. What goes out: paths and their text. It writes nothing. What is made
here is run as soon as it is made, and once more by the suite.
"""

from __future__ import annotations

from typing import Final

from attrs import frozen

__all__ = ["Names", "files_of"]

PYPROJECT: Final = """\
[build-system]
requires = ["hatchling>=1.26"]
build-backend = "hatchling.build"

[project]
name = "dsh-NAME"
version = "0.1.0"
description = "A plugin for dsh"
requires-python = ">=3.11"
dependencies = ["dsh-trio>=0.1", "attrs>=24.3"]

[project.optional-dependencies]
test = ["pytest>=8.2", "pytest-trio>=0.8", "mypy>=1.14"]

# The plugin's name, as compositions write it.
[project.entry-points."dsh.plugins"]
NAME = "PACKAGE.plugin:OBJECT"

[tool.hatch.build.targets.wheel]
packages = ["src/PACKAGE"]

[tool.pytest.ini_options]
trio_mode = true
testpaths = ["tests"]
pythonpath = ["src"]

# With these, hooking an event that does not exist, or hooking it wrongly, is an error.
[tool.mypy]
strict = true
python_version = "3.11"
files = ["src", "tests"]
mypy_path = ["src"]
enable_error_code = [
    "exhaustive-match",
    "explicit-override",
    "ignore-without-code",
    "possibly-undefined",
    "redundant-expr",
    "truthy-bool",
    "unused-awaitable",
]
"""

INIT: Final = '''\
"""The plugin NAME: see plugin.py."""
'''

PLUGIN: Final = '''\
"""NAME: ends a turn that takes too many steps, and gives the model a tool that counts words."""

from __future__ import annotations

from attrs import field, frozen, validators

from dsh import Context, Next, catalog as ev, define_tool, plugin, required
from dsh.hooks import live
from dsh.tools import TOOLS, ToolRuntime


@frozen(kw_only=True)
class CLASSConfig:
    """The row\'s configuration. `wire` is how a composition spells it."""

    max_steps: int = field(
        default=20,
        validator=validators.ge(1),
        metadata={"wire": "maxSteps", "doc": "How many steps one turn may take."},
    )


@frozen
class CLASSDeps:
    """What must be there before this plugin starts."""

    tools: ToolRuntime = required(TOOLS)


@frozen
class CountWords:
    """The arguments of the tool; the model sees their JSON Schema."""

    text: str


async def count_words(args: CountWords, _run: live.ToolRun) -> int:
    """The body of the tool. It is cancelled with the turn."""
    return len(args.text.split())


@plugin(name="NAME", config=CLASSConfig, deps=CLASSDeps)
async def OBJECT(ctx: Context, config: CLASSConfig, deps: CLASSDeps) -> None:
    """Everything registered here is undone when the plugin is unloaded."""

    @ctx.on(ev.agent.PRE_STEP)
    async def guard(
        step: ev.agent.PreStep, call_next: Next[ev.agent.PreStepDecision]
    ) -> ev.agent.PreStepDecision:
        if step.step > config.max_steps:
            return ev.agent.Reject(reason=f"the limit of {config.max_steps} is reached")
        return await call_next()

    deps.tools.register(
        ctx,
        define_tool(
            name="count_words",
            description="Count the words of a text.",
            args=CountWords,
            output=int,
            execute=count_words,
        ),
    )
'''

TEST: Final = '''\
"""The plugin in the real loop, with a model that plays a script: no key, no network."""

from __future__ import annotations

from dsh import user_message
from dsh.catalog import records
from dsh.testing import call, calls, open_test_house, says
from PACKAGE.plugin import CLASSConfig, OBJECT

COUNT = calls(call("count_words", \'{"text": "one two three"}\'))


async def test_the_tool_answers_and_the_turn_completes() -> None:
    async with open_test_house(replies=[COUNT, says("Three.")]) as house:
        await house.kernel.mount(OBJECT, CLASSConfig()).ready()
        handle = await house.agent()
        outcome = await handle.agent.ask(user_message("count"))
        assert outcome.text == "Three."
        results = [
            message
            for message in handle.agent.session.derive_messages()
            if isinstance(message, records.ToolResultMessage)
        ]
        assert [message.content for message in results] == [(records.TextBlock(text="3"),)]


async def test_a_step_too_many_is_rejected_and_the_log_says_by_whom() -> None:
    async with open_test_house(replies=[COUNT, says("never asked for")]) as house:
        await house.kernel.mount(OBJECT, CLASSConfig(max_steps=1)).ready()
        handle = await house.agent()
        outcome = await handle.agent.ask(user_message("count"))
        assert outcome.reason == records.BlockedTurnEnd(
            reason="the limit of 1 is reached", plugin="NAME"
        )
'''

ROW: Final = """\
# dsh chat --profile demo --config dsh.yml
- name: NAME
  config:
    maxSteps: 2
"""

README: Final = """\
# NAME

Ends a turn that takes more than `maxSteps` steps, and gives the model the tool `count_words`.

    pip install -e ".[test]"
    mypy && pytest
    dsh chat --profile demo --config dsh.yml
"""


@frozen(slots=True)
class Names:
    """How one plugin is called in its different places."""

    name: str

    @property
    def package(self) -> str:
        """The import package."""
        return "dsh_" + self.name.replace("-", "_")

    @property
    def object(self) -> str:
        """The plugin object."""
        return self.name.replace("-", "_")

    @property
    def cls(self) -> str:
        """The beginning of its class names."""
        return "".join(word.capitalize() for word in self.name.split("-"))


def files_of(names: Names) -> dict[str, str]:
    """Every file of the plugin by its path, in the order in which it is told."""
    package = f"src/{names.package}"
    templates = {
        "pyproject.toml": PYPROJECT,
        f"{package}/plugin.py": PLUGIN,
        f"{package}/__init__.py": INIT,
        f"{package}/py.typed": "",
        "tests/test_plugin.py": TEST,
        "dsh.yml": ROW,
        "README.md": README,
    }
    return {path: _filled(text, names) for path, text in templates.items()}


def _filled(text: str, names: Names) -> str:
    for word, value in (
        ("NAME", names.name),
        ("PACKAGE", names.package),
        ("OBJECT", names.object),
        ("CLASS", names.cls),
    ):
        text = text.replace(word, value)
    return text
