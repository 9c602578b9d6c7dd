"""A supervisor runs the administrator's prolog or epilog."""

import os
import select

import rm_epilog
import rm_job_program
from rm_spool import sentence_of

PROGRAM_S = 1.0  # between two looks at a prolog or epilog


class Programs:
    """`wake`: the descriptor that says when a child of the supervisor has ended."""

    def __init__(self, attempt, place, orders, wake):
        self._attempt, self._place, self._orders, self._wake = attempt, place, orders, wake

    def prepare(self):
        """From now on the epilog runs, though this supervisor is killed. Raises OSError."""
        at = self._attempt
        path, within_us = at.request["epilog"], at.request["program_us"]
        if path:
            rm_epilog.write_due(at.folder, path, self._environment("epilog"), within_us)

    def prolog(self):
        """Run it to its end; why it failed, as a sentence, or "". Orders are followed meanwhile: one to stop
        ends it."""
        return self._run("prolog")

    def epilog(self):
        """As `prolog`, but to its end in any case."""
        at = self._attempt
        if not at.request["epilog"]:
            return ""
        try:
            if not rm_epilog.take(at.folder):
                return ""
        except OSError as error:
            return "The epilog %s did not run. %s" % (at.request["epilog"], sentence_of(error)[1])
        failure = self._run("epilog")
        rm_epilog.end(at.folder, failure)
        return failure

    def _environment(self, kind):
        at = self._attempt
        return rm_job_program.environment(kind, at.folder, at.request, at.user)

    def _run(self, kind):
        at = self._attempt
        path, within_s = at.request[kind], at.request["program_us"] / 1e6
        if not path:
            return ""

        def wait(left_s):
            self._wait(min(left_s, PROGRAM_S))
            self._place.look()
            if kind == "prolog":
                self._orders.check_time()  # of its lease: it has no limit yet
            return kind == "prolog" and at.state == "stopped"

        return rm_job_program.Run(kind, path, self._environment(kind), at.folder, within_s).to_its_end(wait)

    def _wait(self, left_s):
        inbox = self._place.inbox
        ready, _, _ = select.select([inbox, self._wake], [], [], left_s)
        if self._wake in ready:
            os.read(self._wake, 4096)
        if inbox in ready:
            self._orders.obey()
