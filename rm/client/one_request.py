"""One request to a daemon of this machine, at the least cost: for commands that scripts call in loops.

It knows only the answer that all went well. For any other, `rm.client.connection` asks again, which knows
restarts, standbys and limits; so what may not be done twice needs an idempotency key, or hears of silence.
"""

from __future__ import annotations

# `socket` adds selectors and enumerations to this, which take a tenth of such a command's time
from _socket import AF_UNIX, SOCK_STREAM, socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

TIMEOUT_S = 60.0
QUIET_S = 5.0  # without an answer, before anybody says why; reads are then asked elsewhere
CHUNK_BYTES = 1 << 18
NO_STATUS, SUCCESS, REFUSED, DEFECT = 0, 200, range(400, 500), 500
LATER = (408, 429)  # of these, those that are to be asked again


def read(path: str, target: str) -> bytes | None:
    """The answer to `GET target`; None: `rm.client.connection` has to ask. A daemon that is silent may be no
    leader any more, which that finds out, so that nobody waits long for it here."""
    return answered(opened(path, QUIET_S), "GET", target, {})


def opened(path: str, timeout_s: float = TIMEOUT_S) -> socket | None:
    """A connection to the daemon whose socket this is, for one request; None: nobody can be asked there.
    Opened before the request is made, it is taken by the daemon meanwhile.

    Args:
        timeout_s: for the connection, and for each part of the answer.
    """
    try:
        door = socket(AF_UNIX, SOCK_STREAM)
    except OSError:
        return None
    try:
        door.settimeout(timeout_s)
        door.connect(path)
        return door
    except OSError:
        door.close()
        return None


def answered(
    door: socket | None,
    method: str,
    target: str,
    headers: Mapping[str, str],
    body: bytes = b"",
    on_refusal: Callable[[int, bytes], None] | None = None,
    on_silence: Callable[[], None] | None = None,
    on_quiet: Callable[[], bool] | None = None,
) -> bytes | None:
    """The body of the daemon's answer, where it did what it was asked; None: it did not, or said nothing.

    Args:
        door: what `opened` gave; it is closed.
        target: the path below the root, with the query.
        on_refusal: hears status and body of a refusal that another request would get again, which would be
            recorded twice.
        on_silence: hears that the request was made and nobody knows what became of it.
        on_quiet: hears once that the answer is late, and says whether it is waited for on.
    """
    if door is None:
        return None
    lines = [f"{method} {target} HTTP/1.1", "Host: rm", "Connection: close", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    said: bytes | None = None
    try:
        door.sendall("\r\n".join([*lines, "", ""]).encode() + body)
        first = _late(door, on_quiet) if on_quiet is not None else b""
        status, said = _said(door, first)
    except OSError:
        status = NO_STATUS
    finally:
        door.close()
    if said is None and on_silence is not None:
        on_silence()
    if said is None or SUCCESS <= status < SUCCESS + 100:
        return said
    if on_refusal is not None and (status in REFUSED or status == DEFECT) and status not in LATER:
        on_refusal(status, said)
    return None


def _late(door: socket, on_quiet: Callable[[], bool]) -> bytes:
    """What comes of the answer in its first seconds.

    Raises:
        TimeoutError: nothing has come, and it is not waited for on.
    """
    door.settimeout(QUIET_S)
    try:
        return door.recv(CHUNK_BYTES)
    except TimeoutError:
        if not on_quiet():
            raise
        return b""
    finally:
        door.settimeout(TIMEOUT_S)


def _said(door: socket, told: bytes) -> tuple[int, bytes | None]:
    """Status and body of the answer, once all of it is there; `told`: what has come of it."""
    head, ended, first = told.partition(b"\r\n\r\n")
    while not ended:
        chunk = door.recv(CHUNK_BYTES)
        if not chunk:
            return NO_STATUS, None
        head, ended, first = (head + chunk).partition(b"\r\n\r\n")
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    length = lengths[0].partition(b":")[2].strip() if len(lengths) == 1 else b""
    status = head[9:12]
    if not (head.startswith(b"HTTP/1.1 ") and status.isdigit() and length.isdigit()):
        return NO_STATUS, None
    chunks, missing = [first], int(length) - len(first)
    while missing > 0 and (chunk := door.recv(CHUNK_BYTES)):
        chunks.append(chunk)
        missing -= len(chunk)
    return int(status), b"".join(chunks) if missing == 0 else None
