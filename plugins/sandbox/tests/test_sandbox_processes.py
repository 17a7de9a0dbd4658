"""Processes under `sandbox`: without `bwrap` it says so; with it none gets out of the workspace."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio

from dsh.errors import ToolError
from dsh.seams.sandbox import SANDBOX
from dsh_plugins.sandbox.bwrap import Bubblewrap
from dsh_plugins.sandbox.catalog import SandboxConfig
from dsh_plugins.shell import shell
from dsh_plugins.shell_local import shell_local
from dsh_plugins.shell_session import shell_session

if TYPE_CHECKING:
    from plugins.sandbox.tests.conftest import Place

PATH = os.defpath + ":/usr/sbin:/sbin"


def why_not() -> str | None:
    """Why processes cannot be confined on this machine; None if they can."""
    program = shutil.which("bwrap", path=PATH)
    if program is None:
        return "bwrap is not installed here; install bubblewrap"
    said = b""
    for closed in (True, False):
        wanted = Bubblewrap(program=program, network=True, closed=closed)
        tried = subprocess.run(wanted.confined(["true"], "/tmp"), capture_output=True, check=False)
        if tried.returncode == 0:
            return None
        said = tried.stderr
    return f"bwrap does not work here: {said.decode(errors='replace').strip()}"


WHY_NOT = why_not()
needs_bwrap = pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")


# --- without it -----------------------------------------------------------------------------------


async def test_without_bwrap_it_says_so_loudly(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    await place.confined(SandboxConfig(), str(place.workspace))
    assert "NOT ENFORCED for processes: bwrap was not found" in caplog.text
    assert "they can write everywhere you can" in caplog.text
    found = place.room.kernel.root.require(SANDBOX)
    assert found.confined(["bash", "-c", "ls"], "/work") == ("bash", "-c", "ls")


async def test_without_bwrap_and_required_nothing_runs(place: Place) -> None:
    await place.confined(SandboxConfig(required=True), str(place.workspace))
    with pytest.raises(ToolError, match="bwrap was not found"):
        place.room.kernel.root.require(SANDBOX).confined(["ls"], "/work")


def program(place: Place, text: str) -> None:
    """Put a `bwrap` of our own into the workspace."""
    path = place.workspace / "bwrap"
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)


async def test_a_bwrap_that_does_not_work_is_as_good_as_none(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    program(place, "echo 'bwrap: No permissions to create new namespace' >&2; exit 1")
    await place.confined(SandboxConfig(required=True), str(place.workspace))
    assert "NOT ENFORCED" in caplog.text
    assert "No permissions to create new namespace" in caplog.text
    with pytest.raises(ToolError, match="does not work here"):
        place.room.kernel.root.require(SANDBOX).confined(["ls"], "/work")


async def test_an_older_bwrap_is_used_without_what_it_does_not_know(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    program(place, 'case " $* " in *" --disable-userns "*) exit 1 ;; esac')
    await place.confined(SandboxConfig(network=False), str(place.workspace))
    assert "NOT ENFORCED" not in caplog.text
    given = place.room.kernel.root.require(SANDBOX).confined(["ls", "-l"], str(place.workspace))
    assert "--disable-userns" not in given
    assert "--unshare-net" in given
    assert given[-3:] == ("--", "ls", "-l")


# --- with it --------------------------------------------------------------------------------------


@pytest.fixture
async def walled(place: Place) -> Place:
    """The place with `bash` in a real sandbox without network."""
    await place.confined(SandboxConfig(required=True, network=False), PATH)
    await place.room.kernel.mount(shell_local).ready()
    await place.room.kernel.mount(shell).ready()
    return place


@needs_bwrap
async def test_inside_a_command_works_as_ever(walled: Place) -> None:
    assert await said(walled, "echo one > a && mkdir b && mv a b/c && cat b/c; pwd") == (
        f"one\n{walled.workspace}"
    )
    assert (walled.workspace / "b/c").stat().st_uid == os.getuid()
    assert await said(walled, "echo x > /tmp/t; cat /tmp/t; exit 3") == "x\n[exit status 3]"
    assert await said(walled, "test -e /tmp/t; echo $?") == "1"  # the next has a /tmp of its own
    assert await said(walled, "cat ../outside/f; head -1 /proc/self/status") == (
        "safe\nName:\thead"
    )


async def said(place: Place, command: str) -> str:
    with trio.fail_after(60):
        return (await place.call("bash", command=command)).text


#: What a child of bash tries. `{outside}`: the folder that must stay as it is.
ESCAPES = (
    "echo x > ../outside/f",
    "echo x > {outside}/escaped",
    "cd / && echo x > {outside}/escaped",
    "cd .. && mkdir escaped",
    "echo x > /proc/self/root{outside}/escaped",
    "echo x > /proc/1/root{outside}/escaped",
    "echo x > /proc/self/cwd/../outside/f",
    "ln -s {outside} link && echo x > link/escaped",
    "ln -s {outside}/f link && echo x > link",
    "ln -s {outside} /tmp/link && echo x > /tmp/link/f",
    "ln {outside}/f linked && echo x > linked",
    "ln {outside}/f {outside}/escaped",
    "mv {outside}/f .",
    "mv {outside} {outside}escaped",
    "rm -rf {outside}",
    "truncate -s 0 {outside}/f",
    "touch {outside}/f",
    "chmod 777 {outside}/f {outside} && echo x > {outside}/f",
    "mkfifo {outside}/escaped",
    "cp -r . {outside}/escaped",
    "tar cf - . | tar xf - -C {outside}",
    "mount -o remount,rw,bind / && echo x > {outside}/f",
    "mount -o remount,rw / && echo x > {outside}/f",
    "umount -l {workspace}; umount -l /tmp; echo x > {outside}/f",
    "mkdir m && mount --bind / m && echo x > m{outside}/f",
    "mkdir m && mount --rbind {outside} m && echo x > m/f",
    "unshare -Urm sh -c 'mount -o remount,rw,bind /; echo x > {outside}/f'",
    "unshare -Urm sh -c 'mkdir m; mount --rbind / m; umount -l m/proc; echo x > m{outside}/f'",
    "unshare -Ur chroot / sh -c 'echo x > {outside}/f'",
    "bwrap --dev-bind / / sh -c 'echo x > {outside}/f'",
    "bwrap --bind / / --unshare-user sh -c 'echo x > {outside}/f'",
    "nsenter -t 1 -m sh -c 'echo x > {outside}/f'",
    "nsenter -t $PPID -a sh -c 'echo x > {outside}/f'",
    "chroot /proc/1/root sh -c 'echo x > {outside}/f'",
    "for d in /dev/sd* /dev/vd* /dev/nvme* /dev/mem; do echo x > $d; done; ls /dev | wc -l",
    "mknod disk b 8 0 && echo x > disk",
    "echo x > /dev/shm/escaped; cp /dev/shm/escaped {outside}/",
    "setsid sh -c 'sleep 0.3; echo x > {outside}/escaped' & sleep 0.6",
    "(trap '' TERM HUP; exec setsid sh -c 'sleep 1; echo x > {outside}/escaped') & exit",
    'python3 -c \'import os; os.chmod("{outside}/f", 0o777); open("{outside}/f", "w")\'',
    'python3 -c \'import os; os.fchdir(os.open("..", 0)); open("outside/f", "w")\'',
)


@needs_bwrap
@pytest.mark.parametrize("escape", ESCAPES)
async def test_no_child_of_bash_gets_out(walled: Place, escape: str) -> None:
    text = await said(walled, escape.format(outside=walled.outside, workspace=walled.workspace))
    print(f"{escape}: {text.splitlines()[0]:.90}")  # noqa: T201 - the list, for `pytest -s`
    assert walled.untouched()
    assert (walled.outside / "f").stat().st_nlink == 1
    assert (walled.outside / "f").stat().st_mode & 0o777 != 0o777
    assert not await trio.Path("/dev/shm/escaped").exists()


@needs_bwrap
@pytest.mark.parametrize("escape", [one for one in ESCAPES if "unshare" in one or "mount" in one])
async def test_nor_with_an_older_bwrap_that_cannot_forbid_namespaces(
    place: Place, escape: str
) -> None:
    real = shutil.which("bwrap", path=PATH)
    program(place, f'case " $* " in *" --disable-userns "*) exit 1 ;; esac; exec {real} "$@"')
    await place.confined(SandboxConfig(required=True), f"{place.workspace}:{PATH}")
    await place.room.kernel.mount(shell_local).ready()
    await place.room.kernel.mount(shell).ready()
    await said(place, escape.format(outside=place.outside, workspace=place.workspace))
    assert place.untouched()


@needs_bwrap
async def test_settings_of_the_kernel_stay(walled: Place) -> None:
    """They belong to root; each is written with what it is, should that succeed."""
    for path in ("/proc/sys/kernel/core_pattern", "/proc/sys/vm/swappiness", "/proc/self/comm"):
        assert "Read-only file system" in await said(walled, f"cat {path} > own; cat own > {path}")
    assert "writable" not in await said(
        walled, "find /proc/sys /sys -type f -writable -printf writable 2>/dev/null | head -c 100"
    )


@needs_bwrap
async def test_no_process_outside_is_seen_or_ended(walled: Place) -> None:
    stranger = subprocess.Popen(["sleep", "300"])  # noqa: ASYNC220 - a process of its own
    try:
        text = await said(
            walled, f"kill -9 {stranger.pid}; kill -9 -1; ls /proc | grep -c '^[0-9]'"
        )
        assert "No such process" in text or "ended by" in text or "exit status" in text
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


@needs_bwrap
async def test_nobody_outside_is_reached_by_the_network(walled: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert "exit status" in await said(walled, f"echo x > /dev/tcp/127.0.0.1/{port}")
    abstract = "\0dsh-sandbox-test"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(abstract)
        server.listen()
        code = f'import socket; socket.socket(socket.AF_UNIX).connect("\\0{abstract[1:]}")'
        assert "ConnectionRefused" in await said(walled, f"python3 -c '{code}'")


@needs_bwrap
@pytest.mark.skipif(not os.access("/run", os.W_OK), reason="only root may put a socket into /run")
async def test_sockets_of_services_in_run_are_out_of_reach(walled: Place) -> None:
    path = f"/run/dsh-sandbox-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        try:
            server.listen()
            code = f'import socket; socket.socket(socket.AF_UNIX).connect("{path}")'
            for way in (
                path,
                path.replace("/run", "/var/run"),
                path.replace("/run", "/proc/1/root/run"),
            ):
                text = await said(walled, f"python3 -c '{code.replace(path, way)}'")
                assert "FileNotFoundError" in text
        finally:
            os.unlink(path)  # noqa: PTH108 - a socket


@needs_bwrap
async def test_a_command_outlives_the_thread_that_started_it(
    walled: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trio._core._thread_cache.IDLE_TIMEOUT", 0.05)
    assert await said(walled, "sleep 1; echo survived") == "survived"


@needs_bwrap
async def test_nothing_of_a_sandbox_is_left_behind(walled: Place) -> None:
    """Also not what made a session of its own: the namespace ends with its first process."""
    mark = f"{os.getpid()}.25"
    text = await said(walled, f"setsid sleep {mark} & (trap '' TERM; sleep {mark}) & echo started")
    assert "left in the background were ended" in text
    with trio.fail_after(10):
        while b"sleep\0" + mark.encode() in commands():  # noqa: ASYNC110 - nothing signals that a process is gone
            await trio.sleep(0.02)


def commands() -> bytes:
    """The command lines of all processes."""
    found: list[bytes] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_bytes())
        except OSError:
            continue
    return b"\n".join(found)


@needs_bwrap
async def test_a_kept_shell_is_confined_too(place: Place) -> None:
    await place.confined(SandboxConfig(required=True), PATH)
    await place.room.kernel.mount(shell_session).ready()
    await place.room.kernel.mount(shell).ready()
    assert await said(place, "A=1; echo x > own; cd /") == "[exit status 0]"
    assert await said(place, "echo $A; pwd") == "1\n/"
    assert "Read-only file system" in await said(place, f"echo x > {place.outside}/f")
    assert place.untouched()
