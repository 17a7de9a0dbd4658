"""Drivers: one task for each fiber, the only place where anything loads or unloads.

What comes in: a fiber that was poked. What goes out: the same fiber at rest, where the epoch it
was loaded for is the one of now. A storm of changes ends in one load, for a driver looks only at
where the fiber is and where it ought to be, one step at a time.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from dsh.errors import BadAnswer, BadListener, InvariantError
from dsh.kernel.ending import end_work
from dsh.kernel.faults import in_a_line
from dsh.kernel.places import contained, uncontained
from dsh.kernel.services import Provision
from dsh.kernel.stack import Held, pop, push
from dsh.kernel.states import FiberState

if TYPE_CHECKING:
    from dsh.kernel.fibers import Epoch, Fiber

__all__ = ["start"]

#: What `on_config` may say.
ANSWERS: Final = ("applied", "restart")


def start(fiber: Fiber) -> None:
    """Begin to live: watch the services it needs, start its driver."""
    shared = fiber.shared
    shared.fibers[fiber] = None
    for need in fiber.spec.needs:
        if need.mode != "late":
            shared.services.watch(need.key, fiber)
    if fiber.spec.apply is None:
        fiber.epoch = fiber.target() or ()
        fiber.move(FiberState.LOADING)
        _become_active(fiber)
        fiber.busy = False
    else:
        fiber.woken.set()
    shared.nursery.start_soon(_drive, fiber, name=f"fiber {fiber.path}")


async def _drive(fiber: Fiber) -> None:
    frame = Held(fiber)
    push(frame)
    try:
        # Shielded: when Ctrl-C strikes another task, what was loaded is unloaded all the same.
        with trio.CancelScope(shield=True):
            while fiber.state is not FiberState.DISPOSED:
                await fiber.woken.wait()
                fiber.woken = trio.Event()
                while await _reconcile(fiber):
                    pass
                if not fiber.woken.is_set():
                    _rest(fiber)
    finally:
        pop(frame)
        _rest(fiber)


def _rest(fiber: Fiber) -> None:
    fiber.busy = False
    fiber.resting.unpark_all()


async def _reconcile(fiber: Fiber) -> bool:
    """Do one thing that is due. False: nothing is."""
    match fiber.state:
        case FiberState.ACTIVE:
            if fiber.outdated():
                await _unload(fiber)
                return True
            return fiber.offer is not None and await _offer_config(fiber)
        case FiberState.PENDING | FiberState.FAILED:
            if fiber.disposing:
                _end(fiber)
                return False
            target = fiber.target()
            if target is None:
                if fiber.state is FiberState.FAILED:
                    fiber.error = None
                    fiber.move(FiberState.PENDING)
                return False
            if fiber.state is FiberState.FAILED and target == fiber.epoch:
                return False
            await _load(fiber, target)
            return True
        case FiberState.LOADING | FiberState.UNLOADING:
            raise InvariantError(f"driver of {fiber.path!r} found {fiber.state.value}")
        case FiberState.DISPOSED:
            return False


async def _load(fiber: Fiber, target: Epoch) -> None:
    fiber.move(FiberState.LOADING)
    fiber.epoch = target
    fiber.error = fiber.failure = None
    _hold(fiber, target)
    fiber.activation = fiber.activate()
    fiber.on_config = []
    with trio.CancelScope() as fiber.loading:
        try:
            await trio.lowlevel.checkpoint()  # Storms of arrivals end before user code starts.
            if not fiber.outdated() and fiber.spec.apply is not None:
                await fiber.spec.apply(fiber, fiber.activation)
                _check_registrars(fiber)
        except BaseException as error:  # noqa: BLE001 - divided below
            failure, onward = uncontained(error)
            fiber.failure = failure or fiber.failure
            if onward is not None:
                raise onward from None
    fiber.loading = None
    if fiber.outdated():
        await _unload(fiber)
    else:
        _become_active(fiber)


def _become_active(fiber: Fiber) -> None:
    if fiber.scope is not None:
        fiber.shared.scopes[fiber.scope] = fiber.activation
    fiber.move(FiberState.ACTIVE)
    for provision in fiber.activation.provisions.values():
        fiber.shared.services.show(provision)


async def _unload(fiber: Fiber) -> None:
    fiber.move(FiberState.UNLOADING)
    if fiber.parent is None:  # The kernel ends; until its work has, nobody else may unload.
        shared = fiber.shared
        await end_work(shared, [end.owner for end in shared.shutdowns])
        shared.closing = True
    await fiber.activation.close(fiber.shared.services, fiber.shared.registry)
    if fiber.scope is not None and fiber.shared.scopes.get(fiber.scope) is fiber.activation:
        del fiber.shared.scopes[fiber.scope]
    for provision in fiber.provisions:
        provision.release(fiber)
    fiber.provisions = ()
    if fiber.failure is None:
        fiber.move(FiberState.PENDING)
    else:
        fiber.error, fiber.failure = fiber.failure, None
        fiber.move(FiberState.FAILED)


def _end(fiber: Fiber) -> None:
    fiber.move(FiberState.DISPOSED)
    for need in fiber.spec.needs:
        fiber.shared.services.unwatch(need.key, fiber)
    fiber.shared.fibers.pop(fiber, None)
    if fiber.effect is not None and fiber.effect.active:
        fiber.effect.finish()


async def _offer_config(fiber: Fiber) -> bool:
    offer, fiber.offer = fiber.offer, None
    if offer is None:
        return False
    old, fiber.config = fiber.config, offer[0]
    answers: list[str] = []
    with contained(partial(_refused_config, fiber)), trio.CancelScope() as fiber.loading:
        for accept in fiber.on_config:
            answers.append(await accept(fiber.config, old))
            if answers[-1] not in ANSWERS:
                raise BadAnswer(
                    f"on_config answered {answers[-1]!r}; allowed: 'applied' or 'restart'"
                )
    fiber.loading = None
    if not answers or answers != ["applied"] * len(fiber.on_config):
        fiber.generation += 1
    return True


def _refused_config(fiber: Fiber, error: Exception) -> None:
    fiber.activation.log.warning(
        "plugin %r: on_config failed, restarting it: %s",
        fiber.path, in_a_line(error), exc_info=error,
    )  # fmt: skip


def _hold(fiber: Fiber, target: Epoch) -> None:
    fiber.provisions = tuple(item for item in target if isinstance(item, Provision))
    for provision in fiber.provisions:
        provision.holders.add(fiber)


def _check_registrars(fiber: Fiber) -> None:
    places = tuple(fiber.activation.registrars.values())
    if places:
        raise BadListener(
            f"plugin {fiber.path!r} named an event but gave no listener at "
            f"{', '.join(places)}; write `ctx.on(TOKEN)(listener)` or use it as a decorator"
        )
