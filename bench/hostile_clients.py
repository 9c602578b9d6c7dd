"""The clients of `bench.hostile`: `python -m bench.hostile_clients KIND SOCKET USER COUNT`.

It becomes USER before it connects. The honest one prints how long each of its submissions took.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pwd
import sys
import time
from collections.abc import Awaitable, Callable

from rm.client.connection import Connection

PAUSE_S = 0.05
HEAD = "HTTP/1.1\r\nHost: rm\r\n"
SPEC = {"name": "hostile", "script": "#!/bin/sh\ntrue\n", "hold": True}
BODY = b'{"specs":[' + b'{"a":[]},' * 1_500_000 + b"{}]}"

Attack = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def request(method: str, path: str, body: bytes = b"") -> bytes:
    return f"{method} /v1/{path} {HEAD}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def answer(reader: asyncio.StreamReader) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = next(int(line[15:]) for line in head.splitlines() if line.startswith("content-length:"))
    await reader.readexactly(length)


async def slow_header(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(f"GET /v1/status {HEAD}X-Slow: ".encode())
    while True:
        await asyncio.sleep(1.0)
        writer.write(b"x")
        await writer.drain()


async def idle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)


async def reader_of_a_log(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    submit = json.dumps({"spec": SPEC}).encode()
    writer.write(request("POST", "jobs", submit))
    await reader.readuntil(b'"job":')
    job = int((await reader.readuntil(b"}"))[:-1])
    writer.write(request("GET", f"jobs/{job}/logs?follow=1"))
    await reader.read(1 << 16)


async def large_body(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(request("POST", "jobs", BODY))
    await writer.drain()
    await answer(reader)


async def lists(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(request("GET", "jobs"))
        await answer(reader)


async def submissions(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    body = json.dumps({"spec": SPEC}).encode()
    while True:
        writer.write(request("POST", "jobs", body))
        await answer(reader)


async def dry_runs(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    body = json.dumps({"spec": {**SPEC, "hold": False}}).encode()
    while True:
        writer.write(request("POST", "plan", body))
        await answer(reader)


# of a hundred clients
MIX: tuple[tuple[Attack, int], ...] = (
    (slow_header, 25), (idle, 25), (reader_of_a_log, 20), (large_body, 5), (lists, 5), (submissions, 15),
    (dry_runs, 5),
)  # fmt: skip


async def attack(path: str, how: Attack) -> None:
    """Again and again: whoever is turned away comes back."""
    while True:
        with contextlib.suppress(OSError, EOFError, ValueError, StopIteration):
            reader, writer = await asyncio.open_unix_connection(path)
            try:
                await how(reader, writer)
            finally:
                writer.close()
        await asyncio.sleep(PAUSE_S)


async def hostile(path: str, count: int) -> None:
    kinds = [how for how, share in MIX for _ in range(share)]
    await asyncio.gather(*(attack(path, kinds[i * 37 % len(kinds)]) for i in range(count)))


def honest(path: str, count: int) -> list[float]:
    """Milliseconds of each of so many submissions, one every 50 ms."""
    client, took = Connection(path), []
    for _ in range(count):
        since = time.perf_counter()
        client.post("jobs", body={"spec": {**SPEC, "name": "honest"}})
        took.append(1000 * (time.perf_counter() - since))
        time.sleep(PAUSE_S)
    return took


def main() -> None:
    kind, path, user, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
    account = pwd.getpwnam(user)
    os.setgroups([])
    os.setgid(account.pw_gid)
    os.setuid(account.pw_uid)
    if kind == "honest":
        print(json.dumps(honest(path, count)))
        return
    os.nice(19)  # they share the processors with the daemon, which they would not from elsewhere
    asyncio.run(hostile(path, count))


if __name__ == "__main__":
    main()
