"""Recordings of a terminal as text: what was on the screen at chosen moments, kept and compared.

What comes in: somebody at a terminal, the moments, and the file that keeps them. What goes out:
nothing when every moment comes to look as it is kept, else the first one that does not. With
`DSH_RECORD=1` in the environment the file is written anew instead. What differs from run to run
(spans of time, ids, temporary places) is kept as `N s`, `sXXXXXXXXXX` and the like.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, final

from dsh.boot import process_environ

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dsh.testing.sitting import Sitting

__all__ = ["Recording", "steady"]

WRITES: Final = "DSH_RECORD"
HEAD: Final = "==== "
#: What differs from run to run, and what stands for it. Widths stay where rows depend on them.
VOLATILE: Final = (
    (re.compile(r"\bs[0-9a-f]{10}\b"), "sXXXXXXXXXX"),
    (re.compile(r"/tmp/dsh-demo-\w{8}"), "/tmp/dsh-demo-XXXXXXXX"),
    (re.compile(r"127\.0\.0\.1:\d+"), "127.0.0.1:NNNN"),
    (re.compile(r" +\d+(\.\d)? s\b"), " N s"),
    (re.compile(r"ctx ~?\d+(\.\d)?(k|%)?"), "ctx N"),
    (re.compile(r"\d+(\.\d)?k? tokens"), "N tokens"),
    (re.compile(r"(tokens|wide)? {2,}(Ctrl-C stops|/help)"), r"\1  \2"),
    (re.compile(r"just now|\d+ min ago"), "just now"),
    (re.compile(r"\b\d+(\.\d)? (B|kB)\b"), "N kB"),
)


def steady(screen: str) -> str:
    """The screen without what differs from run to run."""
    for pattern, stands in VOLATILE:
        screen = pattern.sub(stands, screen)
    return "\n".join(line.rstrip() for line in screen.split("\n")).strip("\n")


@final
class Recording:
    """One file of moments. Use each caption once, in order; `ends` at the end."""

    def __init__(self, path: Path, person: Sitting) -> None:
        self._path: Final = path
        self._person: Final = person
        self._writes: Final = bool(process_environ().get(WRITES))
        self._kept: Final = {} if self._writes else _read(path)
        self._seen: Final[dict[str, str]] = {}

    async def moment(self, caption: str, *texts: str) -> None:
        """Wait until all of this can be read and the screen is as it is kept."""
        await self._take(caption, lambda shown: all(text in shown for text in texts), str(texts))

    async def back_at_the_shell(self, caption: str, *texts: str) -> None:
        """The same, when the command has ended."""
        await self._person.is_at_the_shell(*texts)
        await self.moment(caption, *texts)

    async def _take(self, caption: str, seen: Callable[[str], bool], what: str) -> None:
        if self._writes:
            await self._person.until(seen, what)
            self._seen[caption] = steady(await self._person.still())
            return
        assert caption in self._kept, f"{self._path.name} has no moment {caption!r}: {WRITES}=1"
        kept = self._kept[caption]
        self._seen[caption] = kept
        await self._person.until(
            lambda shown: seen(shown) and steady(shown) == kept,
            f"{caption!r} as {self._path.name} has it ({WRITES}=1 writes it anew)\n{kept}\nbut",
        )

    def ends(self) -> None:
        """Write the file, or see that nothing of it is left over."""
        if self._writes:
            parts = (f"{HEAD}{name}\n{text}\n" for name, text in self._seen.items())
            self._path.write_text("".join(parts), encoding="utf-8")
        assert list(self._seen) == list(_read(self._path))


def _read(path: Path) -> dict[str, str]:
    _, *parts = re.split(rf"^{HEAD}(.*)\n", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {name: text.rstrip("\n") for name, text in zip(parts[::2], parts[1::2], strict=True)}
