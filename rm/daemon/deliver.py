"""Delivery: a job that names no output finds its log in the directory it was submitted from.

The copy is made by a short-lived process that becomes the submitting user first, so it can write exactly
where the user can. The spool keeps the log: a failed delivery costs nothing but the copy.
"""

from __future__ import annotations

import os
import pwd
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rm.core.actions import Collect
from rm.core.state import ClusterState
from rm.daemon.environment import expand

PATIENCE_S = 60.0  # for a slow network file system

# WHO DIRECTORY FD:NAME…. It starts as the daemon's user, since others may not be able to reach this
# interpreter, and becomes the job's before it touches anything. Written aside and renamed, so that neither
# a link of that name is followed nor half a log seen. Root writes only where nobody else could lay a trap.
_COPY = """
import os, sys
try:
    if sys.argv[1]:
        uid, *groups = map(int, sys.argv[1].split(","))
        os.setgroups(groups)
        os.setgid(groups[0])
        os.setuid(uid)
    at = os.open(sys.argv[2], os.O_RDONLY | os.O_DIRECTORY)
    about = os.fstat(at)
    if os.getuid() == 0 and (about.st_uid != 0 or about.st_mode & 0o022):
        sys.exit("root delivers only into directories that nobody else may write to")
    for pair in sys.argv[3:]:
        fd, name = pair.split(":", 1)
        aside = ".%s.%d" % (name, os.getpid())
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        out = os.open(aside, flags, 0o644, dir_fd=at)
        try:
            with open(int(fd), "rb") as source, open(out, "wb") as copy:
                while data := source.read(1 << 20):
                    copy.write(data)
            os.rename(aside, name, src_dir_fd=at, dst_dir_fd=at)
        except BaseException:
            os.unlink(aside, dir_fd=at)
            raise
except OSError as error:
    sys.exit(error.strerror or str(error))
"""


@dataclass(frozen=True, slots=True)
class Delivery:
    """Logs of ranks to deliver: `files` holds (rank, file name in `directory`)."""

    user: str
    directory: str
    files: tuple[tuple[int, str], ...]

    def carry_out(self, log_of: Callable[[int], Path]) -> str:
        """Copy the logs that exist (an empty one does not); "" or a sentence that says why not."""
        found = [(log_of(rank), name) for rank, name in self.files if log_of(rank).exists()]
        if not found:
            return ""
        try:
            self._copy(found)
        except KeyError:
            why = f"there is no user {self.user} on this machine"
        except (OSError, subprocess.SubprocessError) as error:
            why = str(error)
        else:
            return ""
        return f"the output was not delivered to {self.directory}: {why}; `rmx logs` has it"

    def _copy(self, found: list[tuple[Path, str]]) -> None:
        account = pwd.getpwnam(self.user)
        who = ""
        if os.geteuid() == 0:
            groups = [g for g in os.getgrouplist(self.user, account.pw_gid) if g != account.pw_gid]
            who = ",".join(map(str, (account.pw_uid, account.pw_gid, *groups)))
        elif os.geteuid() != account.pw_uid:
            raise PermissionError("the daemon does not run as root and cannot write as another user")
        opened: list[int] = []
        try:
            opened += (os.open(log, os.O_RDONLY | os.O_CLOEXEC) for log, _ in found)
            pairs = [f"{fd}:{name}" for fd, (_, name) in zip(opened, found, strict=True)]
            done = subprocess.run(
                [sys.executable, "-I", "-S", "-c", _COPY, who, self.directory, *pairs],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=opened,
                cwd="/",
                env={},
                umask=0o022,
                timeout=PATIENCE_S,
                check=False,
            )
        finally:
            for fd in opened:
                os.close(fd)
        if done.returncode:
            raise OSError(done.stderr.decode(errors="replace").strip()[-200:] or "the copy failed")


def deliveries(state: ClusterState, here: str) -> Callable[[Collect], Delivery | None]:
    """What a collection delivers, by the leader's state; `here` is this machine's host name."""

    def delivery_of(action: Collect) -> Delivery | None:
        job = state.jobs.get(action.job)
        if job is None or not job.state.final or job.attempt != action.attempt:
            return None  # it will run again
        spec, host = job.spec, state.hosts.get(action.host)
        if not spec.deliver or spec.output or spec.submit_host != here or not spec.chdir or host is None:
            return None
        pattern = for_each_task(spec.deliver) if spec.ntasks > 1 else spec.deliver
        tasks = job.placement.on(action.host) if job.placement is not None else ()
        named = ((t.rank, expand(pattern, job, t, host)) for t in tasks if t.rank in action.ranks)
        # a file of that directory, whatever the pattern holds
        files = tuple((rank, name.replace("/", "_")) for rank, name in named)
        return Delivery(spec.user, spec.chdir, files)

    return delivery_of


def for_each_task(pattern: str) -> str:
    """`rm-%j.out` to `rm-%j.%t.out`: the tasks of a job must not share a name."""
    if re.search(r"%\d*t", pattern):
        return pattern
    stem, suffix = os.path.splitext(pattern)
    return f"{stem}.%t{suffix}"
