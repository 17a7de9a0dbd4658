"""A real browser for tests: headless Chromium over a pipe, with everything it complained of.

What comes in: a page's address, keys, clicks, expressions. What goes out: values, every request the
page made, every error it reported. No port is opened and no driver is needed; a machine without
Chromium is told what to install.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from base64 import b64decode
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import DEVNULL
from typing import TYPE_CHECKING, Final, cast, final

import orjson
import trio

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

__all__ = ["BROWSERS", "Browser", "Key", "Page", "found_browser", "open_browser"]

BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome")
FLAGS: Final = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--hide-scrollbars", "--force-color-profile=srgb",
    "--remote-debugging-pipe", "about:blank",
)  # fmt: skip
#: Seconds after which a browser that does not answer is a failure.
PATIENCE: Final = 60.0
CHUNK: Final = 1 << 16
#: The protocol speaks on the descriptors 3 and 4; whatever had these numbers moves away first.
LAUNCH: Final = """
import fcntl, os, sys
read, write = (fcntl.fcntl(int(fd), fcntl.F_DUPFD, 10) for fd in sys.argv[1:3])
os.dup2(read, 3)
os.dup2(write, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
#: Keys that are no letters: what they type, and their number.
CODES: Final = {"Enter": ("\r", 13), "Escape": ("", 27), "ArrowUp": ("", 38), "ArrowDown": ("", 40)}

Object = dict[str, object]
Key = str


def found_browser() -> str | None:
    """The path of an installed browser, or None."""
    return next((path for name in BROWSERS if (path := shutil.which(name)) is not None), None)


@final
class Browser:
    """One browser process. Pages are opened by its `page`."""

    def __init__(self, write: int, read: int) -> None:
        self._write: Final = trio.lowlevel.FdStream(write)
        self._read: Final = trio.lowlevel.FdStream(read)
        self._lock: Final = trio.Lock()
        self._number = 0
        self._waiting: Final[dict[int, tuple[trio.Event, list[Object]]]] = {}
        self._pages: Final[dict[str, Page]] = {}

    async def run(self) -> None:
        """Hear what the browser says, until it ends."""
        heard = bytearray()
        while True:
            piece = await self._read.receive_some(CHUNK)
            if not piece:
                return
            heard += piece
            *whole, rest = heard.split(b"\0")
            heard = bytearray(rest)
            for message in whole:
                self._hear(cast("Object", orjson.loads(message)))

    async def aclose(self) -> None:
        """Close the pipe, which ends the browser."""
        await self._write.aclose()
        await self._read.aclose()

    async def call(self, method: str, session: str | None = None, /, **given: object) -> Object:
        """One command of the protocol. Fails the test when the browser refuses it."""
        self._number += 1
        number = self._number
        message: Object = {"id": number, "method": method, "params": given}
        if session is not None:
            message["sessionId"] = session
        done = trio.Event()
        answer: list[Object] = []
        self._waiting[number] = (done, answer)
        async with self._lock:
            await self._write.send_all(orjson.dumps(message) + b"\0")
        with trio.fail_after(PATIENCE):
            await done.wait()
        assert "error" not in answer[0], (method, answer[0]["error"])
        return cast("Object", answer[0]["result"])

    async def page(self, *, width: int = 1400, height: int = 900, dark: bool = False) -> Page:
        """A new, empty page of this size and theme."""
        made = await self.call("Target.createTarget", url="about:blank")
        attached = await self.call("Target.attachToTarget", targetId=made["targetId"], flatten=True)
        page = Page(self, cast("str", attached["sessionId"]))
        self._pages[page.session] = page
        for domain in ("Page", "Runtime", "Log", "Network"):
            await page.call(f"{domain}.enable")
        await page.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip
        theme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await page.call("Emulation.setEmulatedMedia", features=[theme])
        return page

    def _hear(self, message: Object) -> None:
        number = message.get("id")
        if isinstance(number, int):
            done, answer = self._waiting.pop(number)
            answer.append(message)
            done.set()
            return
        page = self._pages.get(cast("str", message.get("sessionId", "")))
        if page is not None:
            page.hear(cast("str", message["method"]), cast("Object", message["params"]))


@final
class Page:
    """One page. `requests` are the addresses it asked for, `problems` what it complained of."""

    def __init__(self, browser: Browser, session: str) -> None:
        self.session: Final = session
        self.requests: Final[list[str]] = []
        self.problems: Final[list[str]] = []
        self._browser: Final = browser
        self._loaded = trio.Event()

    async def call(self, method: str, /, **given: object) -> Object:
        """One command of the protocol, for this page."""
        return await self._browser.call(method, self.session, **given)

    async def open(self, address: str) -> None:
        """Go to an address, and return when the page has loaded and its scripts have run."""
        self._loaded = trio.Event()
        gone = await self.call("Page.navigate", url=address)
        if "loaderId" not in gone:
            return  # the same page, another place in it
        with trio.fail_after(PATIENCE):
            await self._loaded.wait()

    async def value(self, expression: str) -> object:
        """What an expression is in the page; a promise is awaited. An exception fails the test."""
        done = await self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return cast("Mapping[str, object]", done["result"]).get("value")

    async def text(self, selector: str) -> str:
        """The text of the first element that a selector finds."""
        return cast("str", await self.value(f"document.querySelector({selector!r}).textContent"))

    async def count(self, selector: str) -> int:
        """How many elements a selector finds."""
        return cast("int", await self.value(f"document.querySelectorAll({selector!r}).length"))

    async def until(self, expression: str) -> None:
        """Return when an expression is true: looked at with every frame the page draws."""
        await self.value(
            f"new Promise((done) => {{ const look = () => ({expression}) ? done(true) :"
            " requestAnimationFrame(look); look(); })"
        )

    async def key(self, *keys: Key) -> None:
        """Type keys, by their names: `j`, `Enter`, `/`."""
        for key in keys:
            text, number = CODES.get(key, (key, 0))
            pressed: Object = {"key": key, "windowsVirtualKeyCode": number}
            if text:
                pressed["text"] = text
            await self.call("Input.dispatchKeyEvent", type="keyDown", **pressed)
            await self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    async def click(self, selector: str) -> None:
        """Press and release the mouse in the middle of an element."""
        place = await self.value(
            f"(() => {{ const box = document.querySelector({selector!r}).getBoundingClientRect();"
            " return [box.x + box.width / 2, box.y + box.height / 2]; })()"
        )
        x, y = cast("list[float]", place)
        await self.drag((x, y), (x, y))

    async def drag(self, begin: tuple[float, float], end: tuple[float, float]) -> None:
        """Press the mouse at one place and release it at another."""
        for kind, (x, y) in (("Pressed", begin), ("Moved", end), ("Released", end)):
            await self.call(
                "Input.dispatchMouseEvent",
                type=f"mouse{kind}", x=x, y=y, button="left", buttons=1, clickCount=1,
            )  # fmt: skip

    async def picture(self) -> bytes:
        """What it looks like, as PNG."""
        made = await self.call("Page.captureScreenshot", format="png")
        return b64decode(cast("str", made["data"]))

    def hear(self, method: str, given: Object) -> None:
        """For the browser alone: an event of the protocol."""
        match method:
            case "Page.loadEventFired":
                self._loaded.set()
            case "Network.requestWillBeSent":
                self.requests.append(cast("str", cast("Object", given["request"])["url"]))
            case "Runtime.exceptionThrown":
                self.problems.append(str(given["exceptionDetails"]))
            case "Runtime.consoleAPICalled":
                self.problems.append(f"console.{given['type']}: {given['args']}")
            case "Log.entryAdded":
                self.problems.append(str(cast("Object", given["entry"])["text"]))
            case "Page.javascriptDialogOpening":
                self.problems.append(f"dialog: {given['message']}")
            case _:
                pass


@asynccontextmanager
async def open_browser() -> AsyncGenerator[Browser, None]:
    """A browser with an empty profile; it is gone when the block is left."""
    path = found_browser()
    assert path is not None, "no browser is installed: apt-get install chromium"
    ours_in, theirs_out = os.pipe()
    theirs_in, ours_out = os.pipe()
    with tempfile.TemporaryDirectory(prefix="dsh-browser-", ignore_cleanup_errors=True) as profile:
        process = await trio.lowlevel.open_process(
            [
                sys.executable,
                "-I",
                "-S",
                "-c",
                LAUNCH,
                str(theirs_in),
                str(theirs_out),
                path,
                f"--user-data-dir={profile}",
                *FLAGS,
            ],
            stdin=DEVNULL,
            stdout=DEVNULL,
            stderr=DEVNULL,
            pass_fds=(theirs_in, theirs_out),
            start_new_session=True,
            cwd=Path(profile),
        )
        os.close(theirs_in)
        os.close(theirs_out)
        browser = Browser(ours_out, ours_in)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(browser.run)
                yield browser
                nursery.cancel_scope.cancel()
        finally:
            with trio.CancelScope(shield=True):
                await browser.aclose()
                with trio.move_on_after(5):
                    await process.wait()
                if process.returncode is None:
                    _kill_group(process.pid)
                    await process.wait()


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
