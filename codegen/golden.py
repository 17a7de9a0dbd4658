"""Lays out files that are written once: golden records, and shapes of earlier versions.

What comes in: an event of the catalog, or an old shape. What goes out: the text of a file. Once
written, a file is never made again: a test decodes every record of every version for ever.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from .lock import laid_out

if TYPE_CHECKING:
    from .model import Event
    from .past import OldShape
    from .samples import Samples

__all__ = ["golden_text", "history_text"]


def golden_text(event: Event, samples: Samples) -> str:
    """Payloads of the event's current version, one a line."""
    lines = [json.dumps(sample, ensure_ascii=False) for sample in samples.of(event)]
    return "".join(f"{line}\n" for line in lines)


def history_text(shape: OldShape) -> str:
    """The shape of a version that is no longer written."""
    return laid_out(shape, "") + "\n"
