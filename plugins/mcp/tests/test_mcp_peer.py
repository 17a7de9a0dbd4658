"""Messages that are lawful JSON and nothing else."""

from __future__ import annotations

import orjson
import pytest

from dsh_plugins.mcp.peer import Peer


def peer(heard: list[str]) -> Peer:
    return Peer("s", lambda method, _params: heard.append(method))


@pytest.mark.holds("MC1")
@pytest.mark.parametrize("depth", [1, 2, 900])
def test_a_batch_in_a_batch_is_no_message(depth: int) -> None:
    inner = b'{"jsonrpc":"2.0","method":"m"}'
    heard: list[str] = []
    taken = peer(heard).receive(orjson.loads(b"[" * depth + inner + b"]" * depth))
    assert (taken, heard) == ((True, ["m"]) if depth == 1 else (False, []))
