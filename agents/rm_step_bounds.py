"""What a process of root that a job's user talks to may take of its host, whatever the user sends.

It lives outside the job's control group, whose memory limit does not hold for it: so it has one of its own,
and the kernel ends it before any job when memory runs out. Its tasks are born with what was there before.
"""

import contextlib
import os
import resource

FIRST_TO_END = 1000  # of oom_score_adj(5)
SCORE = "/proc/self/oom_score_adj"


def end_first():
    """When memory runs out, the kernel ends this process before others."""
    with contextlib.suppress(OSError), open(SCORE, "w") as file:
        file.write(str(FIRST_TO_END))


def open_many():
    """From now on this process may have as many descriptors as the hard limit allows."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class Bounds:
    """Of this process and those that it forks."""

    def __init__(self):
        self.data = resource.getrlimit(resource.RLIMIT_DATA)
        self.score = ""
        with contextlib.suppress(OSError), open(SCORE) as file:
            self.score = file.read().strip()

    def impose(self, more_bytes):
        """At most so much memory more than now: more raises MemoryError, which ends the steps it serves."""
        hard = self.data[1]
        with open("/proc/self/statm") as file:
            most = int(file.read().split()[5]) * resource.getpagesize() + more_bytes
        with contextlib.suppress(OSError, ValueError):
            soft = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
        if os.getuid() == 0:  # only root can take it back, for tasks
            end_first()

    def lift(self):
        """In a task, while it still has the agent's rights."""
        resource.setrlimit(resource.RLIMIT_DATA, self.data)
        if os.getuid() == 0 and self.score:
            with contextlib.suppress(OSError), open(SCORE, "w") as file:
                file.write(self.score)
