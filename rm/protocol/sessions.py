"""What who attends a session of a job and the session itself say to each other, end to end: frames of a kind,
the offset of their first byte (or a number), and data. `agents/rm_session.py` is the far end."""

from __future__ import annotations

import struct
from collections.abc import Iterator

HEAD = struct.Struct("!cQI")
HAVE = b"H"  # both: how much of the other's stream has come, said first
INPUT, END_OF_INPUT, WINDOW, SIGNAL, BYE, AWAY = b"I", b"E", b"W", b"S", b"B", b"G"
TAKEN = b"A"  # both: all before this offset is taken
OUTPUT, ERRORS, ENDED = b"O", b"X", b"D"  # the session says
FRAME_BYTES = 32 << 10
WINDOW_BYTES = 512 << 10  # under way and not taken


def frame(kind: bytes, number: int, data: bytes = b"") -> bytes:
    return HEAD.pack(kind, number, len(data)) + data


def frames(buffer: bytearray) -> Iterator[tuple[bytes, int, bytes]]:
    """The complete frames at the beginning of `buffer`, which it loses.

    Raises:
        ValueError: it is no frame.
    """
    while len(buffer) >= HEAD.size:
        kind, number, length = HEAD.unpack_from(buffer)
        if length > FRAME_BYTES:
            raise ValueError("a frame is too long")
        if len(buffer) < HEAD.size + length:
            return
        data = bytes(buffer[HEAD.size : HEAD.size + length])
        del buffer[: HEAD.size + length]
        yield kind, number, data
