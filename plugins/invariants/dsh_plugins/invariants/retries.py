"""The retries of one step: numbers without gaps, one identity a chain, each started once.

What comes in: `llm/retry` and `llm/retry-started` of the open step. What goes out: the chains after
it, or what is wrong with it, in words. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import evolve, field

from dsh.hooks import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dsh import catalog as ev

__all__ = ["Chain", "Retries"]


@frozen
class Chain:
    """The retries of one provider under one policy."""

    retry_id: str
    scheduled: int
    started: int


@frozen
class Retries:
    """All chains of one step, by provider and policy key."""

    chains: Mapping[tuple[str, str], Chain] = field(factory=dict[tuple[str, str], Chain])

    def scheduled(self, retry: ev.llm.Retry) -> Retries | str:
        """After a retry was announced; or the fault."""
        key = (retry.provider, retry.policy_key)
        chain = self.chains.get(key)
        due = 1 if chain is None else chain.scheduled + 1
        if retry.retry != due:
            return f"retry {retry.retry} of {retry.provider} where {due} is due"
        if retry.max_retries is not None and retry.retry > retry.max_retries:
            return (
                f"retry {retry.retry} of {retry.provider}, whose policy allows {retry.max_retries}"
            )
        if chain is not None and chain.retry_id != retry.retry_id:
            return f"retry {retry.retry} is {retry.retry_id}, its chain is {chain.retry_id}"
        if chain is None and any(one.retry_id == retry.retry_id for one in self.chains.values()):
            return f"{retry.retry_id} is the identity of another provider's or policy's chain"
        begun = 0 if chain is None else chain.started
        return self._with(key, Chain(retry.retry_id, due, begun))

    def started(self, started: ev.llm.RetryStarted) -> Retries | str:
        """After a retry's wait was over; or the fault."""
        for key, chain in self.chains.items():
            if chain.retry_id != started.retry_id:
                continue
            if started.retry != chain.scheduled:
                return f"retry {started.retry} starts, {chain.scheduled} was announced"
            if started.retry <= chain.started:
                return f"retry {started.retry} starts for the second time"
            return self._with(key, evolve(chain, started=started.retry))
        return f"{started.retry_id} starts, and no retry of this step has that identity"

    def _with(self, key: tuple[str, str], chain: Chain) -> Retries:
        return Retries({**self.chains, key: chain})
