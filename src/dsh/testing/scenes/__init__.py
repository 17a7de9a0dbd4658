"""Scripts to be interrupted: between them they enter every extension point of a turn.

What comes in: nothing. What goes out: scenes for `dsh.testing.cancelling`. They judge nothing.
"""

from __future__ import annotations

from typing import Final

from dsh.testing.scenes.calls import CALLS
from dsh.testing.scenes.turns import TURNS

__all__ = ["CALLS", "SCENES", "TURNS"]

SCENES: Final = (*TURNS, *CALLS)
