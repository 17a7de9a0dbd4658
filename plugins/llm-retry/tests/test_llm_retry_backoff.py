"""The waits: pure, so every edge is a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.catalog.records import AlwaysRetryPolicy, LlmFailure, NormalRetryPolicy
from dsh.llm import DEFAULT_RETRY_POLICY
from dsh_plugins.llm_retry.backoff import policy_key, wait_ms

if TYPE_CHECKING:
    from dsh.catalog.records import RetryPolicy

BUSY = LlmFailure(message="busy", code="SERVER")
MIDDLE = 0.5


def asking(wait: float) -> LlmFailure:
    return LlmFailure(message="slow down", code="RATE_LIMIT", provider_retry_after_ms=wait)


@pytest.mark.holds("E11", "YR05")
def test_the_default_waits_double_from_half_a_second_to_ten_and_stop_after_five() -> None:
    policy = NormalRetryPolicy()
    waits = [wait_ms(policy, BUSY, retry, MIDDLE) for retry in range(1, 7)]
    assert waits == [500, 1000, 2000, 4000, 8000, None]
    assert wait_ms(AlwaysRetryPolicy(), BUSY, 1000, MIDDLE) == 10_000


@pytest.mark.holds("E11", "LR01")
def test_the_default_covers_what_passes_by_itself() -> None:
    assert NormalRetryPolicy() == DEFAULT_RETRY_POLICY
    assert (
        NormalRetryPolicy(
            max_retries=5,
            retryable_codes=(
                "EMPTY_RESPONSE",
                "RATE_LIMIT",
                "SERVER",
                "STREAM_CLOSED",
                "TIMEOUT",
                "TRANSPORT",
            ),
            initial_delay_ms=500,
            max_delay_ms=10_000,
            max_retry_after_ms=60_000,
            jitter_ratio=0.1,
        )
        == DEFAULT_RETRY_POLICY
    )


@pytest.mark.holds("E11", "YR06")
@given(
    retry=st.integers(1, 5),
    draw=st.floats(0, 1, exclude_max=True),
    ratio=st.floats(0, 1),
    first=st.floats(0.001, 1000),
)
def test_jitter_stays_within_its_ratio_and_under_the_longest_wait(
    retry: int, draw: float, ratio: float, first: float
) -> None:
    policy = NormalRetryPolicy(initial_delay_ms=first, max_delay_ms=4 * first, jitter_ratio=ratio)
    wait = wait_ms(policy, BUSY, retry, draw)
    plain = min(first * 2 ** (retry - 1), 4 * first)
    assert wait is not None
    assert plain * (1 - ratio) - 1e-6 <= wait <= min(plain * (1 + ratio) + 1e-6, 4 * first)


@pytest.mark.holds("YR06")
def test_full_jitter_may_mean_no_wait() -> None:
    assert wait_ms(NormalRetryPolicy(jitter_ratio=1), BUSY, 1, 0.0) == 0


@pytest.mark.holds("E12", "YR07", "case-038")
@pytest.mark.parametrize(
    ("asked", "normal", "always"),
    [
        (1.0, 1.0, 1.0),
        (7000.0, 7000.0, 7000.0),
        (10_001.0, 10_001.0, 10_001.0),
        (60_000.0, 60_000.0, 60_000.0),
        (60_001.0, None, 500.0),
        (1_382_400_000.0, None, 500.0),
    ],
)
def test_a_wait_that_the_server_asks_for_is_followed_up_to_the_longest(
    asked: float, normal: float | None, always: float
) -> None:
    assert wait_ms(NormalRetryPolicy(), asking(asked), 1, 0.0) == normal
    policy = AlwaysRetryPolicy(jitter_ratio=0)
    assert wait_ms(policy, asking(asked), 1, 0.0) == always


@pytest.mark.holds("E12")
def test_a_policy_may_follow_no_wait_that_is_asked_for() -> None:
    policy = NormalRetryPolicy(max_retry_after_ms=0)
    assert wait_ms(policy, asking(1.0), 1, 0.0) is None
    assert wait_ms(policy, BUSY, 1, MIDDLE) == 500


@pytest.mark.holds("E13")
def test_policies_that_differ_have_different_keys_and_equal_ones_the_same() -> None:
    policies: list[RetryPolicy] = [
        NormalRetryPolicy(),
        NormalRetryPolicy(max_retries=4),
        NormalRetryPolicy(retryable_codes=("SERVER",)),
        NormalRetryPolicy(jitter_ratio=0),
        AlwaysRetryPolicy(),
        AlwaysRetryPolicy(max_delay_ms=1),
        NormalRetryPolicy(max_retry_after_ms=1),
    ]
    keys = [policy_key(policy) for policy in policies]
    assert len(set(keys)) == len(policies)
    assert keys == [policy_key(policy) for policy in policies]
    assert keys[4] == (
        '{"initialDelayMs":500,"jitterRatio":0.1,"maxDelayMs":10000,"maxRetryAfterMs":60000,'
        '"mode":"always"}'
    )


@pytest.mark.parametrize("code", ["AUTH", "QUOTA", "CONTEXT_WINDOW_EXCEEDED", "INVALID_REQUEST"])
def test_what_does_not_pass_by_itself_is_not_tried_again(code: str) -> None:
    assert wait_ms(NormalRetryPolicy(), LlmFailure(message="no", code=code), 1, 0.0) is None
