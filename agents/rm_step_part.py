"""The part of a step on one host: its tasks, and what they read and write.

A process of its own, outside the job's control group, which its tasks are in. It talks with srun in frames
over one socket: locally srun's own, from another host the end of a stream that rm_stepd.py carries. It ends
with srun, and its tasks with it.
"""

import contextlib
import errno
import fcntl
import json
import os
import resource
import select
import signal
import socket
import struct
import termios
import time

import rm_around_task
import rm_container
import rm_cpu_bind
import rm_named_container
import rm_sockets
import rm_step_container
import rm_step_limits
from rm_become import PR_SET_PDEATHSIG, enter_directory, leave_files, prctl
from rm_cgroup import descendants, send
from rm_step_entered import CONTAINER
from rm_step_environment import seen_gpus, task_environment
from rm_step_frames import (
    ALL,
    END_OF_INPUT,
    ENDED,
    ERRORS,
    FRAME_BYTES,
    INPUT,
    INPUT_BYTES,
    LEFT_S,
    OUTPUT,
    PMI,
    REQUEST,
    SIGNAL,
    SIZE,
    TAKEN,
    WINDOW,
    frame,
    frames,
)
from rm_step_gpus import StepGpus
from rm_step_task import Task
from rm_step_used import StepMeter
from rm_used_now import of_tasks

AHEAD_BYTES = 256 << 10  # of output that srun has not taken: until then tasks are not read
TASKS_MAX = 4096  # of a step on one host
MEMORY_BYTES = 64 << 20  # …, and more for each task
MEMORY_OF_TASK_BYTES = 512 << 10


class Part:
    """`request` is the launch of the attempt, `group` the step's control group here; `tell_used` hears what
    the step uses here."""

    def __init__(self, sock, group, request, user, fence, folder, bounds, tell_used):
        self.sock, self.group, self.request, self.user = sock, group, request, user
        self.meter, self.tell_used = StepMeter(group, self._processes), tell_used
        self.fence, self.folder, self.bounds = fence, folder, bounds
        self.tasks = []
        self.inbox, self.outbox = bytearray(), bytearray()
        self.asked = None
        # all tasks have ended: what stands in their streams is all that is still read
        self.last_words = False
        self.gone = False  # srun is
        self.relays = False  # do the first processes pass signals on to the tasks, in containers?
        self.poll = select.poll()
        self.watched = {}

    def run(self):
        self.sock.setblocking(False)
        self.bounds.impose(MEMORY_BYTES)
        wake, wake_in = os.pipe()
        for fd in (wake, wake_in):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(wake_in, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        try:
            self._obey()  # what came together with the connection
            while not self._over():
                self._watch(wake)
                ready = dict(self.poll.poll(self._patience_ms()))
                if wake in ready:
                    os.read(wake, 4096)
                if self.sock.fileno() in ready:
                    self._hear()
                for task in self.tasks:
                    self._feed(task)
                    for fd in [fd for fd in task.streams if fd in ready]:
                        self._read(task, fd)
                self._reap()
                for task in self.tasks:
                    self._tell_end(task)
                self.meter.look_at_gpus()
                if self.meter.due():
                    self.tell_used(self.meter.look())
                self._flush()
        finally:
            self.group.kill()
            send([task.pid for task in self.tasks if task.pid and task.status is None], signal.SIGKILL)
            self._remove_group()

    def _processes(self):
        """What its tasks use that run now."""
        pids = self.group.pids() if self.group.path else descendants(os.getpid())
        return of_tasks(pids)

    def _over(self):
        if self.gone:
            return True
        return self.asked is not None and all(task.told for task in self.tasks) and not self.outbox

    def _patience_ms(self):
        now = time.monotonic()
        left_s = [task.left_until - now for task in self.tasks if task.left_until > now and not task.told]
        return min([1.0, *left_s]) * 1000 + 1

    def _watch(self, wake):
        wanted = {wake: select.POLLIN}
        # a peer that takes nothing is not read any more; its end is still heard
        hears = select.POLLIN if len(self.outbox) < AHEAD_BYTES else 0
        wanted[self.sock.fileno()] = hears | (select.POLLOUT if self.outbox else 0)
        for task in self.tasks:
            has_room = len(self.outbox) < AHEAD_BYTES
            heard = [fd for fd in task.streams if has_room or not self._passes_on(task, fd)]
            wanted.update(dict.fromkeys(heard, select.POLLIN))
            if task.stdin >= 0 and task.input:
                wanted[task.stdin] = wanted.get(task.stdin, 0) | select.POLLOUT
        for fd in self.watched.keys() - wanted.keys():
            with contextlib.suppress(KeyError, OSError):
                self.poll.unregister(fd)
        for fd, events in wanted.items():
            if self.watched.get(fd) != events:
                self.poll.register(fd, events)
        self.watched = wanted

    def _forget(self, fd):
        if self.watched.pop(fd, None) is not None:
            self.poll.unregister(fd)
        os.close(fd)

    # srun's side

    def _hear(self):
        data = rm_sockets.hear(self.sock, 1 << 18)
        if data is None:
            return
        if not data:
            self.gone = True  # nobody is left to tell: the step ends
            return
        self.inbox += data
        self._obey()

    def _obey(self):
        for kind, rank, body in frames(self.inbox):
            if self.gone:
                return
            if kind != REQUEST and len(body) > FRAME_BYTES:
                self.gone = True  # it is no srun
            elif kind == REQUEST and self.asked is None:
                self._start(json.loads(body))
            elif kind == SIGNAL:
                self._signal(rank)
            elif kind == PMI:
                self._answer(rank, body)
            elif kind == WINDOW and len(body) == SIZE.size:
                self._resize(rank, *SIZE.unpack(body))
            elif kind in (INPUT, END_OF_INPUT):
                for task in self.tasks:
                    if rank in (ALL, task.rank):
                        task.input += body
                        self.gone = self.gone or len(task.input) > 2 * INPUT_BYTES  # it is no srun
                        task.input_ends = task.input_ends or kind == END_OF_INPUT

    def _answer(self, rank, data):
        for task in self.tasks:
            if task.rank == rank and task.pmi >= 0:
                with contextlib.suppress(OSError):  # it has gone, or does not wait for an answer
                    os.write(task.pmi, data)

    def _resize(self, rank, rows, columns):
        for task in self.tasks:
            if task.rank == rank and task.terminal and task.stdin >= 0:
                with contextlib.suppress(OSError):
                    fcntl.ioctl(task.stdin, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))

    def _signal(self, number):
        if not 0 < number < signal.NSIG:
            return
        if self.relays and number not in (signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT):
            send([task.pid for task in self.tasks if task.status is None], number)
            return
        pids = self.group.pids() if self.group.path else [t.pid for t in self.tasks if t.status is None]
        send(pids, number)

    def _flush(self):
        if not rm_sockets.say(self.sock, self.outbox):
            self.gone = True

    # the tasks' side

    def _start(self, asked):
        self.asked = rm_around_task.asked_for(asked)
        if len(asked["ranks"]) > TASKS_MAX:
            raise ValueError("too many tasks for one host")
        self.bounds.impose(MEMORY_BYTES + MEMORY_OF_TASK_BYTES * len(asked["ranks"]))
        if (asked.get("container") or {}).get("name"):
            rm_named_container.mark(self.folder)
        self.relays = bool(asked.get("container")) and rm_step_container.passes_signals()
        mine = self.request["tasks"][0]["gpus"]
        seen = {mine[n] for positions in asked["gpus"] for n in positions}
        self.meter.begin(StepGpus(self.folder, seen))
        for at, rank in enumerate(asked["ranks"]):
            task = Task(rank)
            self.tasks.append(task)
            theirs = self._open(task)
            mine, its = socket.socketpair() if asked.get("pmi") else (None, None)
            # what ends the step meanwhile waits until the task no longer ignores it
            before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            try:
                task.pid = self.group.fork()
                if task.pid == 0:
                    task.pmi = its.detach() if its else -1
                    self._become(task, at, theirs)
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
            for fd in set(theirs):
                os.close(fd)
            if mine:
                its.close()
                task.pmi = mine.detach()
                task.streams[task.pmi] = PMI
            for fd in (task.stdin, *task.streams):
                os.set_blocking(fd, False)

    def _open(self, task):
        """The streams of the task; the ends that are its own."""
        if self.asked.get("terminal") and task.rank == 0:
            task.stdin, near = os.openpty()
            task.terminal, task.streams = True, {task.stdin: OUTPUT}
            return [near] * 3
        ends = [os.pipe() for _ in range(3)]
        task.stdin = ends[0][1]
        task.streams = {ends[1][0]: OUTPUT, ends[2][0]: ERRORS}
        return [ends[0][0], ends[1][1], ends[2][1]]

    def _feed(self, task):
        """Input, as far as the task takes it."""
        if task.stdin < 0:
            task.input.clear()
            return
        taken, reads = rm_sockets.feed(task.stdin, task.input, FRAME_BYTES)
        task.input_ends |= not reads
        if taken:
            self.outbox += frame(TAKEN, task.rank, str(taken).encode())
        if task.input_ends and not task.input and not task.terminal:
            self._forget(task.stdin)
            task.stdin = -1

    def _read(self, task, fd):
        try:
            data = os.read(fd, FRAME_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno != errno.EIO:  # of a terminal that no program has open any more
                raise
            data = b""
        if data:
            task.owed[fd] = task.owed.get(fd, 0) - len(data)
            if self._passes_on(task, fd):
                self.outbox += frame(task.streams[fd], task.rank, data)
            return
        del task.streams[fd]
        task.pmi = -1 if fd == task.pmi else task.pmi
        task.stdin = -1 if fd == task.stdin else task.stdin
        self._forget(fd)

    def _passes_on(self, task, fd):
        """What a task has left behind speaks for it, but not as a rank of PMI, nor behind the last end.
        An older srun takes a part that says such a thing for a liar: what comes is dropped for it."""
        if not task.told:
            return True
        hears = task.streams[fd] != PMI and bool(self.asked.get("hears_left"))
        return hears and not all(one.told for one in self.tasks)

    def _reap(self):
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for task in self.tasks:
                if task.pid == pid:
                    task.status = status
                    self.meter.reaped(task.rank, usage)
                    if task.terminal:
                        self._hear_the_last(task)
                    elif task.stdin >= 0:
                        self._forget(task.stdin)
                        task.stdin = -1
                    task.count_owed()
                    task.left_until = time.monotonic() + LEFT_S

    def _hear_the_last(self, task):
        """What stands in its terminal; what runs on in the background does not keep the step."""
        fd, poll = task.stdin, select.poll()
        if fd >= 0:
            poll.register(fd, select.POLLIN)
        while fd in task.streams and poll.poll(0):
            self._read(task, fd)
        if fd in task.streams:
            del task.streams[fd]
            task.stdin = -1
            self._forget(fd)

    def _tell_end(self, task):
        """Its end comes after all that it wrote. What it leaves behind is waited for a moment; then it keeps
        neither srun from hearing of the end, nor, when all tasks have ended, the step. It is heard until
        then."""
        if task.status is None or task.told:
            return
        if task.streams and (time.monotonic() < task.left_until or task.owes()):
            return
        if all(one.told for one in self.tasks if one is not task):
            if not self.last_words:
                self.last_words = True
                for one in self.tasks:
                    one.count_owed()
            if any(one.owes() for one in self.tasks):
                return
        task.told = True
        if all(one.told for one in self.tasks):  # before srun hears of it, and closes the step's accounting
            self.tell_used(self.meter.end())
        signalled = os.WIFSIGNALED(task.status)
        code = 0 if signalled else os.WEXITSTATUS(task.status)
        number = os.WTERMSIG(task.status) if signalled else 0
        self.outbox += frame(ENDED, task.rank, b"%d %d" % (code, number))

    def _remove_group(self):
        for _ in range(100):
            left = self.group.pids()
            self._reap()
            if not left and all(task.status is not None for task in self.tasks):
                if self.gone:  # it was ended with srun
                    self.tell_used(self.meter.end())
                if self.group.remove():
                    return
            self.group.kill()
            select.select([], [], [], 0.01)

    # a task, between fork and exec

    def _become(self, task, at, streams):
        host = os.uname().nodename
        try:
            os.setsid()
            for target, fd in enumerate(streams):  # first: what goes wrong is said there
                os.dup2(fd, target)
            self.group.enter()
            leave_files(task.pmi, *self.fence.views())
            argv = self.asked["commands"][at] if self.asked.get("commands") else self.asked["argv"]
            os.umask(self.asked.get("umask", 0o022) & 0o777)
            if self.fence.has_view:
                self.fence.enter_view()
            resource.setrlimit(resource.RLIMIT_NOFILE, self.request["task_files"])
            self.bounds.lift()
            self.fence.bind_task()
            rm_step_limits.take(self.asked.get("limits", {}))
            gpus = seen_gpus(self.asked, self.request, self.fence)
            environ = task_environment(self.asked, self.request, self.user, self.fence, self.folder, at, gpus)
            if task.pmi >= 0:
                os.set_inheritable(task.pmi, True)
                environ.update(PMI_FD=str(task.pmi), PMI_RANK=str(task.rank), PMI_SIZE=str(self.asked["pmi"]))
            if task.terminal:
                fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            self._bind(task, at, host)
            if self.asked.get("container"):
                rm_container.keep_folder(self.user)
            if os.getuid() == 0:
                for fd in range(3):
                    gid = -1 if task.terminal else self.user.gid
                    os.fchown(fd, self.user.uid, gid)  # for a task that opens /dev/stdout
                os.initgroups(self.user.name, self.user.gid)
                os.setgid(self.user.gid)
                os.setuid(self.user.uid)
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            wanted = {"chdir": self.asked["chdir"], "chdir_required": False}
            enter_directory(wanted, self.user, lambda words: _say_where(host, task.rank, words))
            for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            alone = self.relays or not self.group.path  # do signals reach the first process alone?
            environ = rm_around_task.surrounded(self.asked, environ, host, task.rank, alone)
            if self.asked.get("container"):
                argv = self._in_container(task, gpus[at], argv, environ)
            os.execvpe(argv[0], argv, environ)
        except OSError as error:
            _write(2, "srun: error: %s: task %d: %s: %s\n"
                   % (host, task.rank, argv[0], os.strerror(error.errno or 0)))  # fmt: skip
            os._exit(error.errno if error.errno in (errno.ENOENT, errno.EACCES) else 1)
        except BaseException as error:
            _write(2, "srun: error: %s: task %d could not be started: %s\n" % (host, task.rank, error))
        finally:
            os._exit(1)

    def _in_container(self, task, gpus, argv, environ):
        step = self.asked["step_env"]["SLURM_STEP_ID"]
        words = rm_step_container.command(self.asked["container"], self.folder, step, task.rank, argv,
                                          environ, gpus, task.terminal)  # fmt: skip
        environ[CONTAINER] = rm_step_container.runtime()
        return words

    def _bind(self, task, at, host):
        """To the processors that --cpu-bind names."""
        asked, usable = self.asked.get("cpu_bind"), os.sched_getaffinity(0)
        if not asked:
            return  # of an older srun
        cpus, note = rm_cpu_bind.chosen(asked, at, len(self.asked["ranks"]), self.fence.cores, usable)
        if note and at == 0:
            _write(2, "srun: warning: %s: %s.\n" % (host, note))
        if set(cpus) != usable:
            os.sched_setaffinity(0, cpus)
        if asked["verbose"]:
            mask = sum(1 << cpu for cpu in cpus)
            words = (host, task.rank, at, os.getpid(), mask)
            _write(2, "cpu-bind=MASK - %s, task %2d %2d [%d]: mask 0x%x set\n" % words)


def _say_where(host, rank, words):
    if "note" in words:
        _write(2, "srun: error: %s: task %d: %s\n" % (host, rank, words["note"]))


def _write(fd, text):
    with contextlib.suppress(OSError):
        os.write(fd, text.encode(errors="replace"))
