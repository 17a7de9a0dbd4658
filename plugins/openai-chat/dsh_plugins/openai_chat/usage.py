"""Token counts as servers report them, made disjoint and believable.

What comes in: the `usage` object of a reply, in the spellings of several servers. What goes out: a
`Usage`, or None when the counts cannot be believed. Pure; nothing is estimated here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsh.catalog.records import Usage

if TYPE_CHECKING:
    from dsh.hooks import JsonValue

__all__ = ["usage_of"]


def usage_of(value: JsonValue) -> Usage | None:
    """Read a usage object. `prompt_tokens` includes what came from the cache; ours do not.

    None when either count is missing or no count, or when both are 0: no request costs nothing,
    and a meter that believed it would think the context empty. A cache larger than the prompt is
    cut to it.
    """
    if not isinstance(value, dict):
        return None
    prompt, output = _count(value.get("prompt_tokens")), _count(value.get("completion_tokens"))
    if prompt is None or output is None or prompt + output == 0:
        return None
    cached = _count(value.get("prompt_cache_hit_tokens"))
    if cached is None:
        cached = _detail(value, "prompt_tokens_details", "cached_tokens")
    if cached is not None:
        cached = min(cached, prompt)
    reasoning = _detail(value, "completion_tokens_details", "reasoning_tokens")
    return Usage(
        input_tokens=prompt - (cached or 0),
        output_tokens=output,
        cache_read_tokens=cached,
        reasoning_tokens=min(reasoning, output) if reasoning is not None else None,
        reported_total_tokens=_count(value.get("total_tokens")) or None,
    )


def _detail(value: dict[str, JsonValue], group: str, key: str) -> int | None:
    details = value.get(group)
    return _count(details.get(key)) if isinstance(details, dict) else None


def _count(value: JsonValue) -> int | None:
    # 2**53 - 1 is the largest number the log can hold.
    return value if type(value) is int and 0 <= value < 2**53 else None
