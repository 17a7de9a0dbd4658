"""Checks of what adapters say about themselves: policies, models, catalogues.

What comes in: an adapter's answer. What goes out: nothing when it is sound, else one `LlmError`
that names the route, the field, the value and what was expected. Pure.
"""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING

from dsh.catalog.records import AlwaysRetryPolicy, NormalRetryPolicy
from dsh.errors import LlmError
from dsh.llm.adapter import ModelInfo, ProviderInfo, ResolvedModel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dsh.catalog.records import RetryPolicy

__all__ = ["check_models", "check_policy", "check_provider", "check_resolved"]


def check_resolved(provider: str, model: str, found: object) -> ResolvedModel:
    """Refuse metadata that no request could be built from (INVALID_MODEL_METADATA)."""

    def refuse(field: str, value: object, wanted: str) -> LlmError:
        return LlmError(
            f"the adapter of provider {provider!r} says {field}={value!r} for model {model!r}; "
            f"expected {wanted}",
            code="INVALID_MODEL_METADATA",
        )

    if not isinstance(found, ResolvedModel):
        raise refuse("resolve_model()", found, "a ResolvedModel")
    for field, value in (
        ("context_window", found.context_window),
        ("max_tokens", found.max_tokens),
    ):
        if value is not None and not _positive(value):
            raise refuse(field, value, "a positive whole number of tokens, or None")
    efforts = found.reasoning_efforts
    if efforts is not None and not _distinct_names(efforts):
        raise refuse("reasoning_efforts", efforts, "distinct, non-empty ids")
    default = found.reasoning_effort
    if default is not None and (default == "" or (efforts is not None and default not in efforts)):
        raise refuse("reasoning_effort", default, f"one of reasoning_efforts {efforts!r}, or None")
    if "text" not in found.input_modalities or not _distinct_names(found.input_modalities):
        raise refuse("input_modalities", found.input_modalities, "distinct ids with 'text'")
    return found


def check_policy(provider: str, policy: object) -> RetryPolicy:
    """Refuse a retry policy that could not be followed (INVALID_RETRY_POLICY)."""

    def refuse(problem: str) -> LlmError:
        return LlmError(
            f"retry policy of provider {provider!r}: {problem}", code="INVALID_RETRY_POLICY"
        )

    if not isinstance(policy, NormalRetryPolicy | AlwaysRetryPolicy):
        raise refuse(f"{policy!r} is neither a NormalRetryPolicy nor an AlwaysRetryPolicy")
    first, longest = policy.initial_delay_ms, policy.max_delay_ms
    if not (isfinite(first) and isfinite(longest) and 0 < first <= longest):
        raise refuse(f"needs 0 < initialDelayMs ({first}) <= maxDelayMs ({longest})")
    if not 0 <= policy.jitter_ratio <= 1:
        raise refuse(f"jitterRatio {policy.jitter_ratio} is not between 0 and 1")
    if isinstance(policy, NormalRetryPolicy):
        if not policy.max_retries >= 0:
            raise refuse(f"maxRetries {policy.max_retries} is negative")
        if not _distinct_names(policy.retryable_codes):
            raise refuse(f"retryableCodes {policy.retryable_codes!r} must be distinct names")
    return policy


def check_provider(provider: str, info: object) -> ProviderInfo:
    """Refuse a provider without a name to show (INVALID_PROVIDER_METADATA)."""
    if not isinstance(info, ProviderInfo) or not info.name.strip():
        raise LlmError(
            f"provider_info({provider!r}) answered {info!r}; expected a ProviderInfo with a name",
            code="INVALID_PROVIDER_METADATA",
        )
    return info


def check_models(provider: str, rows: Sequence[object]) -> tuple[ModelInfo, ...]:
    """Refuse a catalogue with nameless or repeated models (INVALID_MODEL_CATALOG)."""
    seen: dict[str, ModelInfo] = {}
    for row in rows:
        if not isinstance(row, ModelInfo) or not row.id or row.id in seen:
            raise LlmError(
                f"the catalogue of provider {provider!r} has {row!r}; expected ModelInfo rows "
                "with distinct, non-empty ids",
                code="INVALID_MODEL_CATALOG",
            )
        seen[row.id] = row
        for field, value in (
            ("context_window", row.context_window),
            ("max_tokens", row.max_tokens),
        ):
            if value is not None and not _positive(value):
                raise LlmError(
                    f"the catalogue of provider {provider!r} says {field}={value!r} for "
                    f"{row.id!r}; expected a positive whole number of tokens, or None",
                    code="INVALID_MODEL_CATALOG",
                )
    return tuple(seen.values())


def _positive(value: object) -> bool:
    return type(value) is int and value > 0


def _distinct_names(names: Sequence[object]) -> bool:
    return all(isinstance(name, str) and name for name in names) and len(set(names)) == len(names)
