"""The plugin `scripted`: where the script comes from, and what is recorded."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from dsh.catalog.codec import decode_message
from dsh.catalog.records import TextDeltaChunk
from dsh.errors import ConfigError, UsageError
from dsh.hooks import frozen_object
from dsh.testing.model_seam import Seam, ask, open_seam, user
from dsh_plugins.scripted import scripted
from dsh_plugins.scripted.catalog import ScriptedConfig

if TYPE_CHECKING:
    from pathlib import Path


async def words(seam: Seam) -> str:
    chunks = await seam.run(ask(user("hi"), provider="scripted"))
    return "".join(chunk.text for chunk in chunks if isinstance(chunk, TextDeltaChunk))


async def test_it_plays_a_file(tmp_path: Path) -> None:
    script = tmp_path / "play.yml"
    script.write_text("- text: from a file\n", encoding="utf-8")
    async with open_seam() as seam:
        await seam.kernel.mount(scripted, ScriptedConfig(file=str(script))).ready()
        assert seam.llm.routes() == ("scripted",)
        assert seam.llm.provider_info("scripted").where == "scripted, plays play.yml"
        assert await words(seam) == "from a file"


async def test_it_plays_an_inline_script_and_records_what_it_is_asked(tmp_path: Path) -> None:
    record = tmp_path / "seen.jsonl"
    config = ScriptedConfig(
        script=(frozen_object({"text": "one"}), frozen_object({"text": "two"})), record=str(record)
    )
    async with open_seam() as seam:
        await seam.kernel.mount(scripted, config).ready()
        seam.llm.verify("scripted")
        assert [await words(seam), await words(seam)] == ["one", "two"]
    rows = [json.loads(line) for line in record.read_text(encoding="utf-8").splitlines()]
    assert [row["provider"] for row in rows] == ["scripted", "scripted"]
    assert [decode_message(message) for message in rows[0]["messages"]] == [user("hi")]


async def test_without_a_script_it_says_so_before_a_session_exists() -> None:
    async with open_seam() as seam:
        await seam.kernel.mount(scripted).ready()
        with pytest.raises(UsageError, match=r"--set scripted\.file=FILE"):
            seam.llm.verify("scripted")


@pytest.mark.parametrize("case", ["missing", "both", "bad"])
async def test_a_script_that_cannot_be_played_fails_the_row(case: str, tmp_path: Path) -> None:
    bad = tmp_path / "bad.yml"
    bad.write_text("- txt: x\n", encoding="utf-8")
    config = {
        "missing": ScriptedConfig(file=str(tmp_path / "nowhere.yml")),
        "both": ScriptedConfig(file=str(bad), script=(frozen_object({"text": "x"}),)),
        "bad": ScriptedConfig(file=str(bad)),
    }[case]
    expected = {"missing": "cannot read", "both": "take one of them out", "bad": "did you mean"}
    async with open_seam() as seam:
        with pytest.raises(ConfigError, match=expected[case]):
            await seam.kernel.mount(scripted, config).ready()
