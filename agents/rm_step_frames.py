"""What srun and the part of a step on one host say to each other: frames of a kind, a rank and data."""

import struct

HEAD = struct.Struct("!cII")  # kind, rank, length of what follows
ALL = 0xFFFFFFFF  # in place of a rank
REQUEST, INPUT, END_OF_INPUT, SIGNAL = (
    b"R",
    b"I",
    b"E",
    b"S",
)  # srun says; a signal's number is in place of the rank
OUTPUT, ERRORS, TAKEN, ENDED = b"O", b"X", b"A", b"D"  # the part says
WINDOW = b"W"  # srun says: the rows and columns of task 0's terminal
SIZE = struct.Struct("!2H")
LOST = b"L"  # srun says to one who attends the step beside it: bytes that it did not take
PMI = b"P"  # both: of a rank's talk with rm_pmi.py
FRAME_BYTES = 64 << 10
REQUEST_BYTES = 8 << 20
INPUT_BYTES = 64 << 10  # that srun may send before the tasks have taken what it sent before
LEFT_S = 1.0  # that what a program leaves in the background has to say its last words


def frame(kind, rank, data=b""):
    return HEAD.pack(kind, rank, len(data)) + data


def frames(buffer):
    """The complete frames at the beginning of a bytearray, which it loses: (kind, rank, data)."""
    while len(buffer) >= HEAD.size:
        kind, rank, length = HEAD.unpack_from(buffer)
        if length > REQUEST_BYTES:
            raise ValueError("a frame is too long")
        if len(buffer) < HEAD.size + length:
            return
        data = bytes(buffer[HEAD.size : HEAD.size + length])
        del buffer[: HEAD.size + length]
        yield kind, rank, data
