"""The plugin `scripted`: a model that plays a script, as provider `scripted`.

What comes in: a script, inline or as a YAML file. What goes out: one registered adapter; if asked,
a file with the messages of every request, for comparing them with a session's log. It needs no key
and no network, and it is no model: what it says was written down before.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import orjson

from dsh.catalog.codec import encode_record
from dsh.errors import ConfigError
from dsh.hooks import frozen
from dsh.kernel import Context, plugin, required
from dsh.llm import LLM, LlmRuntime, Script, ScriptedModel, parse_script, read_script
from dsh_plugins.scripted.catalog import ScriptedConfig

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsh.hooks.live import LlmRequest

__all__ = ["scripted"]

PROVIDER: Final = "scripted"


@frozen
class Needs:
    """What the plugin stands on."""

    llm: LlmRuntime = required(LLM)


@plugin(name="scripted", config=ScriptedConfig, deps=Needs)
async def scripted(ctx: Context, config: ScriptedConfig, deps: Needs) -> None:
    """Register the scripted model."""
    seen = _recorder(Path(config.record)) if config.record is not None else None
    deps.llm.register(ctx, ScriptedModel(_script(config), seen=seen), (PROVIDER,))


def _script(config: ScriptedConfig) -> Script:
    if config.file is None:
        return read_script(config.script, "scripted.script")
    if config.script:
        raise ConfigError("scripted has both `script` and `file`; take one of them out")
    path = Path(config.file)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"scripted.file: cannot read {path}: {error}") from None
    return parse_script(text, path.name)


def _recorder(path: Path) -> Callable[[LlmRequest], None]:
    def write(request: LlmRequest) -> None:
        row = {
            "provider": request.provider,
            "model": request.model,
            "messages": [encode_record(message) for message in request.messages],
        }
        with path.open("ab") as file:
            file.write(orjson.dumps(row) + b"\n")

    return write
