"""A client of the daemon in a process of its own, at the streams of a program of a job."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from rm.errors import Unreachable

COMMAND = (sys.executable, "-I", "-m", "rm.cli.slurm.inside")
ENVIRONMENT = {"LANG": "C.UTF-8", "PATH": "/usr/local/bin:/usr/bin:/bin"}
PIECE_BYTES = 64 << 10
NICE = 10  # the daemon comes first
MOST_S = 90.0  # it ends itself earlier, with a sentence


async def run_client(
    who: Sequence[str], read: Callable[[], Awaitable[bytes]], write: Callable[[bytes], Awaitable[None]]
) -> None:
    """Until the client, or who is at the other end, has ended.

    Args:
        who: the daemon's socket for it, the host from which it asks, and the user.
        read, write: the way to the program (rm.protocol.clients).
    """
    ours, its = socket.socketpair()
    try:
        with its:
            process = await _process(who, its)
    except BaseException:
        ours.close()
        raise
    try:
        await _between(ours, read, write)
    finally:
        await _end(process)


async def _process(who: Sequence[str], its: socket.socket) -> subprocess.Popen[bytes]:
    """A thread that starts it cannot be stopped: who is cancelled waits for it, and ends the process."""
    starting = asyncio.ensure_future(asyncio.to_thread(_started, who, its))
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        await _end(await starting)
        raise


async def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    await asyncio.to_thread(process.wait)


async def _between(
    ours: socket.socket, read: Callable[[], Awaitable[bytes]], write: Callable[[bytes], Awaitable[None]]
) -> None:
    reader, writer = await asyncio.open_connection(sock=ours)
    ways = {asyncio.ensure_future(_out(reader, write)), asyncio.ensure_future(_in(read, writer))}
    try:
        await asyncio.wait(ways, timeout=MOST_S, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        writer.close()


def _started(who: Sequence[str], its: socket.socket) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [*COMMAND, *who],
        stdin=its.fileno(),
        stdout=subprocess.DEVNULL,
        env=ENVIRONMENT,
        cwd="/",
        start_new_session=True,
    )
    os.setpriority(os.PRIO_PROCESS, process.pid, NICE)
    return process


async def _out(reader: asyncio.StreamReader, write: Callable[[bytes], Awaitable[None]]) -> None:
    with suppress(Unreachable, ConnectionError):
        while data := await reader.read(PIECE_BYTES):
            await write(data)


async def _in(read: Callable[[], Awaitable[bytes]], writer: asyncio.StreamWriter) -> None:
    with suppress(Unreachable, ConnectionError):
        while data := await read():
            writer.write(data)
            await writer.drain()
