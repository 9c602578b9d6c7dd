"""A supervisor runs the administrator's prolog or epilog."""

import os
import select
import time

import rm_job_program

PROGRAM_S = 1.0  # between two looks at a prolog or epilog


class Programs:
    """`wake`: the descriptor that says when a child of the supervisor has ended."""

    def __init__(self, attempt, place, orders, wake):
        self._attempt, self._place, self._orders, self._wake = attempt, place, orders, wake

    def run(self, kind):
        """Run it to its end; why it failed, as a sentence, or "". Orders are followed meanwhile: one to stop
        ends a prolog."""
        at = self._attempt
        path = at.request[kind]
        if not path:
            return ""
        log = at.folder.at(kind + ".log")
        within_s = at.request["program_us"] / 1e6
        late_s, until = 0, time.monotonic() + within_s
        environ = rm_job_program.environment(kind, at.folder, at.request, at.user)
        pid = rm_job_program.begin(path, environ, log)
        while True:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                break
            if kind == "prolog" and at.state == "stopped":
                rm_job_program.kill(pid)
                os.waitpid(pid, 0)
                return ""
            if time.monotonic() >= until:
                late_s = within_s
                rm_job_program.kill(pid)
                _, status = os.waitpid(pid, 0)
                break
            self._wait(min(until - time.monotonic(), PROGRAM_S))
            self._place.look()
            if kind == "prolog":
                self._orders.check_time()  # of its lease: it has no limit yet
        return rm_job_program.failure(kind, path, status, late_s, log)

    def _wait(self, left_s):
        inbox = self._place.inbox
        ready, _, _ = select.select([inbox, self._wake], [], [], max(0, left_s))
        if self._wake in ready:
            os.read(self._wake, 4096)
        if inbox in ready:
            self._orders.obey()
