"""What somebody finds who enters a step from elsewhere: environment, directory and processors of its first
task on this host, and the container in which that runs."""

import os

import rm_step_container
from rm_cgroup import ENVIRONMENT_BYTES, descendants, environment_of
from rm_used_now import ENVIRONMENT_BYTES as FIRST_BYTES
from rm_used_now import PROCESSES

CONTAINER = "RM_STEP_CONTAINER"  # the runtime, in the environment of the process that it became
SHELL = ["/bin/sh", "-c", "if command -v bash >/dev/null; then exec bash; fi; exec sh"]


class Refused(Exception):
    """It cannot be entered; the message is a sentence."""


class Entered:
    """`pid`: of the task. Raises Refused."""

    def __init__(self, part, step, folder):
        pid, self.environ = _task(part, step)
        self.runtime = self.environ.pop(CONTAINER, "")
        if self.runtime not in ("", "podman"):
            raise Refused("The step runs in a container of %s, which no session enters." % self.runtime)
        self.container = rm_step_container.name_of(folder, step, int(self.environ["SLURM_PROCID"]))
        try:
            self.cwd = os.readlink("/proc/%d/cwd" % pid)
            self.cpus = os.sched_getaffinity(pid)
        except OSError:
            raise Refused("The step has ended on this host.") from None

    def command(self, argv, terminal):
        """The words that run `argv`, or a shell, there; None: `argv` itself."""
        if not self.runtime:
            return None
        _, program = rm_step_container.rm_container.found()
        streams = ["--interactive", "--tty"] if terminal else ["--interactive"]
        return [program, "--cgroup-manager=cgroupfs", "exec", *streams, self.container, *(argv or SHELL)]


def _task(part, step):
    """(process, environment) of the task with the lowest rank, whose part is the process `part`."""
    found = {}
    for pid in descendants(part)[:PROCESSES]:  # children come before theirs
        environ = _environment(pid, FIRST_BYTES)
        rank = environ.get("SLURM_PROCID", "")
        if environ.get("SLURM_STEP_ID") == str(step) and rank.isdecimal():
            found.setdefault(int(rank), pid)
    if not found:
        raise Refused("No task of step %d runs on this host now." % step)
    pid = found[min(found)]
    environ = _environment(pid, ENVIRONMENT_BYTES)
    if "SLURM_PROCID" not in environ:  # it has just ended
        raise Refused("The step has ended on this host.")
    return pid, environ


def _environment(pid, most_bytes):
    words = environment_of(pid, most_bytes).decode("utf-8", "surrogateescape").split("\0")
    return dict(word.split("=", 1) for word in words if "=" in word and not word.startswith("="))
