"""How a supervisor's tasks end, and how that is recorded."""

import contextlib
import os
import time

import rm_named_container
import rm_reports
from rm_lease import alive_us
from rm_news import now_us

AGAIN_S = 1  # between two tries to write a record that the disk refused


class Ending:
    def __init__(self, attempt, place, deadlines, beginning, orders, steps, programs):
        self._attempt, self._place, self._deadlines = attempt, place, deadlines
        self._beginning, self._orders, self._steps, self._programs = beginning, orders, steps, programs
        self._epilog = ""  # how it failed
        self._unrecorded = []  # exits that the disk refused

    @property
    def over(self):
        """Has all ended, and is it recorded?"""
        return self._attempt.finished and not self._unrecorded

    def due(self):
        """When to look again, in monotonic seconds."""
        again = [time.monotonic() + AGAIN_S] if self._unrecorded else []
        return again if self._steps.look_at is None else [*again, self._steps.look_at]

    def reap(self):
        at = self._attempt
        alone = self._wait_for_children()
        if any(rank.end is not None and not rank.idle for rank in at.ranks):
            at.release()
        for rank in at.ranks:
            while rank.end is not None and rank.pipe is not None:
                self._beginning.hear(rank)  # its last words come before its end
        ended = [rank for rank in at.ranks if rank.end is not None and rank.pipe is None]
        if len(ended) == len(at.ranks) and not at.finished:
            if not alone:
                # the last rank ends for the outside only when nothing of the job is left here
                if self._deadlines.kill_at is None:
                    self._orders.end_rest()
                elif self._steps.daemon:
                    self._steps.await_end()
                return
            self._finish()
        if any(not rank.recorded for rank in ended):
            at.captures.drain()
        for rank in ended:
            if not rank.recorded and (at.finished or len(ended) < len(at.ranks)):
                self._record(rank)

    def _wait_for_children(self):
        """Take the ends of processes; True where none is left."""
        by_pid = {rank.pid: rank for rank in self._attempt.ranks if rank.pid and rank.end is None}
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return False
            self._steps.reaped(pid)
            numbers = self._attempt.used.reaped(usage)
            if pid in by_pid:
                by_pid[pid].used = numbers
                signalled = os.WIFSIGNALED(status)
                code = 0 if signalled else os.WEXITSTATUS(status)
                number = os.WTERMSIG(status) if signalled else 0
                by_pid[pid].end = (code, number, now_us(), alive_us())

    def _finish(self):
        at = self._attempt
        rm_named_container.remove(at)
        self._epilog = self._programs.epilog()
        at.finished = True
        self._steps.close()
        at.captures.close()
        if at.named.paths:
            at.named.end()
            with contextlib.suppress(OSError):  # the log's end is then where the file's is
                self._place.write_tasks()

    def _record(self, rank):
        at = self._attempt
        rank.recorded = True
        code, number, ended_us, ended_alive_us = rank.end
        ran_us = None  # by a clock that nobody sets, unlike the two instants
        if rank.started_alive_us is not None:
            ran_us = max(0, ended_alive_us - rank.started_alive_us)
        why = at.why
        if rank.failure:
            (code, number), why = rank.failed_with, rank.failure
        elif why in ("", "timeout") and rm_reports.asks_requeue(at.folder.reports(rank.rank)):
            why = "requeue"
        limited = at.request["mem_bytes"] or at.request["mem_bytes_per_task"]
        oom = bool(code or number) and limited > 0 and at.group.oom()
        log_bytes = log_size = None
        if at.finished and rank.capture is not None and not at.named.paths:
            log_size = rank.capture.size
            log_bytes = log_size + rank.capture.lost
        record = {"rank": rank.rank, "code": code, "signal": number, "started_us": rank.started_us,
                  "ended_us": ended_us, "ran_us": ran_us, "oom": oom, "why": why,
                  "epilog": self._epilog, "log_bytes": log_bytes, "log_size": log_size}  # fmt: skip
        if (len(at.ranks) > 1 or at.request["batch"]) and rank.used:
            record["used"] = rank.used
        if at.finished and all(r.recorded for r in at.ranks):
            record["whole"] = at.used.now()
            self._place.remove_group()
            at.fence.remove()
        try:
            self._place.write_exit(record)
        except OSError:
            self._unrecorded.append(record)
        self._place.say(dict(record, event="exit"))

    def record_again(self):
        """A record that the disk refused: kept and tried each second, the lock held meanwhile."""
        for record in list(self._unrecorded):
            if not os.path.isdir(self._attempt.folder.path):
                self._unrecorded.remove(record)  # discarded: nobody asks any more
                continue
            try:
                self._place.write_exit(record)
                self._unrecorded.remove(record)
            except OSError:
                return
