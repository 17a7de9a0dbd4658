"""Long conversations under the real plugins."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from dsh.testing.long_talks import open_long_talks
from dsh_plugins.compaction import compaction
from dsh_plugins.token_meter import token_meter

if TYPE_CHECKING:
    from dsh.testing.long_talks import OpenTalks


@pytest.fixture
def open_talks() -> OpenTalks:
    """`async with open_talks(model, config, store=…) as talks`."""
    return partial(open_long_talks, token_meter, compaction)
