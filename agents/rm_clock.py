"""Does the kernel hold this host's clock to a reference? adjtimex(2) says so."""

import ctypes
import time

_NOT_SYNCHRONIZED = 5  # TIME_ERROR
_ROOM = 512  # struct timex has 208 bytes


def state():
    """Returns {"at_us": the time, "synchronized": bool}; a kernel that says nothing counts as not."""
    held = ctypes.create_string_buffer(_ROOM)  # mode 0: only read
    try:
        found = ctypes.CDLL(None, use_errno=True).adjtimex(held)
    except (OSError, AttributeError):
        found = -1
    return {"at_us": time.time_ns() // 1000, "synchronized": 0 <= found != _NOT_SYNCHRONIZED}
