"""One rank of an attempt here, as its supervisor knows it."""

import os


class Rank:
    """One task: its process, the pipe on which it says how its start went, and its end."""

    def __init__(self, task):
        self.task = task
        self.rank = task["rank"]
        self.idle = task["idle"]  # it holds its part of the host, and runs nothing
        self.capture = None  # of what it prints, unless it named a file for that
        self.pid = 0
        self.spawned = None  # while it is on its way to exec in our memory
        self.spawned_at = (
            None  # (microseconds since the epoch, since boot): its start, where nobody listens to it
        )
        self.pipe = None
        self.said = b""
        self.failure = ""
        self.failed_with = 1, 0  # the exit code and signal of a failure
        self.chdir = ""
        self.opened_in = ""  # the directory in which its files were opened, where that is another one
        self.started_us = None
        self.started_alive_us = None
        self.end = None  # (code, signal, ended_us, ended_alive_us)
        self.recorded = False
        self.used = None  # the numbers of its process, once that was reaped

    def named(self, stream):
        """The file that the user named for a stream and the task opened; "" when it opened none."""
        path = self.task[stream]
        if self.failure or not path or (stream == "error" and path == self.task["output"]):
            return ""
        return os.path.join(self.opened_in or self.chdir, path)
