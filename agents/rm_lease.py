"""A lease on an attempt: how long its tasks may run without news of the daemon that leads.

Counted on this host's own clock that never jumps and goes on while the machine sleeps. The daemon sends back
what it knows of that clock: so a renewal that was under way for long counts from when it was asked for.
"""

import time

LOOK_S = 1.0  # poll's clock stands still while the machine sleeps


def alive_us():
    """Microseconds since this host's boot."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


class Lease:
    """`length_us` after the daemon was last heard the tasks get SIGTERM, and `grace_us` later they are
    killed. It is heard at `heard_us` or, where that is not known, now."""

    def __init__(self, length_us, grace_us, heard_us):
        self.length_us, self.grace_us = length_us, grace_us
        self.heard_us = heard_us or alive_us()

    def renew(self, heard_us):
        self.heard_us = max(self.heard_us, heard_us)

    def left_us(self):
        """Until it is over; at most 0: it is."""
        return self.heard_us + self.length_us - alive_us()

    def grace_left_us(self):
        """Of a lease that is over: until the tasks are killed."""
        return max(0, self.left_us() + self.grace_us)

    def look_in_s(self):
        return min(LOOK_S, max(0, self.left_us()) / 1e6)
