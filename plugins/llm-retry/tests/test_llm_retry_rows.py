"""The row of the plugin: there is nothing to configure; how often and how long is a route's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dsh.boot import Row, open_harness
from dsh.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from dsh.hooks import JsonObject


@pytest.mark.holds("YR27", "YR28")
@pytest.mark.parametrize(
    "config", [{"retryPolicy": {"maxRetries": 9}}, {"maxRetriess": 1}], ids=str
)
async def test_a_policy_in_the_row_is_refused(config: JsonObject, tmp_path: Path) -> None:
    row = Row(name="llm-retry", config=config)
    with pytest.raises(ConfigError, match="llm-retry takes no configuration"):
        async with open_harness(rows=[row], home=tmp_path, cwd=tmp_path):
            raise AssertionError("it was opened")
