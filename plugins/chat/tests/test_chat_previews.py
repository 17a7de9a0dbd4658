"""The numbers of the configuration, as a conversation reads them, and as an edit leaves them."""

from __future__ import annotations

import pytest

from dsh.kernel import open_kernel
from dsh.seams.previews import PREVIEWS, PreviewLines
from dsh_plugins.chat import chat
from dsh_plugins.chat.catalog import ChatConfig


def test_the_defaults_are_those_of_a_conversation_without_the_row() -> None:
    config, bare = ChatConfig(), PreviewLines()
    assert (config.tool_lines, config.failed_lines, config.change_lines) == (
        bare.tool,
        bare.failed,
        bare.change,
    )


@pytest.mark.holds("CL36")
async def test_an_edit_is_followed_without_a_restart() -> None:
    async with open_kernel() as kernel:
        fiber = kernel.mount(chat, ChatConfig(tool_lines=2))
        await fiber.ready()
        life, previews = fiber.activation, kernel.root.require(PREVIEWS)
        assert previews.lines() == PreviewLines(tool=2)
        await fiber.update(ChatConfig(failed_lines=9, change_lines=0))
        await kernel.settled()
        assert previews.lines() == PreviewLines(failed=9, change=0)
        assert fiber.activation is life
