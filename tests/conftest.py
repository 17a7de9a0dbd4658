"""What no test may depend on: how the tests were started, and how busy the machine is.

Whoever starts them in the background may have interrupts ignored, and a child inherits that: then
no story about Ctrl-C could end. A drawn example that takes long on a busy machine has not failed.
"""

from __future__ import annotations

import signal

from hypothesis import settings

settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
for number in (signal.SIGHUP, signal.SIGTERM):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL)
