"""The search process: regular expressions on files, where a runaway pattern can be killed.

What comes in: one JSON line (pattern, flags, bounds, root) and the files, on standard input. What
goes out: one JSON line per line found, and a last one with the totals. It is run as a script of its
own, with the standard library alone: Python's matcher holds the interpreter while it works, so a
pattern that never ends must not do so in the harness.
"""

# Its output is its answer; paths are bytes here.
# ruff: noqa: T201, PTH118
from __future__ import annotations

import json
import os
import re
import sys
from collections import deque

TEXT_MAX = 400
LINE_MAX = 100_000
SNIFFED = 8_192


def lines_of(path: bytes) -> list[str] | None:
    """The lines of a text file; None for what is no text, or cannot be read."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            head = file.read(SNIFFED)
            wide = head[:2] in (b"\xff\xfe", b"\xfe\xff")
            if b"\x00" in head and not wide:
                return None
            data = head + file.read()
    except OSError:
        return None
    text = data.decode("utf-16" if wide else "utf-8-sig", "replace" if wide else "surrogateescape")
    lines = text.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def main() -> None:
    """Read the order, search, write what was found."""
    stdin = sys.stdin.buffer
    order = json.loads(stdin.readline())
    root = os.fsencode(order["root"])
    try:
        pattern = re.compile(order["pattern"], re.IGNORECASE if order["ignore_case"] else 0)
    except (re.error, OverflowError, RecursionError) as error:
        print(json.dumps({"refused": str(error)}))
        return
    context, limit = order["context"], order["limit"]
    matches = files = skipped = 0
    for index, name in enumerate(stdin.read().split(b"\x00")):
        lines = lines_of(os.path.join(root, name))
        if lines is None:
            skipped += 1
            continue
        before: deque[tuple[int, str]] = deque(maxlen=context)
        after = 0
        hit = False
        for number, line in enumerate(lines, 1):
            if pattern.search(line[:LINE_MAX]) is not None:
                hit = True
                matches += 1
                after = 0
                if matches <= limit:
                    for old, text in before:
                        print(json.dumps([index, old, text[:TEXT_MAX], False]))
                    print(json.dumps([index, number, line[:TEXT_MAX], True]))
                    after = context
                before.clear()
            elif after:
                after -= 1
                print(json.dumps([index, number, line[:TEXT_MAX], False]))
            else:
                before.append((number, line))
        files += hit
    print(json.dumps({"matches": matches, "files": files, "skipped": skipped}))


if __name__ == "__main__":
    main()
