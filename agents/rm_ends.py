"""How attempts ended of which nothing else is left here: their logs have come home, and they were discarded.

    <state>/ends   a line for each: {"at": seconds, "tasks": [lines of the answer to `tasks`]}

A daemon whose database was restored from a backup asks for the ends of what ran when the backup was made.
This is a help, not a promise: on a full disk nothing is remembered, and of very many the oldest are
forgotten.
"""

import contextlib
import json
import os
import time

from rm_attempt import NOT_LIVE
from rm_files import write_bytes

KEEP_S = 7 * 86400
MOST_BYTES = 64 << 20
NAME = "job", "attempt", "rank"
TOLD_MAX = 5000  # tasks of an answer: those that ended last


class Ends:
    def __init__(self, state):
        self.path = os.path.join(state, "ends")

    def remember(self, attempts):
        """Those of which a task has ended."""
        lines = []
        for attempt in attempts:
            tasks = [line for line in attempt.ranks.values() if line["state"] in NOT_LIVE]
            if tasks:
                lines.append(json.dumps({"at": int(time.time()), "tasks": tasks}))
        if not lines:
            return
        with contextlib.suppress(OSError):
            fd = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                size = os.fstat(fd).st_size
                torn = size and os.pread(fd, 1, size - 1) != b"\n"  # a full disk took a piece of the last one
                size += os.write(fd, ("\n" * bool(torn) + "\n".join(lines) + "\n").encode())
            finally:
                os.close(fd)
            if size > MOST_BYTES:
                self._halve()

    def of(self, asked):
        """What is remembered of jobs, by job: the first of their attempts that matters."""
        found = {}
        for _, tasks in self._read() if asked else ():
            for line in tasks:
                if line["attempt"] >= asked.get(line["job"], 1 << 62):
                    found.pop((line["job"], line["attempt"], line["rank"]), None)
                    found[line["job"], line["attempt"], line["rank"]] = line
        return list(found.values())[-TOLD_MAX:]

    def prune(self, keep_s=KEEP_S):
        """Forget what is older than that, and of very many the older half."""
        with contextlib.suppress(OSError):  # on a full disk the next agent does it
            if os.stat(self.path).st_size > MOST_BYTES:
                self._halve()
            oldest = next(self._read(), None)
            if oldest is None or oldest[0] >= time.time() - keep_s:
                return
            kept = [
                json.dumps({"at": at, "tasks": tasks})
                for at, tasks in self._read()
                if at >= time.time() - keep_s
            ]
            write_bytes(self.path, "".join(line + "\n" for line in kept).encode(), 0o600)

    def _halve(self):
        with open(self.path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(size - min(size // 2, MOST_BYTES) - 1)
            file.readline()
            write_bytes(self.path, file.read(), 0o600)

    def _read(self):
        """(at, tasks) of each, the oldest first."""
        with contextlib.suppress(OSError), open(self.path, "rb") as file:
            for line in file:
                try:
                    known = json.loads(line)
                    at, tasks = int(known["at"]), [dict(task) for task in known["tasks"]]
                    for task in tasks:
                        task["job"], task["attempt"], task["rank"] = map(int, map(task.get, NAME))
                except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
                    continue  # torn
                yield at, tasks
