"""How deep stored JSON may nest: what can be appended can be read, and what cannot is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dsh import catalog as ev
from dsh.catalog import records
from dsh.hooks import frozen_json
from dsh.testing import LogWriting
from dsh.wire import WireFault, decode_line, encode_line

if TYPE_CHECKING:
    from dsh.hooks import JsonValue


def line_with(data: JsonValue) -> bytes:
    """The line of an appended message whose source has this data."""
    log = LogWriting()
    log.turn_start()
    log.step_start()
    source = records.PluginSource(plugin="p", data=data)
    text = records.TextBlock(text="x")
    message = records.UserMessage(id="m", content=(text,), source=source)
    log.session.append(ev.user.Message(message=message), surface=records.Append())
    return encode_line(log.session.events[-1])


@pytest.mark.holds("CAT20")
def test_the_deepest_value_that_can_be_appended_can_be_read() -> None:
    data = frozen_json(1)
    for _ in range(200):
        data = frozen_json({"a": data})
    line = line_with(data)
    assert encode_line(decode_line(line)) == line


@pytest.mark.holds("CAT20")
@pytest.mark.parametrize("depth", [250, 900, 100_000])
def test_a_line_that_nests_deeper_is_refused_and_exhausts_nothing(depth: int) -> None:
    line = line_with({"here": 1}).replace(b'{"here":1}', b'{"a":' * depth + b"1" + b"}" * depth)
    with pytest.raises(WireFault, match=r"nested deeper than 200|depth (limit )?exceeded"):
        decode_line(line)
