"""Delivery: a job that names no output finds its log in the directory it was submitted from.

Only output of a job that its own user submitted on this machine is delivered, and never root's. The daemon
keeps the log: a failed delivery costs nothing but the copy. Who writes it, and why so, is in
docs/decisions/2026-11-22-delivery.md.
"""

from __future__ import annotations

import json
import logging
import os
import pwd
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rm.core.jobs.actions import Collect
from rm.core.jobs.state import ClusterState
from rm.core.model.logs import LogName, LogPlace
from rm.daemon.execution import deliver_as_user
from rm.daemon.execution.environment import expand
from rm.daemon.execution.launch import open_mode
from rm.errors import StoreError
from rm.file_patterns import for_each_element, for_each_task
from rm.units import umask_of

log = logging.getLogger(__name__)

PATIENCE_S = 60.0  # for a slow network file system, and a share of what is to be written
SHARE_BYTES = 256 << 20
BATCH = 50  # deliveries that are written together
AVOIDED_S = 300.0  # a directory that did not answer is not tried again for so long
PROGRAM = str(Path(__file__).with_name("deliver_as_user.py"))
HELPER = "/run/rm-deliver.sock"  # packaging/rm-deliver.socket


@dataclass(frozen=True, slots=True)
class Delivery:
    """Logs of ranks to deliver: `files` holds (rank, file name in `directory`). `whole`: with those of the
    earlier attempts before them, as a file of --output has them. `umask` is the submitter's."""

    user: str
    directory: str
    files: tuple[tuple[int, str], ...]
    whole: bool = False
    umask: int = 0o022

    @property
    def place(self) -> tuple[str, int]:
        return self.directory, self.umask


def deliveries(state: ClusterState, here: str, pattern: str) -> Callable[[Collect], Delivery | None]:
    """What a collection delivers, by the leader's state; `here` is this machine's host name, `pattern`
    jobs.deliver of rm.toml."""

    def delivery_of(action: Collect) -> Delivery | None:
        job = state.jobs.get(action.job)
        if job is None or not job.state.final or job.attempt != action.attempt:
            return None  # it will run again
        spec, host = job.spec, state.hosts.get(action.host)
        if not (pattern and spec.deliver) or spec.output or spec.submit_host != here or host is None:
            return None
        if not spec.chdir:
            return None
        each = pattern if job.array_task is None else for_each_element(pattern)
        each = for_each_task(each) if spec.ntasks > 1 and not spec.runs_once else each
        tasks = job.placement.on(action.host) if job.placement is not None else ()
        named = ((t.rank, expand(each, job, t, host)) for t in tasks if t.rank in action.ranks)
        # a file of that directory, for any pattern
        files = tuple((rank, name.replace("/", "_")) for rank, name in named)
        return Delivery(spec.user, spec.chdir, files, open_mode(job) == "append", umask_of(dict(spec.env)))

    return delivery_of


Done = Callable[[str], None]
Waiting = tuple[Delivery, int, int, Done]  # with job and attempt
# number of its delivery, of which attempts, their size in bytes, its name in the directory
Log = tuple[int, tuple[LogName, ...], int, str]
ATTEMPTS_MAX = 50  # of which a file holds logs: the newest


class Deliverer:
    """Carries deliveries out, for each user by processes, one at a time, that can be given up.

    A directory that hangs (a file system that a user serves, a dead file server) costs its owner's deliveries
    time and nobody else's: each user has a thread of his own while there is something to deliver.

    Args:
        logs: where the logs are.
        pattern: jobs.deliver of rm.toml, which all names must fit.
        helper: the socket of the helper that writes as other users where the daemon is not root.
    """

    def __init__(
        self, logs: LogPlace, pattern: str, helper: str = HELPER, patience_s: float = PATIENCE_S
    ) -> None:
        self._logs = logs
        self._pattern, self._helper, self._patience_s = pattern, helper, patience_s
        self._waiting: dict[str, deque[Waiting]] = {}
        self._avoided: dict[tuple[str, str], float] = {}  # (user, directory) -> monotonic seconds
        self._lock = threading.Lock()
        self._closed = False

    def submit(self, delivery: Delivery, job: int, attempt: int, done: Done) -> None:
        """Deliver the attempt's logs that exist (an empty one does not) soon; `done` then gets "" or a
        sentence that says why not, in another thread."""
        with self._lock:
            if self._closed:
                return
            waiting = self._waiting.get(delivery.user)
            if waiting is not None:
                waiting.append((delivery, job, attempt, done))
                return
            self._waiting[delivery.user] = deque([(delivery, job, attempt, done)])
        threading.Thread(
            target=self._work, args=(delivery.user,), name=f"deliver-{delivery.user}", daemon=True
        ).start()

    def close(self) -> None:
        """Begin no more; what was not delivered is not done."""
        with self._lock:
            self._closed = True

    def _work(self, user: str) -> None:
        while True:
            with self._lock:
                waiting = self._waiting[user]
                if not waiting or self._closed:
                    del self._waiting[user]
                    return
                # those that wait for one place share a process, which takes longer to start than to write
                alike = [waiting.popleft()]
                while waiting and waiting[0][0].place == alike[0][0].place and len(alike) < BATCH:
                    alike.append(waiting.popleft())
            for (delivery, _, _, done), why in zip(alike, self._carry_out(alike), strict=True):
                if why:
                    why = f"the output was not delivered to {delivery.directory}: {why}; `rmx logs` has it"
                done(why)

    def _carry_out(self, alike: Sequence[Waiting]) -> list[str]:
        """Deliver to one directory of one user: of each delivery "", or why not all of it was written."""
        told = [""] * len(alike)
        try:
            found: list[Log] = []
            for number, (delivery, job, attempt, _) in enumerate(alike):
                first = max(1, attempt - ATTEMPTS_MAX + 1) if delivery.whole else attempt
                for rank, name in delivery.files:
                    names = [LogName(job, each, rank, "out") for each in range(first, attempt + 1)]
                    sizes = {name: size for name in names if (size := self._logs.size(name)) is not None}
                    if sizes:
                        found.append((number, tuple(sizes), sum(sizes.values()), name))
            for some in _shares(found):
                for (number, *_), why in zip(some, self._ask(alike[0][0], some), strict=True):
                    told[number] = told[number] or why
        except OSError as error:
            return [error.strerror or str(error)] * len(alike)
        except StoreError as error:
            return [str(error)] * len(alike)
        except Exception:  # the next ones must not suffer for it
            log.exception("a delivery to %s failed", alike[0][0].directory)
            return ["a defect of rm; the daemon's log has the details"] * len(alike)
        return told

    def _ask(self, delivery: Delivery, found: Sequence[Log]) -> list[str]:
        """Of each log "", or why it could not be written."""
        place, now = (delivery.user, delivery.directory), time.monotonic()
        if now < self._avoided.get(place, 0.0):
            return ["the directory did not answer a short while ago"] * len(found)
        request = {
            "user": delivery.user,
            "directory": delivery.directory,
            "names": [name for *_, name in found],
            "logs": [len(logs) for _, logs, _, _ in found],
            "umask": delivery.umask,
        }
        text = json.dumps(request, ensure_ascii=False).encode(errors="replace")
        files: list[int] = []
        door, child = self._door(delivery.user)
        try:
            files += (self._logs.open(log_name) for _, logs, _, _ in found for log_name in logs)
            socket.send_fds(door, [text], files)
            answer = door.recv(deliver_as_user.ANSWER_MAX)
        except TimeoutError:
            self._avoided = {other: until for other, until in self._avoided.items() if now < until}
            self._avoided[place] = time.monotonic() + AVOIDED_S
            return [f"the directory did not answer for {self._patience_s:g} s"] * len(found)
        finally:
            door.close()
            for fd in files:
                os.close(fd)
            if child is not None:
                _part_with(child)
        told = json.loads(answer) if answer else ["the process that writes it ended without a report"]
        return told if len(told) == len(found) else [str(told[0])] * len(found)

    def _door(self, user: str) -> tuple[socket.socket, subprocess.Popen[bytes] | None]:
        """A connection to a process that can write as the user; the process, if it is a child of ours."""
        if os.geteuid() != 0 and not _is_me(user):
            door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            door.settimeout(self._patience_s)
            try:
                door.connect(self._helper)
            except OSError as error:
                door.close()
                raise OSError(
                    error.errno,
                    "the daemon is not root, and its helper rm-deliver.socket cannot be used "
                    f"({error.strerror or error})",
                ) from None
            return door, None
        door, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        door.settimeout(self._patience_s)
        with theirs:
            child = subprocess.Popen(
                [sys.executable, "-I", "-S", PROGRAM, self._pattern],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={},
            )
        return door, child


def _shares(found: Sequence[Log]) -> Iterator[list[Log]]:
    """As many logs at a time as one process takes, and writes in time."""
    share: list[Log] = []
    left = opened = 0
    for one in found:
        _, logs, size, _ = one
        if share and (size > left or opened + len(logs) > deliver_as_user.FILES_MAX):
            yield share
            share = []
        left = SHARE_BYTES - size if not share else left - size
        opened = len(logs) if not share else opened + len(logs)
        share.append(one)
    if share:
        yield share


def _is_me(user: str) -> bool:
    try:
        return pwd.getpwnam(user).pw_uid == os.geteuid()
    except KeyError:
        return False


def _part_with(child: subprocess.Popen[bytes]) -> None:
    """It has answered, or hangs: what cannot even be killed is not waited for."""
    try:
        child.wait(1.0)
    except subprocess.TimeoutExpired:
        child.kill()
        with suppress(subprocess.TimeoutExpired):
            child.wait(1.0)
