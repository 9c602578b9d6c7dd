"""To freeze and thaw the processes of one job, by its control group or one by one."""

import contextlib
import os
import signal

import rm_kernel
from rm_kernel import KernelRefused

LONGEST_US = 10_000_000  # no single freeze may last longer


class Freezer:
    """Freezes and thaws the processes of one job."""

    def __init__(self, job, attempt):
        self.job, self.attempt = job, attempt
        group = rm_kernel.job_cgroup(job, attempt)
        self.file = group + "/cgroup.freeze" if group and os.path.exists(group + "/cgroup.freeze") else ""
        self.words = ("1", "0")
        if not self.file:
            for mount in rm_kernel.cgroup_mounts("cgroup", "freezer"):
                state = "%s/%s/job_%d_%d/freezer.state" % (mount, rm_kernel.PARENT, job, attempt)
                if os.path.exists(state):
                    self.file, self.words = state, ("FROZEN", "THAWED")
        self.stopped = set()
        if not self.file and not rm_kernel.job_processes(job, attempt):
            raise KernelRefused("no-such-job", "job %d (attempt %d) has no processes here" % (job, attempt))

    def freeze(self):
        """Stop every process of the job."""
        if self.file:
            self._write(self.words[0])
            return
        # Children may appear while we go: until a round finds nothing new.
        while True:
            fresh = rm_kernel.job_processes(self.job, self.attempt) - self.stopped
            if not fresh:
                return
            for pid in fresh:
                self.stopped.add(pid)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)

    def thaw(self):
        """Let every process of the job go on; harmless when it runs."""
        if self.file:
            with contextlib.suppress(FileNotFoundError):
                self._write(self.words[1])
            return
        for pid in self.stopped | rm_kernel.job_processes(self.job, self.attempt):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self.stopped.clear()

    def _write(self, word):
        with open(self.file, "w") as file:
            file.write(word)
