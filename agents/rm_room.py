"""Whether the spool can be written, after a launch found that it could not: looked at again and again."""

import os
import time

NEEDED_BYTES = 1 << 20
FIRST_S, LONGEST_S = 1.0, 60.0
AGAIN_S = 600.0  # troubles nearer than that are looked at less often from one to the next
TROUBLES = ("no-space", "no-descriptors", "spool")


class Room:
    """`tell` is called once when there is room again."""

    def __init__(self, state, tell):
        self.path, self.tell = os.path.join(state, "room.%d" % os.getpid()), tell
        self.due = None  # monotonic seconds; None while nobody waits for it
        self.pause_s = FIRST_S
        self.found_at = -AGAIN_S

    def is_there(self):
        try:
            fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                os.unlink(self.path)
                return os.write(fd, bytes(NEEDED_BYTES)) == NEEDED_BYTES
            finally:
                os.close(fd)
        except OSError:
            return False

    def wait(self):
        """It is missing: look for it."""
        if self.due is None:
            now = time.monotonic()
            if now - self.found_at >= AGAIN_S:
                self.pause_s = FIRST_S
            self.due = now + self.pause_s

    def timeout_s(self):
        return None if self.due is None else max(0.0, self.due - time.monotonic())

    def look(self):
        if self.due is None or time.monotonic() < self.due:
            return
        self.pause_s = min(LONGEST_S, 2 * self.pause_s)
        if self.is_there():
            self.due, self.found_at = None, time.monotonic()
            self.tell()
        else:
            self.due = time.monotonic() + self.pause_s
