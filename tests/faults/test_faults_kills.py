"""kill -9 at random instants, on both kinds of store: nothing that was acknowledged is missing.

A few kills are part of the ordinary tests; `nox -s faults` asks for `--kills 720`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from dsh.testing.killing import DOING, instants, open_killer
from dsh.testing.losses import Kills

if TYPE_CHECKING:
    from pathlib import Path

    from dsh.testing.lives import Backend

#: After so many kills some must have come late enough.
ENOUGH = 10
BACKENDS: tuple[Backend, ...] = ("jsonl", "sqlite")


@pytest.mark.holds("case-028", "case-048", "case-054")
@pytest.mark.parametrize("backend", BACKENDS)
async def test_killed_houses_lost_nothing_that_was_acknowledged(
    backend: Backend, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    wanted = request.config.getoption("--kills", default=None)
    only = request.config.getoption("--doing", default=None)
    many = 0 if wanted is None else -(-int(str(wanted)) // (len(DOING) * len(BACKENDS)))
    losses: list[str] = []
    async with open_killer(tmp_path, backend) as killer:
        for doing in DOING if only is None else (str(only),):
            kills, chat = Kills(), doing.startswith("chat")
            each = many or (1 if chat else 2)
            for part in instants(doing, seed=each):
                await killer.kill(doing, part, kills)
                if kills.killed == each:
                    break
            sys.stdout.write(f"{kills.line(f'{backend}, {doing}')}\n")
            losses += kills.losses
            if each >= ENOUGH and doing in ("tools", "compacting", "chat tools"):
                assert kills.bodies, "no tool body ran: the kills prove nothing"
            if each >= ENOUGH and chat:
                assert kills.shown, "nothing was shown: the kills prove nothing"
    assert losses == []
