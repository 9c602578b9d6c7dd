"""How a supervisor's tasks end, and how that is recorded."""

import contextlib
import os
import select
import time

import rm_reports
from rm_lease import alive_us
from rm_news import now_us

STEPS_S = 0.02  # between two looks whether steps still run that were asked to end


class Ending:
    """A part of rm_task.Supervisor, which has the attributes."""

    def _reap(self):
        by_pid = {rank.pid: rank for rank in self.ranks if rank.pid and rank.end is None}
        alone = False
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                alone = True
                break
            if pid == 0:
                break
            if pid == self.stepd:
                self.stepd = 0
                if not self.finished:
                    self.poll.register(self.door, select.POLLIN)
            if pid in by_pid:
                signalled = os.WIFSIGNALED(status)
                code = 0 if signalled else os.WEXITSTATUS(status)
                number = os.WTERMSIG(status) if signalled else 0
                by_pid[pid].end = (code, number, now_us(), alive_us())
        if any(rank.end is not None and not rank.idle for rank in self.ranks):
            self._release()
        for rank in self.ranks:
            while rank.end is not None and rank.pipe is not None:
                self._hear(rank)  # its last words come before its end
        ended = [rank for rank in self.ranks if rank.end is not None and rank.pipe is None]
        if len(ended) == len(self.ranks) and not self.finished:
            if not alone:
                # the last rank ends for the outside only when nothing of the job is left here
                if self.kill_at is None:
                    self.group.thaw()
                    self._kill()
                    self.kill_at = time.monotonic() + 0.05
                elif self.stepd:
                    self._await_steps()
                return
            self.epilog = self._run_program("epilog", self.wake)
            self.finished = True
            self.captures.close()
            if self.named.paths:
                self.named.end()
                with contextlib.suppress(OSError):  # the log's end is then where the file's is
                    self._write_tasks()
        if any(not rank.recorded for rank in ended):
            self.captures.drain()
        for rank in ended:
            if not rank.recorded and (self.finished or len(ended) < len(self.ranks)):
                self._record(rank)

    def _await_steps(self):
        """The steps here have their grace; the step daemon ends after them."""
        self.steps_at = time.monotonic() + STEPS_S
        if not self._steps_run():
            self._end_steps()
            self.steps_at = None

    def _record(self, rank):
        rank.recorded = True
        code, number, ended_us, ended_alive_us = rank.end
        ran_us = None  # by a clock that nobody sets, unlike the two instants
        if rank.started_alive_us is not None:
            ran_us = max(0, ended_alive_us - rank.started_alive_us)
        why = self.why
        if rank.failure:
            code, number, why = 1, 0, rank.failure
        elif why in ("", "timeout") and rm_reports.asks_requeue(self.folder.reports(rank.rank)):
            why = "requeue"
        limited = self.request["mem_bytes"] or self.request["mem_bytes_per_task"]
        oom = bool(code or number) and limited > 0 and self.group.oom()
        log_bytes = None
        if self.finished and rank.capture is not None and not self.named.paths:
            log_bytes = rank.capture.size + rank.capture.lost
        record = {"rank": rank.rank, "code": code, "signal": number, "started_us": rank.started_us,
                  "ended_us": ended_us, "ran_us": ran_us, "oom": oom, "why": why,
                  "epilog": self.epilog, "log_bytes": log_bytes}  # fmt: skip
        if self.finished and all(r.recorded for r in self.ranks):
            self._remove_group()
            self.fence.remove()
        try:
            self._write_exit(record)
        except OSError:
            self.unrecorded.append(record)
        self._say(dict(record, event="exit"))

    def _write_exit(self, record):
        self.folder.write_exit(record["rank"], record, self.sync)

    def _remove_group(self):
        """Sessions that came in over SSH as a part of the job (rm_ssh_gate.py) end with it."""
        for _ in range(100):
            if self.group.remove():
                return
            self.group.kill()
            time.sleep(0.01)

    def _record_again(self):
        """A record that the disk refused: kept and tried each second, the lock held meanwhile."""
        for record in list(self.unrecorded):
            if not os.path.isdir(self.folder.path):
                self.unrecorded.remove(record)  # discarded: nobody asks any more
                continue
            try:
                self._write_exit(record)
                self.unrecorded.remove(record)
            except OSError:
                return
