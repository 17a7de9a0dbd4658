"""What a text costs when nobody counts: an estimate by the kind of its characters.

What comes in: texts, messages, tool schemas. What goes out: tokens, rounded up. Pure: the same
input gives the same number for one `VERSION`, whatever the process. No tokenizer is loaded; the
weights are averages over the tokenizers of current models, rounded up a little, because an estimate
that is too low lets a request be refused, and one that is too high only compacts early.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, assert_never

import orjson

from dsh.catalog.records import (
    FileBlock,
    ImageBlock,
    ReasoningBlock,
    TextBlock,
    ToolCallBlock,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dsh.catalog.records import ContentBlock, Message, ToolSchema

__all__ = ["VERSION", "blocks_tokens", "message_tokens", "text_tokens", "tools_tokens"]

#: Changes with every change of a number below.
VERSION: Final = 1

#: Around each block and each message there are names, brackets and quotes.
FRAME_TOKENS: Final = 4
#: Hundredths of a token for each character that no class below names: Latin, digits, spaces.
LATIN: Final = 25
#: Classes of other characters by Unicode block, with their hundredths of a token each.
_CLASSES: Final = (
    # Greek, Cyrillic, Armenian, Hebrew, Arabic and the scripts up to Georgian.
    (re.compile("[\u0370-\u10ff]"), 50),
    # Other alphabets, symbols, arrows, box drawing.
    (re.compile("[\u1200-\u2e7f]"), 80),
    # Chinese, Japanese, full-width forms.
    (re.compile("[\u2e80-\ua4cf\uf900-\ufaff\ufe30-\ufe4f\uff00-\uffef\U00020000-\U0003ffff]"), 80),
    # Korean syllables.
    (re.compile("[\uac00-\ud7af]"), 100),
    # Emoji and everything else beyond the basic plane.
    (re.compile("[\U00010000-\U0001ffff]"), 200),
)


def text_tokens(text: str) -> int:
    """The tokens of a text, without a frame."""
    hundredths = len(text) * LATIN
    if not text.isascii():
        for characters, weight in _CLASSES:
            hundredths += (weight - LATIN) * sum(map(len, characters.findall(text)))
    return -(-hundredths // 100)


def blocks_tokens(blocks: Sequence[ContentBlock]) -> int:
    """The tokens of content blocks with their frames."""
    return sum(map(_block_tokens, blocks))


def _block_tokens(block: ContentBlock) -> int:
    match block:
        case TextBlock(text=text) | ReasoningBlock(text=text):
            return text_tokens(text) + FRAME_TOKENS
        case ToolCallBlock(name=name, arguments=arguments):
            return text_tokens(name) + text_tokens(arguments) + FRAME_TOKENS
        case ImageBlock(attachment=image):
            # About what providers charge: a token for some 750 pixels.
            return image.width * image.height // 750 + FRAME_TOKENS
        case FileBlock(attachment=file):
            return file.bytes // 4 + FRAME_TOKENS
        case _:
            assert_never(block)


def message_tokens(message: Message) -> int:
    """The tokens of one message with its frame."""
    return blocks_tokens(message.content) + FRAME_TOKENS


def tools_tokens(tools: Sequence[ToolSchema]) -> int:
    """The tokens of the tool schemas of a request."""
    return sum(
        text_tokens(tool.name)
        + text_tokens(tool.description)
        + text_tokens(orjson.dumps(tool.parameters, default=dict).decode())
        + FRAME_TOKENS
        for tool in tools
    )
