"""The supervisor of one job attempt on one host.

`spawn` forks it from the warm agent: no interpreter is started, so that a launch costs milliseconds. It
detaches (a session of its own, no descriptor of the agent's), becomes the reaper of everything the job
leaves behind, holds the attempt's lock, starts one process per rank as the user, and outlives the agent, its
SSH channel and the daemon. It listens to the fifo `control` in its folder, records each exit durably and
then says it to the fifo of whichever agents there are.
"""

import contextlib
import gc
import os
import resource
import select
import signal
import time
import traceback

import rm_container
import rm_job_program
import rm_mpi
import rm_stepd
from rm_become import PR_SET_CHILD_SUBREAPER, prctl
from rm_capture import Captures
from rm_cgroup import descendants
from rm_lease import Lease
from rm_named import Named
from rm_news import line_of, say
from rm_rank import Rank
from rm_spool import SpoolError, boot_id, sentence_of
from rm_task_begin import Beginning
from rm_task_end import Ending
from rm_task_orders import Orders

PROGRAM_S = 1.0  # between two looks at a prolog or epilog


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


class Supervisor(Beginning, Orders, Ending):
    def __init__(self, folder, group, request, user, fence, control, events_path):
        self.folder, self.group, self.request, self.user = folder, group, request, user
        self.orders = control  # where the agent's words come from
        self.fence, self.control, self.events_path = fence, control, events_path
        self.ranks = [Rank(task) for task in request["tasks"]]
        self.why = ""
        # do the first processes pass signals on to the tasks, which would have them twice?
        self.relays = bool(request["container"]) and rm_container.passes_signals(rm_container.found()[0])
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
            "chdir": "", "tasks": {}, "note": fence.lacking(), "cores": fence.cores,
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

    def _say(self, *events):
        """Told at once: each telling wakes the agent, and the daemon behind it."""
        say(
            self.events_path,
            b"".join(line_of(event, self.folder.job, self.folder.attempt) for event in events),
        )
