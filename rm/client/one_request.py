"""One request to a daemon of this machine, at the least cost: for commands that scripts call in loops.

It knows only the answer that all went well. For any other, `rm.client.connection` asks again, which knows
restarts, standbys and limits; so nothing but a read, or a request with an idempotency key, is asked here.
"""

from __future__ import annotations

# `socket` adds selectors and enumerations to this, which take a tenth of such a command's time
from _socket import AF_UNIX, SOCK_STREAM, socket
from collections.abc import Mapping

TIMEOUT_S = 60.0
CHUNK_BYTES = 1 << 18
SUCCESS = b"HTTP/1.1 2"  # 200, 201


def answered(
    path: str, method: str, target: str, headers: Mapping[str, str], body: bytes = b""
) -> bytes | None:
    """The body of the daemon's answer, where it did what it was asked; None: it did not, or said nothing.

    Args:
        path: the daemon's socket.
        target: the path below the root, with the query.
    """
    lines = [f"{method} {target} HTTP/1.1", "Host: rm", "Connection: close", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    try:
        door = socket(AF_UNIX, SOCK_STREAM)
        try:
            door.settimeout(TIMEOUT_S)
            door.connect(path)
            door.sendall("\r\n".join([*lines, "", ""]).encode() + body)
            chunks = []
            while chunk := door.recv(CHUNK_BYTES):
                chunks.append(chunk)
        finally:
            door.close()
    except OSError:
        return None
    head, _, said = b"".join(chunks).partition(b"\r\n\r\n")
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    whole = len(lengths) == 1 and lengths[0].partition(b":")[2].strip() == b"%d" % len(said)
    return said if head.startswith(SUCCESS) and whole else None
