"""What a program of a job that asks the daemon, and the client that runs for it, say to each other: frames of
a kind, a number and data. `agents/rm_client.py` is the far end."""

from __future__ import annotations

import struct

HEAD = struct.Struct("!cII")  # kind, number, length of what follows
REQUEST = b"R"  # the program says, first: JSON, see `Request`
ANSWER = b"A"  # the program says: an error's number or 0, and data
OUTPUT, ERRORS = b"O", b"X"  # the client says: for the program's streams
ENDED = b"D"  # the client says, last: the exit code
AGAIN = b"Z"  # instead: the seconds after which the program asks again, with these words (JSON)
READ = b"F"  # the client asks for this number of bytes, at most, of the file of this name
HEAR = b"N"  # the same of the program's standard input; none: it has ended
IS_FILE = b"K"  # whether this name is a file's: some byte, or none
WRITE = b"W"  # that a file is written: its name, a zero byte, its content
FRAME_BYTES = 8 << 20
PIECE_BYTES = 64 << 10


def frame(kind: bytes, number: int, data: bytes = b"") -> bytes:
    return HEAD.pack(kind, number, len(data)) + data
