"""The plugin kernel: contexts, fibers, effects, services and dispatch.

What comes in: plugins. What goes out: a tree of fibers in which everything that a plugin
registers is undone when it goes. This room knows no event by name but the feed of the session
log, and nothing of agents, models or tools.
"""

from __future__ import annotations

from dsh.kernel.answers import Answered
from dsh.kernel.audit import FiberProblem
from dsh.kernel.blame import package_of
from dsh.kernel.clock import Clock, SystemClock
from dsh.kernel.context import Context
from dsh.kernel.core import CoreContext, core_of
from dsh.kernel.exclusive import Exclusive
from dsh.kernel.faults import advised, in_a_line
from dsh.kernel.fibers import Fiber
from dsh.kernel.kernel import Kernel, mount, open_kernel
from dsh.kernel.listeners import ListenerRow
from dsh.kernel.plugins import Plugin, plugin
from dsh.kernel.services import AnyKey, Late, ServiceKey, late, optional, required
from dsh.kernel.states import FiberState

__all__ = [
    "Answered",
    "AnyKey",
    "Clock",
    "Context",
    "CoreContext",
    "Exclusive",
    "Fiber",
    "FiberProblem",
    "FiberState",
    "Kernel",
    "Late",
    "ListenerRow",
    "Plugin",
    "ServiceKey",
    "SystemClock",
    "advised",
    "core_of",
    "in_a_line",
    "late",
    "mount",
    "open_kernel",
    "optional",
    "package_of",
    "plugin",
    "required",
]
