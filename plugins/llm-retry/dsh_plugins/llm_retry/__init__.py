"""The plugin `llm-retry`: failed model calls are tried again, as their provider's policy says.

What comes in: failed attempts, with the policy of the registration that served them. What goes
out: a wait and another attempt, or the failure, handed to whoever else may recover. Each wait is
in the log before it begins. It never changes a request, and keeps nothing of a failed reply.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final, final
from uuid import uuid4

import trio

from dsh import Context, Next, plugin
from dsh import catalog as ev
from dsh.catalog.records import AlwaysRetryPolicy
from dsh.hooks import frozen
from dsh.kernel import required
from dsh.session import SESSIONS, Sessions
from dsh_plugins.llm_retry.backoff import allowance, policy_key, wait_ms
from dsh_plugins.llm_retry.ledger import LEDGER, Chain, Ledger

if TYPE_CHECKING:
    from dsh.catalog.records import RetryPolicy

__all__ = ["llm_retry"]


@frozen
class Needs:
    """What the plugin stands on."""

    sessions: Sessions = required(SESSIONS)


@plugin(name="llm-retry", deps=Needs)
async def llm_retry(ctx: Context, _config: None, deps: Needs) -> None:
    """Wait and try again, or ask the others."""
    deps.sessions.project(ctx, LEDGER)
    waits = Waits()
    ctx.on_unload(waits.close)

    @ctx.on(ev.agent.REQUEST_ERROR)
    async def recover(
        failed: ev.agent.RequestError, call_next: Next[ev.agent.Retry | None]
    ) -> ev.agent.Retry | None:
        policy = failed.retry_policy
        if policy is None or waits.closed:
            return await call_next()
        if isinstance(policy, AlwaysRetryPolicy):
            others = await _ask_others(ctx, failed, call_next)
            if others is not None:
                return others
        retry = _due(ctx, deps.sessions, failed, policy)
        if retry is None:
            return None if isinstance(policy, AlwaysRetryPolicy) else await call_next()
        return await _wait(failed, retry, waits)


@final
class Waits:
    """The waits that are running, and whether new ones may begin."""

    __slots__ = ("_scopes", "closed")

    def __init__(self) -> None:
        self._scopes: Final[set[trio.CancelScope]] = set()
        self.closed = False

    def close(self) -> None:
        """End every wait now; none begins any more."""
        self.closed = True
        for scope in self._scopes:
            scope.cancel()

    async def sleep(self, seconds: float) -> bool:
        """Wait. False: the plugin was unloaded first."""
        with trio.CancelScope() as scope:
            self._scopes.add(scope)
            try:
                await trio.sleep(seconds)
            finally:
                self._scopes.discard(scope)
        return not scope.cancelled_caught and not self.closed


async def _ask_others(
    ctx: Context, failed: ev.agent.RequestError, call_next: Next[ev.agent.Retry | None]
) -> ev.agent.Retry | None:
    """Recovery by the rest of the chain; whatever it raises only costs a warning."""
    decision: ev.agent.Retry | None = None
    try:
        decision = await call_next()
    except Exception:
        failed.signal.raise_if_set()
        ctx.log.warning(
            "recovering from %s of provider %r failed; it is tried again as its policy says",
            failed.failure.code,
            failed.provider,
            exc_info=True,
        )
    failed.signal.raise_if_set()
    return decision


def _due(
    ctx: Context, sessions: Sessions, failed: ev.agent.RequestError, policy: RetryPolicy
) -> ev.llm.Retry | None:
    """The retry that the policy grants now, not yet logged."""
    session = sessions.get(failed.agent.session.id)
    if session is None or failed.signal.cancelled:
        return None
    key = policy_key(policy)
    ledger: Ledger = session.projection(LEDGER)
    chain = ledger.chain(failed.turn, failed.step, failed.provider, key)
    if chain is None:
        chain = Chain(f"retry_{uuid4().hex}", 0)
    # No secret depends on it: it only keeps clients from coming back all at once.
    delay = wait_ms(policy, failed.failure, chain.count + 1, random.random())
    if delay is None:
        return None
    return ev.llm.Retry(
        retry_id=chain.retry_id,
        turn=failed.turn,
        step=failed.step,
        provider=failed.provider,
        plugin=ctx.plugin,
        mode=policy.mode,
        policy_key=key,
        retry=chain.count + 1,
        max_retries=allowance(policy),
        delay_ms=delay,
        failure=failed.failure,
    )


async def _wait(
    failed: ev.agent.RequestError, retry: ev.llm.Retry, waits: Waits
) -> ev.agent.Retry | None:
    """Log, wait, log. Cancelling the turn leaves the first record alone; unloading too."""
    session, signal = failed.agent.session, failed.signal
    session.append(retry)
    # Whoever reads the record may cancel the turn, or unload this plugin.
    signal.raise_if_set()
    if waits.closed or not await waits.sleep(retry.delay_ms / 1000):
        return None
    signal.raise_if_set()
    session.append(
        ev.llm.RetryStarted(
            retry_id=retry.retry_id, turn=retry.turn, step=retry.step, retry=retry.retry
        )
    )
    signal.raise_if_set()
    return ev.agent.Retry()
