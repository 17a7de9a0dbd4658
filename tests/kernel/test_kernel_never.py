"""A listener that can never run is named, with the reason."""

from __future__ import annotations

import pytest
from attrs import frozen

from dsh.hooks import Emit, Notice, Scope
from dsh.kernel import Context, open_kernel, plugin


@frozen
class Told(Notice):
    scope: Scope | None = None


EVERYWHERE: Emit[Told] = Emit(
    "test/never-everywhere", Told, errors="contain", scope_of=None, owner="core"
)


@frozen
class Said(Notice):
    scope: Scope | None = None


OF_AN_AGENT: Emit[Said] = Emit(
    "test/never-agent", Said, errors="contain", scope_of=lambda said: said.scope, owner="weather"
)


@pytest.mark.holds("KN36")
async def test_a_scoped_listener_of_an_event_without_a_scope_is_named() -> None:
    scope = Scope("agent one")

    @plugin(name="hopeful")
    async def hopeful(ctx: Context) -> None:
        ctx.on(EVERYWHERE)(lambda _told: None)
        ctx.scoped(scope).on(EVERYWHERE)(lambda _told: None)
        ctx.scoped(scope).on(OF_AN_AGENT)(lambda _said: None)

    async with open_kernel() as kernel:
        await kernel.root.child("agent", scope=scope)
        await kernel.mount(hopeful).ready()
        kernel.root.emit(Told())
        kernel.root.emit(Said(scope))
        rows = [(row.event, row.scope, row.runs, row.never) for row in kernel.listeners()]
        assert [row[:3] for row in rows] == [
            ("test/never-agent", "agent one", 1),
            ("test/never-everywhere", None, 1),
            ("test/never-everywhere", "agent one", 0),
        ]
        assert [row[3] is None for row in rows] == [True, True, False]
        why = rows[2][3]
        assert why is not None
        assert "test/never-everywhere belongs to no agent" in why
        assert "register it with the plugin's own context" in why
        assert kernel.listeners()[0].owner == "weather"
