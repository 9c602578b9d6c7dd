"""The supervisor of one job attempt on one host.

`spawn` forks it from the warm agent: no interpreter is started, so that a launch costs milliseconds. It
detaches (a session of its own, no descriptor of the agent's), becomes the reaper of everything the job
leaves behind, holds the attempt's lock, starts one process per rank as the user, and outlives the agent, its
SSH channel and the daemon. It listens to the fifo `control` in its folder, records each exit durably and
then says it to the fifo of whichever agents there are.
"""

import contextlib
import errno
import gc
import json
import os
import resource
import select
import signal
import time
import traceback

import rm_job_program
import rm_mpi
import rm_reports
import rm_stepd
from rm_become import PR_SET_CHILD_SUBREAPER, become_task, prctl, task_environment, wanted_directory
from rm_capture import Capture, Captures
from rm_cgroup import descendants, send
from rm_lease import Lease, alive_us
from rm_named import Named
from rm_signalled import SCRIPT, STEPS, receivers
from rm_spawn import Spawned
from rm_spool import SpoolError, boot_id, sentence_of, write_json

LONGEST_POLL_MS = 86_400_000
FILES_OF_RANK, FILES_OF_ALL = 4, 256  # that a supervisor has open
PROGRAM_S = 1.0  # between two looks at a prolog or epilog
STANDS_S = 0.5  # between two looks whether tasks that are to stand still do
STEPS_S = 0.02  # between two looks whether steps still run that were asked to end


def now_us():
    return time.time_ns() // 1000


def spawn(folder, group, request, user, fence, lock, events_path):
    """Fork the supervisor, which alone keeps `lock`; its process id, for the agent to reap.

    When the agent goes away first, the supervisor becomes a child of the host's init.
    """
    control = os.open(folder.at("control"), os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    pid = os.fork()
    if pid:
        os.close(control)
        os.close(lock)
        return pid
    try:
        gc.disable()  # a collection would copy the pages shared with the agent
        os.setsid()
        detach({lock, control, fence.program})
        Supervisor(folder, group, request, user, fence, control, events_path).run()
    except BaseException:
        with open(folder.at("supervisor.err"), "a") as file:
            file.write(traceback.format_exc())
    finally:
        os._exit(0)


def woken_by_children():
    """A pipe that says when a child of this process has ended: what is read, and what is written to."""
    wake, wake_in = os.pipe()
    os.set_blocking(wake_in, False)
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake_in, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return wake, wake_in


def detach(keep):
    """Nothing of the agent's but these descriptors."""
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        if fd > 2 and fd not in keep:
            with contextlib.suppress(OSError):
                # the folder's own descriptor
                os.close(fd)
    os.chdir("/")
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)


class Rank:
    """One task: its process, the pipe on which it says how its start went, and its end."""

    def __init__(self, task):
        self.task = task
        self.rank = task["rank"]
        self.idle = task["idle"]  # it holds its part of the host, and runs nothing
        self.capture = None  # of what it prints, unless it named a file for that
        self.pid = 0
        self.spawned = None  # while it is on its way to exec in our memory
        self.pipe = None
        self.said = b""
        self.failure = ""
        self.chdir = ""
        self.opened_in = ""  # the directory in which its files were opened, where that is another one
        self.started_us = None
        self.started_alive_us = None
        self.end = None  # (code, signal, ended_us, ended_alive_us)
        self.recorded = False

    def named(self, stream):
        """The file that the user named for a stream and the task opened; "" when it opened none."""
        path = self.task[stream]
        if self.failure or not path or (stream == "error" and path == self.task["output"]):
            return ""
        return os.path.join(self.opened_in or self.chdir, path)


class Supervisor:
    def __init__(self, folder, group, request, user, fence, control, events_path):
        self.folder, self.group, self.request, self.user = folder, group, request, user
        self.orders = control  # where the agent's words come from
        self.fence, self.control, self.events_path = fence, control, events_path
        self.ranks = [Rank(task) for task in request["tasks"]]
        self.why = ""
        self.begun_at = self.limit_at = self.warn_at = self.kill_at = None  # monotonic seconds
        self.warned = False
        self.frozen_at = None  # monotonic seconds, while the tasks stand still
        self.stands, self.order = False, 0  # whether they are to, and the number of that order
        self.lease = None
        if request["lease_us"]:
            self.lease = Lease(request["lease_us"], request["grace_us"], request["heard_us"])
        self.door, self.stepd = None, 0  # where the job asks for steps; the process that hears it
        self.steps_at = None  # when to look again whether a step still runs
        self.finished = False
        self.wake, self.epilog = -1, ""  # the end of its signals' pipe; how the epilog failed
        self.unrecorded = []  # exits that the disk refused
        self.sync = True  # do records of ends survive the loss of power?
        self.captures = Captures()
        self.task_files = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.named = Named(request, user, os.path.dirname(folder.path))
        self.meta = {
            "job": folder.job, "attempt": folder.attempt, "user": user.name, "uid": user.uid, "gid": user.gid,
            "supervisor": os.getpid(), "boot_id": boot_id(), "cgroup": group.path, "state": "prepared",
            "chdir": "", "tasks": {}, "note": fence.lacking(),
            "master_port": request["port"], "lease_us": request["lease_us"],
            # what the tasks have together, each is said to have: it is held until the last of them has ended
            "given": {"cpus": request["cpus_per_task"],
                      "mem_bytes": request["mem_bytes"] or request["mem_bytes_per_task"],
                      "gpus": {str(task["rank"]): task["gpus"] for task in request["tasks"]}},
        }  # fmt: skip

    def run(self):
        self.wake, wake_in = woken_by_children()
        try:
            self._run()
        finally:
            signal.set_wakeup_fd(-1)
            os.close(self.wake)
            os.close(wake_in)

    def _run(self):
        wake = self.wake
        try:
            self.fence.enclose("%d.%d" % (self.folder.job, self.folder.attempt))
            if self.fence.temporary:
                self.meta["temporary"] = self.fence.temporary
            self._allow_files()
            self._capture()
            # the intent is durable before the first process exists
            self._write_meta(sync=True)
            self._make_group()
            if self.request["batch"]:
                self.door = rm_stepd.listen(self.folder, self.user)
                rm_mpi.write_hosts(self.folder, self.request["allocation"])
        except (OSError, SpoolError) as error:
            code, sentence = sentence_of(error) if isinstance(error, OSError) else (error.code, str(error))
            self._give_up(code, sentence)
            return
        refused = self._run_program("prolog", wake)
        if refused:
            self._run_program("epilog", wake)
            self._give_up("prolog-failed", refused)
            return
        self.named.begin()
        if self.meta["state"] == "stopped":
            pass  # while the prolog ran
        elif self.request["hold"]:
            self._say({"event": "launched"})
        else:
            self._start()
        poll = select.poll()
        poll.register(self.orders, select.POLLIN)
        poll.register(wake, select.POLLIN)
        self.poll = poll
        self.captures.watch(poll)
        if self.door is not None:
            poll.register(self.door, select.POLLIN)
        for rank in self.ranks:
            if rank.pipe is not None:
                poll.register(rank.pipe, select.POLLIN)
        while not self.finished or self.unrecorded:
            ready = {fd for fd, _ in poll.poll(self._timeout_ms())}
            if wake in ready:
                os.read(wake, 4096)
            for rank in self.ranks:
                if rank.pipe in ready:
                    self._hear(rank)
            self.captures.take(ready)
            if self.door is not None and self.door.fileno() in ready and not self.stepd:
                self._hear_steps()
            if self.orders in ready:
                self._obey()
            self._check_time()
            self._reap()
            self._record_again()

    def _give_up(self, code, sentence):
        self.captures.close()
        self.group.remove()
        self.fence.remove()
        self.folder.remove()
        self._fail(code, sentence)

    def _make_group(self):
        self.group.create(self.fence.limits)
        self.fence.bind(self.group)

    def _run_program(self, kind, wake):
        """The administrator's prolog or epilog, to its end; why it failed, as a sentence, or "". Orders are
        followed meanwhile: one to stop ends a prolog."""
        path = self.request[kind]
        if not path:
            return ""
        log = self.folder.at(kind + ".log")
        within_s = self.request["program_us"] / 1e6
        late_s, until = 0, time.monotonic() + within_s
        pid = rm_job_program.begin(
            path, rm_job_program.environment(kind, self.folder, self.request, self.user), log
        )
        while True:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                break
            if kind == "prolog" and self.meta["state"] == "stopped":
                rm_job_program.kill(pid)
                os.waitpid(pid, 0)
                return ""
            if time.monotonic() >= until:
                late_s = within_s
                rm_job_program.kill(pid)
                _, status = os.waitpid(pid, 0)
                break
            left_s = min(until - time.monotonic(), PROGRAM_S)
            ready, _, _ = select.select([self.orders, wake], [], [], max(0, left_s))
            if wake in ready:
                os.read(wake, 4096)
            if self.orders in ready:
                self._obey()
            if kind == "prolog":
                self._check_time()  # of its lease: it has no limit yet
        return rm_job_program.failure(kind, path, status, late_s, log)

    def _fail(self, code, sentence):
        """Nothing of it could be begun, and nothing is left."""
        self._say({"event": "failed", "code": code, "error": sentence})

    # starting

    def _allow_files(self):
        """As many open files as the ranks need: a login's 1024 are too few for some hundred."""
        soft, hard = self.task_files
        wanted = max(soft, FILES_OF_ALL + FILES_OF_RANK * len(self.ranks))
        for most in (max(hard, wanted), hard):  # the first one is for root
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, most), most))
                return

    def _leave_files(self, mine):
        """In a task's process, which may have fewer: close what it does not need, before it is so limited."""
        for rank in self.ranks:
            if rank.pipe is not None:
                os.close(rank.pipe)
            if rank.capture is not None:
                rank.capture.leave(rank is not mine)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, self.task_files)

    def _capture(self):
        most, reserve = self.request["log_bytes"], self.request["log_reserve_bytes"]
        for rank in self.ranks:
            if not rank.task["output"] and not rank.idle:
                rank.capture = self._made_capture(rank.rank, most, reserve)
                self.captures.add(rank.capture)

    def _made_capture(self, rank, most, reserve):
        return Capture(self.folder, rank, self.user, most, reserve)

    def _start(self):
        self.meta["state"] = "running"
        for rank in self.ranks:
            if rank.idle:
                continue
            self._start_task(rank, self._may_spawn(rank))
        self.begun_at = time.monotonic()
        self._set_limit()
        self._announce([self._begun(rank) for rank in self.ranks if rank.idle])

    def _may_spawn(self, rank):
        """Is it started with nothing that only `become_task` knows?"""
        task, fence = rank.task, self.fence
        plain = rank.capture is not None and not (task["input"] or task["error"])
        return len(self.ranks) == 1 and plain and not (fence.has_view or fence.binds_tasks)

    def _start_task(self, rank, quickly):
        """Start its process, which closes the pipe when it calls exec, or ends."""
        environ = task_environment(self.folder, self.request, self.user, rank.task, self.fence.hides_gpus)
        rank.pipe, said = os.pipe()
        os.set_blocking(rank.pipe, False)
        rank.pid = self._spawn(rank, environ) if quickly else -1
        if rank.pid < 0:
            rank.spawned = None
            rank.pid = self.group.fork()
        if rank.pid == 0:
            self._leave_files(rank)
            printed = None if rank.capture is None else rank.capture.entrance
            become_task(self.folder, self.group, self.request, self.user, self.fence, rank.task, environ,
                        printed, said)  # fmt: skip
        os.close(said)
        if rank.capture is not None and rank.spawned is None:
            rank.capture.close_entrance()

    def _spawn(self, rank, environ):
        if self.user.groups is None:
            self.user.groups = os.getgrouplist(self.user.name, self.user.gid)
        script = self.folder.at("script")
        rank.spawned = Spawned(self.user, wanted_directory(self.request, self.user), rank.capture.entrance,
                               self.task_files, script, self.request["args"], environ)  # fmt: skip
        return self.group.spawn(rank.spawned)

    def _fork_instead(self, rank):
        """What failed before exec is tried again by a child that can say what is wrong."""
        if rank.end is None:
            os.waitpid(rank.pid, 0)
        rank.end, rank.said = None, b""
        self._start_task(rank, False)
        self.poll.register(rank.pipe, select.POLLIN)

    def _set_limit(self):
        """When the time limit ends the tasks, and when its signal warns them; a later one warns anew."""
        self.limit_at = self.warn_at = None
        if not self.request["time_limit_us"]:
            return
        self.limit_at = self.begun_at + self.request["time_limit_us"] / 1e6
        if self.request["warn_signal"]:
            warn_at = self.limit_at - self.request["warn_before_us"] / 1e6
            if not self.warned or warn_at > time.monotonic():
                self.warn_at = warn_at

    def _hear(self, rank):
        """The task's own words until exec closes the pipe."""
        data = os.read(rank.pipe, 65536)
        rank.said += data
        if data:
            return
        self.poll.unregister(rank.pipe)
        os.close(rank.pipe)
        rank.pipe = None
        if rank.spawned is not None:
            if rank.spawned.failed():
                self._fork_instead(rank)
                return
            rank.capture.close_entrance()
            rank.spawned = None
        for line in rank.said.splitlines():
            words = json.loads(line)
            rank.failure = words.get("failure", rank.failure)
            rank.chdir = words.get("chdir", rank.chdir)
            rank.opened_in = words.get("opened_in", rank.opened_in)
            if words.get("note", "") not in self.meta["note"]:
                self.meta["note"] = " ".join(filter(None, [self.meta["note"], words["note"]]))
        news = []
        if not rank.failure:
            rank.chdir = rank.chdir or wanted_directory(self.request, self.user)
            news = [self._begun(rank)]
        self.meta["chdir"] = self.meta["chdir"] or rank.chdir
        self._announce(news)

    @staticmethod
    def _begun(rank):
        rank.started_us, rank.started_alive_us = now_us(), alive_us()
        return {"event": "started", "rank": rank.rank, "pid": rank.pid, "started_us": rank.started_us}

    def _announce(self, news):
        """That tasks have started; and, when it was the last of them, that all have."""
        if self._all_started():
            try:
                self._write_tasks()
            except OSError as error:
                self.meta["note"] = sentence_of(error)[1]
            news.append({"event": "launched"})
        if news:
            self._say(*news)

    def _write_tasks(self):
        """What an agent must know of the tasks to read their logs."""
        tasks = {}
        for rank in self.ranks:
            out, err = rank.named("output"), rank.named("error")
            tasks[str(rank.rank)] = {
                "pid": rank.pid, "started_us": rank.started_us, "spooled": rank.capture is not None,
                "out": out, "err": err,
                **(self.named.bounds("out", rank.task["output"]) if out else {}),
                **(self.named.bounds("err", rank.task["error"]) if err else {}),
            }  # fmt: skip
        self.meta["tasks"] = tasks
        self._write_meta()

    def _write_meta(self, sync=False):
        write_json(self.folder.at("meta.json"), self.meta, sync)

    # steps

    def _hear_steps(self):
        """The first word for the step daemon; what comes later it hears itself."""
        self.poll.unregister(self.door)
        self.request["task_files"] = self.task_files
        what = (self.folder, self.group, self.request, self.user, self.fence, self._say)
        self.stepd = rm_stepd.start(self.door, *what, self._leave_all)

    def _leave_all(self):
        """In the step daemon's process: close what is the supervisor's."""
        for rank in self.ranks:
            if rank.pipe is not None:
                os.close(rank.pipe)
            if rank.capture is not None:
                rank.capture.leave(True)
        os.close(self.control)

    def _steps_run(self):
        if self.group.path:
            return bool(self.group.pids())
        return bool(descendants(self.stepd))

    def _end_steps(self):
        if self.stepd:
            rm_stepd.end(self.stepd)

    # stopping

    def _obey(self):
        for line in os.read(self.control, 65536).splitlines():
            self.follow(json.loads(line))

    def follow(self, words):
        """One order of the agent's."""
        op = words["op"]
        if op == "start":
            self._check_time()  # a lease that is over starts nothing
        if op == "start" and self.meta["state"] == "prepared":
            self.request["port"] = words.get("master_port") or self.request["port"]
            self._start()
            for rank in self.ranks:
                if rank.pipe is not None:
                    self.poll.register(rank.pipe, select.POLLIN)
        elif op == "stop":
            self._stop(words["why"], words["grace_us"])
        elif op == "requeue":
            self._stop("requeue", self.request["grace_us"])
        elif op == "freeze" and words["order"] > self.order:
            self.order, self.stands = words["order"], words["frozen"]
        elif op == "limit":
            self.request["time_limit_us"] = words["time_limit_us"]
            if self.meta["state"] == "running" and self.kill_at is None:
                self._set_limit()
        elif op == "signal" and self.meta["state"] == "running":
            self._signal(words["signal"], words.get("to", STEPS))
        elif op == "renew" and self.lease is not None:
            self.lease.renew(words["heard_us"])

    def _stand(self):
        """Let the tasks stand still or go on, as was ordered; not before they are all at their programs. What
        else freezes the group, to keep the job in its slots, must not let it go on."""
        if self.stands and self.meta["state"] == "running" and self._all_started() and self.kill_at is None:
            self.frozen_at = time.monotonic() if self.frozen_at is None else self.frozen_at
            if not self.group.freeze():
                send([pid for pid in self._processes() if pid != self.stepd], signal.SIGSTOP)
        elif self.frozen_at is not None:
            late = time.monotonic() - self.frozen_at
            self.frozen_at = None
            self.begun_at += late
            if self.limit_at is not None:
                self.limit_at += late
            if self.warn_at is not None:
                self.warn_at += late
            self.group.thaw()
            send(self._processes(), signal.SIGCONT)

    def _stop(self, why, grace_us):
        self.why = self.why or why
        self.stands = False
        if self.meta["state"] == "prepared":
            for rank in self.ranks:
                rank.end = (0, int(signal.SIGTERM), now_us(), alive_us())
            self.meta["state"] = "stopped"
            return
        deadline = time.monotonic() + grace_us / 1e6
        self.kill_at = deadline if self.kill_at is None else min(self.kill_at, deadline)
        self.limit_at = self.warn_at = None
        self._release()
        self.group.thaw()
        processes = self._processes()
        send(processes, signal.SIGTERM)
        send(processes, signal.SIGCONT)

    def _release(self):
        """The tasks that run nothing end: well, since how the job ends is not theirs to say."""
        for rank in self.ranks:
            if rank.idle and rank.end is None:
                rank.end = (0, 0, now_us(), alive_us())

    def _all_started(self):
        return all(rank.pipe is None for rank in self.ranks)

    def _warn(self):
        """The signal that the user wants before the time limit, once all tasks are at their programs: until
        then nobody could have a handler for it."""
        self.warn_at, self.warned = None, True
        self._signal(self.request["warn_signal"], SCRIPT if self.request["warn_batch"] else STEPS)

    def _signal(self, number, to):
        first = [rank.pid for rank in self.ranks if rank.pid and rank.end is None]
        send(receivers(self._processes(), first, bool(self.request["batch"]), number, to), number)

    def _processes(self):
        return self.group.pids() if self.group.path else descendants(os.getpid())

    def _kill(self):
        self.group.kill()
        self._end_steps()
        # also what could not be moved into the cgroup; a fork during the walk is met by the next round
        if self.group.path:
            send([r.pid for r in self.ranks if r.pid and r.end is None], signal.SIGKILL)
        else:
            send(descendants(os.getpid()), signal.SIGKILL)

    def _check_time(self):
        if self.stands or self.frozen_at is not None:
            self._stand()
        now = time.monotonic()
        if self.frozen_at is not None:
            self._check_lease(now)
            return
        if self.warn_at is not None and now >= self.warn_at and self._all_started():
            self._warn()
        if self.limit_at is not None and now >= self.limit_at:
            self._stop("timeout", self.request["grace_us"])
        self._check_lease(now)
        if self.kill_at is not None and now >= self.kill_at:
            self._kill()
            self.kill_at = now + 0.05  # again, until nobody is left

    def _check_lease(self, now):
        if self.lease is not None and self.lease.left_us() <= 0 and not self.finished:
            self._stop("fence", self.lease.grace_left_us())
            self.lease = None  # what is over is not renewed

    def _timeout_ms(self):
        if self.frozen_at is None:
            deadlines = [at for at in (self.limit_at, self.kill_at) if at is not None]
            if self.warn_at is not None and self._all_started():
                deadlines.append(self.warn_at)
        else:
            deadlines = [time.monotonic() + STANDS_S]
        deadlines += self.captures.due()
        if self.lease is not None:
            deadlines.append(time.monotonic() + self.lease.look_in_s())
        if self.unrecorded:
            deadlines.append(time.monotonic() + 1)
        if self.steps_at is not None:
            deadlines.append(self.steps_at)
        if not deadlines:
            return None
        # poll takes less than 25 days; a wake-up before the time looks at the clock again
        return min(max(0, min(deadlines) - time.monotonic()) * 1000 + 0.5, LONGEST_POLL_MS)

    # ending

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

    def _say(self, *events):
        """Told at once: each telling wakes the agent, and the daemon behind it."""
        say(
            self.events_path,
            b"".join(line_of(event, self.folder.job, self.folder.attempt) for event in events),
        )


def say(events_path, words):
    """Lines, of PIPE_BUF bytes together at most, to whichever agents there are."""
    try:
        fifos = os.listdir(events_path)
    except OSError:
        return  # no agent: the next one finds it on disk
    for name in fifos:
        if not name.startswith("."):
            _say_to(os.path.join(events_path, name), words)


def line_of(event, job, attempt):
    event = dict(event, job=job, attempt=attempt)
    for key in ("why", "error"):
        if key in event:
            event[key] = event[key][:600]  # six bytes each at most: the event stays below PIPE_BUF
    return json.dumps(event, ensure_ascii=False).encode(errors="replace") + b"\n"


def _say_to(fifo, words):
    try:
        fd = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ENXIO:  # its agent is dead
            with contextlib.suppress(OSError):
                os.unlink(fifo)
        return
    try:
        os.write(fd, words)
    except BlockingIOError:
        # the agent is far behind; wait for it a little, after that it will look on disk by itself
        waiting = select.poll()
        waiting.register(fd, select.POLLOUT)
        waiting.poll(2000)
        with contextlib.suppress(OSError):
            os.write(fd, words)
    except OSError:
        pass
    finally:
        os.close(fd)
