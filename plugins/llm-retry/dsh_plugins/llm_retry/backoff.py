"""How long to wait before a retry, and whether there is one: the policy as a pure function.

What comes in: a policy, a failure, how many retries there were, and a random number. What goes
out: a wait in milliseconds, or None when the policy does not cover the failure. Nothing here waits
or keeps anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson

from dsh.catalog.records import NormalRetryPolicy

if TYPE_CHECKING:
    from dsh.catalog.records import LlmFailure, RetryPolicy
    from dsh.hooks import JsonObject

__all__ = ["allowance", "policy_key", "wait_ms"]

#: Doubling beyond this changes nothing: every policy's longest wait is reached before.
DOUBLINGS_MAX: Final = 40


def policy_key(policy: RetryPolicy) -> str:
    """The policy as canonical JSON: what tells the budgets of one provider's policies apart."""
    facts: JsonObject = {
        "mode": policy.mode,
        "initialDelayMs": policy.initial_delay_ms,
        "maxDelayMs": policy.max_delay_ms,
        "maxRetryAfterMs": policy.max_retry_after_ms,
        "jitterRatio": policy.jitter_ratio,
    }
    if isinstance(policy, NormalRetryPolicy):
        facts = {
            **facts,
            "maxRetries": policy.max_retries,
            "retryableCodes": list(policy.retryable_codes),
        }
    return orjson.dumps(facts, option=orjson.OPT_SORT_KEYS).decode()


def allowance(policy: RetryPolicy) -> int | None:
    """How many retries the policy allows; None: any number."""
    return policy.max_retries if isinstance(policy, NormalRetryPolicy) else None


def wait_ms(policy: RetryPolicy, failure: LlmFailure, retry: int, draw: float) -> float | None:
    """The wait before retry number `retry` (from 1), or None: the failure stands.

    `draw` is uniform in [0, 1). The wait that the server asked for is followed, without jitter, up
    to the longest that the policy follows; beyond it a normal policy gives up, because the server
    would only refuse again, and `always` chooses its own.
    """
    asked = failure.provider_retry_after_ms
    if isinstance(policy, NormalRetryPolicy):
        if failure.code not in policy.retryable_codes or retry > policy.max_retries:
            return None
        if asked is not None and asked > policy.max_retry_after_ms:
            return None
    if asked is not None and 0 < asked <= policy.max_retry_after_ms:
        return asked
    doubled = policy.initial_delay_ms * 2.0 ** min(retry - 1, DOUBLINGS_MAX)
    spread = 1 + policy.jitter_ratio * (2 * draw - 1)
    return min(min(doubled, policy.max_delay_ms) * spread, policy.max_delay_ms)
