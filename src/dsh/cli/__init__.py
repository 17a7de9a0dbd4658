"""The command line: arguments in, text and an exit code out. The only room that prints.

What comes in: the process's arguments, environment and descriptors. What goes out: data on standard
output, everything else on standard error. It decides nothing about agents; each command is a small
program on top of `open_harness`. Modules are imported by the command that needs them.
"""

from __future__ import annotations

from dsh.cli.entry import main

__all__ = ["main"]
