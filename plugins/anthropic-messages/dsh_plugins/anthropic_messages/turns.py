"""The turns of one conversation as this wire has them, kept as bytes while it grows.

What comes in: its messages, one after the other, and how one becomes blocks. What goes out: the
turns as JSON, with marks for the server's cache or without; the texts of its prompts; whether it
goes on with calls that were made without thinking. Messages of one role in a row are one turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias, final

from dsh.catalog.records import AssistantMessage, SystemMessage, TextBlock, ToolResultMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dsh.catalog.records import Message

__all__ = ["MARK", "Turns"]

Role: TypeAlias = Literal["user", "assistant"]

MARK: Final = b',"cache_control":{"type":"ephemeral"}}'
#: How many of the user's newest turns are marked; with tools and system prompt that makes four.
MARKED: Final = 2
#: The wire wants the user to speak first.
OPENING: Final = b'{"type":"text","text":"(the conversation begins)"}'
_THINKING: Final = (b'{"type":"thinking"', b'{"type":"redacted_thinking"')


@final
class _Turn:
    """One turn: who speaks, and its blocks, joined."""

    __slots__ = ("blocks", "role")

    def __init__(self, role: Role, blocks: bytes) -> None:
        self.role: Final[Role] = role
        self.blocks: Final = bytearray(blocks)

    def json(self, *, marked: bool) -> bytes:
        blocks = self.blocks[:-1] + MARK if marked else self.blocks
        return b"".join((b'{"role":"%b","content":[' % self.role.encode(), blocks, b"]}"))


@final
class Turns:
    """A fold of messages. `blocks_of` encodes one; an empty answer has nothing to say here."""

    __slots__ = ("_answered", "_blocks_of", "_done", "_newest", "_replied", "_unsigned", "prompts")

    def __init__(self, blocks_of: Callable[[Message], Sequence[bytes]]) -> None:
        self._blocks_of: Final = blocks_of
        #: Turns that stay as they are, each with a comma behind it.
        self._done: Final = bytearray()
        #: The turns that may still be marked or grow; the first is the user's.
        self._newest: Final[list[_Turn]] = []
        self._replied = self._answered = self._unsigned = False
        #: The texts of the system prompts.
        self.prompts: Final[list[str]] = []

    @property
    def unsigned_batch(self) -> bool:
        """Whether they end with answered calls whose first reply has no thinking to give back.

        A message of the user that comes with results does not begin a turn on this wire.
        """
        return self._replied and self._answered and self._unsigned

    def add(self, message: Message) -> None:
        """Take the next message."""
        blocks = self._blocks_of(message)
        if isinstance(message, SystemMessage):
            texts = (block.text for block in message.content if isinstance(block, TextBlock))
            self.prompts.extend(filter(None, texts))
            return
        if isinstance(message, AssistantMessage):
            if not (self._replied and self._answered):
                self._unsigned = not blocks or not blocks[0].startswith(_THINKING)
            self._replied, self._answered = True, False
        elif isinstance(message, ToolResultMessage):
            self._answered = True
        if blocks:
            role: Role = "assistant" if isinstance(message, AssistantMessage) else "user"
            self._say(role, b",".join(blocks))

    def _say(self, role: Role, blocks: bytes) -> None:
        newest = self._newest
        if not newest and role == "assistant":
            newest.append(_Turn("user", OPENING))
        if newest and newest[-1].role == role:
            newest[-1].blocks.extend(b",%b" % blocks)
            return
        newest.append(_Turn(role, blocks))
        while sum(turn.role == "user" for turn in newest[1:]) == MARKED:
            self._done.extend(b"%b," % newest.pop(0).json(marked=False))

    def parts(self, *, marked: bool) -> list[bytes | bytearray]:
        """The turns as JSON with commas between, in parts; with the newest of the user marked.

        They are the caller's until the next message is added.
        """
        newest = self._newest or [_Turn("user", OPENING)]
        shown = (turn.json(marked=marked and turn.role == "user") for turn in newest)
        return [self._done, b",".join(shown)]
