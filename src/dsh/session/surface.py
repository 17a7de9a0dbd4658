"""The surface: the ordered, model-visible nodes of one log, kept incrementally.

What comes in: surface operations of committed events, in seq order. What goes out: the seqs of the
nodes in order, and a generation that counts replacements. Only appends and replacements change it;
a replacement hides nodes here and never removes an event from the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsh.catalog.records import Append, Replace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dsh.catalog.records import SurfaceOp

__all__ = ["Surface", "SurfaceFault"]


class SurfaceFault(ValueError):
    """An operation that this surface cannot carry out. Nothing was changed."""


class Surface:
    """The nodes of one session. `nodes` is live: read it, never keep or change it."""

    __slots__ = ("_nodes", "_positions", "generation")

    def __init__(self) -> None:
        self._nodes: list[int] = []
        self._positions: dict[int, int] = {}
        self.generation = 0

    @property
    def nodes(self) -> Sequence[int]:
        """The seqs of the nodes, in the order the model sees them."""
        return self._nodes

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, seq: object) -> bool:
        return seq in self._positions

    def shadowed(self, op: Replace) -> list[int]:
        """The seqs that `op` would hide, in surface order.

        Start and end name nodes, both included; the order is that of the surface, so the start may
        be the greater number. Raises SurfaceFault when one is not a node, or they are reversed.
        """
        for name, seq in (("startSeq", op.start_seq), ("endSeq", op.end_seq)):
            if seq not in self._positions:
                raise SurfaceFault(f"{name} {seq} is not a node of the surface")
        start, end = self._positions[op.start_seq], self._positions[op.end_seq]
        if start > end:
            raise SurfaceFault(
                f"startSeq {op.start_seq} stands after endSeq {op.end_seq} on the surface"
            )
        return self._nodes[start : end + 1]

    def apply(self, seq: int, op: SurfaceOp) -> None:
        """Carry out the operation of the event `seq`. Raises SurfaceFault, changing nothing."""
        match op:
            case Append():
                self._positions[seq] = len(self._nodes)
                self._nodes.append(seq)
            case Replace():
                hidden = self.shadowed(op)
                start = self._positions[op.start_seq]
                self._nodes[start : start + len(hidden)] = [seq]
                self._positions = {node: place for place, node in enumerate(self._nodes)}
                self.generation += 1
