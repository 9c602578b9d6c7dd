"""The administrator's programs around a job on this host: a prolog before its tasks, an epilog after them.

They run as the agent does, as root where it is root, so that nothing of the user's environment reaches them:
what they find of the job are the names of LET_THROUGH alone.
"""

import contextlib
import os
import signal
import time

from rm_become import PR_SET_CHILD_SUBREAPER, PR_SET_PDEATHSIG, prctl

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LET_THROUGH = (
    "SLURM_JOB_ID", "SLURM_JOBID", "SLURM_JOB_NAME", "SLURM_JOB_PARTITION", "SLURM_JOB_NODELIST",
    "SLURM_JOB_NUM_NODES", "SLURM_NTASKS", "SLURM_CLUSTER_NAME", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID",
    "SLURM_RESTART_COUNT", "RM_JOB_ID", "RM_HOST",
)  # fmt: skip
# each is set by the daemon for every job, or left out by it: none can come from the user's environment
SAID_BYTES = 200  # of the last line that it printed
RESET = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGCHLD)


def environment(kind, folder, request, user):
    """`kind` is prolog or epilog."""
    task = request["tasks"][0]
    given = dict(request["env"], **task["env"])
    environ = {name: given[name] for name in LET_THROUGH if name in given}
    gpus = dict.fromkeys(gpu for one in request["tasks"] for gpu in one["gpus"])
    environ.update(
        PATH=PATH, HOME="/root", LANG="C.UTF-8", RM_PROGRAM=kind, RM_ATTEMPT=str(folder.attempt),
        RM_GPUS=",".join(gpus), CUDA_VISIBLE_DEVICES=",".join(gpus), SLURM_JOB_USER=user.name,
        SLURM_JOB_UID=str(user.uid), SLURM_JOB_GID=str(user.gid), SLURM_JOB_WORK_DIR=request["chdir"],
        SLURMD_NODENAME=given.get("RM_HOST") or os.uname().nodename,
    )  # fmt: skip
    return environ


class Run:
    """Of a prolog or epilog (`kind`) around the attempt in `folder`: begun when this is made, in a session of
    its own, and ended after `within_s`. What it prints goes to a file there.

    As in Slurm, what it leaves in its process group is killed at its end. A daemon that has left that group
    stays, as a child of the host's init: as one of the supervisor's it would pass for a process of the job,
    whose end would never come.
    """

    def __init__(self, kind, path, environ, folder, within_s):
        self._kind, self._path, self._within_s = kind, path, within_s
        self._log = folder.at(kind + ".log")
        self._until = time.monotonic() + within_s
        prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
        try:
            self._pid = _begin(path, environ, self._log, kind == "prolog")
        except OSError:
            prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
            raise

    def to_its_end(self, wait):
        """Why it failed, as a sentence, or "". `wait(left_s)` returns when a child may have ended, or after
        that time at the latest; it may return True to give the program up."""
        try:
            return self._followed(wait)
        finally:
            prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def _followed(self, wait):
        late_s = 0
        while not self._has_ended():
            left_s = self._until - time.monotonic()
            if left_s <= 0:
                late_s = self._within_s
                break
            if wait(left_s):
                self._end()
                return ""
        return _failure(self._kind, self._path, self._end(), late_s, self._log)

    def _has_ended(self):
        """Its process id stays its own: nobody else's group has that number when it is killed."""
        return os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _end(self):
        """How it has ended, when it and all that it started in its group are killed."""
        for send in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError):
                send(self._pid, signal.SIGKILL)
        return os.waitpid(self._pid, 0)[1]


def _begin(path, environ, log, dies):
    """Its process id. With `dies` it does not outlive who starts it."""
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        if dies:
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != parent:
                os._exit(126)
        os.setsid()
        os.umask(0o022)
        null = os.open(os.devnull, os.O_RDONLY)
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        for fd, to in ((null, 0), (out, 1), (out, 2)):
            os.dup2(fd, to)
        os.chdir("/")
        signal.set_wakeup_fd(-1)
        for number in RESET:
            signal.signal(number, signal.SIG_DFL)
        os.execve(path, [path], environ)
    except OSError as error:
        os.write(2, os.strerror(error.errno).encode())
    finally:
        os._exit(126)


def _failure(kind, path, status, late_s, log):
    """What is wrong with its end, as a sentence; "" = nothing. `late_s`: it was ended after so long."""
    if late_s:
        how = "did not end within %g s" % late_s
    elif os.WIFSIGNALED(status):
        how = "was killed by signal %d" % os.WTERMSIG(status)
    elif os.WEXITSTATUS(status):
        how = "exited with code %d" % os.WEXITSTATUS(status)
    else:
        return ""
    said = _last_line(log)
    return "The %s %s on %s %s%s" % (kind, path, os.uname().nodename, how, ": " + said if said else ".")


def _last_line(log):
    try:
        with open(log, "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 4096))
            lines = file.read().decode(errors="replace").split("\n")
    except OSError:
        return ""
    said = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return "".join(char for char in said if char.isprintable())[:SAID_BYTES]
