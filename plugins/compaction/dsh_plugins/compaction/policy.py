"""The limits of one compaction: what the configuration means for one model.

What comes in: the configuration, a route, the size of its context. What goes out: numbers of
tokens. Pure. A configuration whose values exclude each other is refused here, with what to change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dsh.errors import ConfigError
from dsh.hooks import frozen

if TYPE_CHECKING:
    from dsh_plugins.compaction.catalog import CompactionConfig

__all__ = ["SUMMARY_PART", "Limits", "check_config", "limits_for"]

RETAIN_RATIO: Final = 0.16
#: A summary takes at most this part of a known context.
SUMMARY_PART: Final = 8
#: How much of the context an output cap may claim before it is ignored as nonsense.
OUTPUT_PART: Final = 0.7


@frozen(kw_only=True, slots=True)
class Limits:
    """For one route, in tokens. `window` is None when the context's size is unknown."""

    window: int | None
    threshold: int | None
    retain: int
    summary: int


def check_config(config: CompactionConfig) -> None:
    """Raise ConfigError for values that exclude each other."""
    if (config.summarization_provider is None) != (config.summarization_model is None):
        raise ConfigError(
            "compaction: summarizationProvider and summarizationModel go together; "
            "give both or neither"
        )
    room = config.prune_threshold - config.prune_head - config.prune_tail
    if room < MARKER_ROOM:
        raise ConfigError(
            f"compaction: pruneHead and pruneTail leave no room for the mark between them: "
            f"{config.prune_head} + {config.prune_tail} must be at least {MARKER_ROOM} less than "
            f"pruneThreshold ({config.prune_threshold})"
        )
    _check("", config.threshold_ratio, config.retain_ratio, config.retain_tokens)
    for one in config.model_policies:
        own = one.retain_ratio is not None or one.retain_tokens is not None
        _check(
            f" for {one.provider}/{one.model}",
            config.threshold_ratio if one.threshold_ratio is None else one.threshold_ratio,
            one.retain_ratio if own else config.retain_ratio,
            one.retain_tokens if own else config.retain_tokens,
        )


#: Characters that the mark in a cut result needs.
MARKER_ROOM: Final = 120


def _check(where: str, threshold: float, ratio: float | None, tokens: int | None) -> None:
    if ratio is not None and tokens is not None:
        raise ConfigError(f"compaction{where}: retainRatio and retainTokens exclude each other")
    if tokens is None and (RETAIN_RATIO if ratio is None else ratio) >= threshold:
        raise ConfigError(
            f"compaction{where}: retainRatio must be smaller than thresholdRatio ({threshold:g}), "
            "or nothing would ever be shortened"
        )


def limits_for(
    config: CompactionConfig, provider: str, model: str, window: int | None, output: int | None
) -> Limits:
    """The limits on this route. `output` is the cap of its replies: the context holds both."""
    threshold_ratio, summary = config.threshold_ratio, config.max_tokens
    retain_ratio, retain_tokens = config.retain_ratio, config.retain_tokens
    for one in config.model_policies:
        if (one.provider, one.model) == (provider, model):
            threshold_ratio = one.threshold_ratio or threshold_ratio
            summary = one.max_tokens or summary
            if one.retain_ratio is not None or one.retain_tokens is not None:
                retain_ratio, retain_tokens = one.retain_ratio, one.retain_tokens
    if window is None:
        return Limits(window=None, threshold=None, retain=retain_tokens or 0, summary=summary)
    threshold = int(window * threshold_ratio)
    if output is not None and output <= window * OUTPUT_PART:
        threshold = min(threshold, window - output)
    retain = retain_tokens
    if retain is None:
        retain = int(window * (RETAIN_RATIO if retain_ratio is None else retain_ratio))
    return Limits(
        window=window,
        threshold=threshold,
        # An absolute number may be more than a small model holds.
        retain=min(retain, threshold // 2),
        summary=min(summary, max(window // SUMMARY_PART, 1)),
    )
