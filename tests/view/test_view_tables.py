"""What changed since when: told exactly, and kept in the size of what is there."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dsh.testing.effort import bytes_of
from dsh.view.tables import KINDS, Op, Row, Tables


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 6)), max_size=30), st.integers(0, 40))
def test_what_changed_is_what_was_touched_since(
    touches: list[tuple[bool, int]], since: int
) -> None:
    tables = Tables()
    history: list[tuple[str, int]] = []
    for rows, place in touches:
        kind = "rows" if rows else "ops"
        there = len(tables.rows if rows else tables.ops)
        if place < there:
            tables.touch("rows" if rows else "ops", place)
            history.append((kind, place))
        else:
            entity = Row("event", [place], 1, 1, 0) if rows else Op(place)
            history.append((kind, tables.add("rows" if rows else "ops", entity)))
    assert tables.revision == len(history)
    due = {kind: {place for name, place in history[since:] if name == kind} for kind in KINDS}
    found = tables.changed(since)
    for kind in KINDS:
        assert [place for place, _ in found[kind]] == sorted(due[kind])
    assert all(entity is tables.rows[place] for place, entity in found["rows"])


def test_an_entity_that_changes_ever_again_takes_no_more_room() -> None:
    """As the row of a reply does with each of its chunks."""
    tables = Tables()
    for seq in range(20):
        tables.add("rows", Row("event", [seq], 1, 1, 0))

    def stream() -> None:
        for _ in range(10_000):
            tables.touch("rows", 19)

    assert bytes_of(stream) < 4_000
    assert tables.revision == 10_020
    assert len(tables.changed(20)["rows"]) == 1
