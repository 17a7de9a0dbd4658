"""`python -m dsh.cli`: the command `dsh` without its script."""

from __future__ import annotations

import sys

from dsh.cli import main

__all__: list[str] = []

if __name__ == "__main__":
    sys.exit(main())
