"""The supervisor of one job attempt on one host.

`spawn` forks it from the warm agent: no interpreter is started, so that a launch costs milliseconds. It
detaches (a session of its own, no descriptor of the agent's), becomes the reaper of everything the job
leaves behind, holds the attempt's lock, starts one process per rank as the user, and outlives the agent, its
SSH channel and the daemon. It listens to the fifo `control` in its folder, records each exit durably and
then says it to the fifo of whichever agents there are.

It is made of parts, each of which knows those before it: the attempt (rm_task_attempt.py), its place
(rm_task_place.py), deadlines (rm_task_time.py), the beginning of tasks (rm_task_begin.py), the job's steps
(rm_task_steps.py), orders (rm_task_orders.py), prolog and epilog (rm_task_program.py), and the end
(rm_task_end.py).
"""

import contextlib
import gc
import os
import select
import signal
import traceback

from rm_become import PR_SET_CHILD_SUBREAPER, prctl
from rm_lease import Lease
from rm_spool import SpoolError, sentence_of
from rm_task_attempt import Attempt
from rm_task_begin import Beginning
from rm_task_end import Ending
from rm_task_orders import Orders
from rm_task_place import Alone
from rm_task_program import Programs
from rm_task_steps import Steps
from rm_task_time import Deadlines


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
        attempt = Attempt(folder, group, request, user, fence)
        wake, _ = woken_by_children()
        Supervisor(attempt, Alone(attempt, control, events_path), wake).run()
    except BaseException:
        with open(folder.at("supervisor.err"), "a") as file:
            file.write(traceback.format_exc())
    finally:
        os._exit(0)


def woken_by_children():
    """A pipe that says when a child of this process has ended: what is read, and what is written to. Both
    stay open as long as the process."""
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


class Supervisor:
    """`wake`: the descriptor that says when a child has ended."""

    def __init__(self, attempt, place, wake):
        self._attempt, self._place, self._wake = attempt, place, wake
        request, lease = attempt.request, None
        if request["lease_us"]:
            lease = Lease(request["lease_us"], request["grace_us"], request["heard_us"])
        deadlines = Deadlines(attempt)
        self._beginning = Beginning(attempt, place, deadlines)
        self._steps = Steps(attempt, place)
        self._orders = Orders(attempt, place, deadlines, self._beginning, self._steps, lease)
        self._programs = Programs(attempt, place, self._orders, wake)
        self._ending = Ending(
            attempt, place, deadlines, self._beginning, self._orders, self._steps, self._programs
        )

    def follow(self, words):
        """One order of the agent's that somebody else has read."""
        self._orders.follow(words)

    def run(self):
        """Until all has ended and is recorded, or nothing could be begun."""
        at = self._attempt
        try:
            self._prepare()
        except (OSError, SpoolError) as error:
            code, sentence = sentence_of(error) if isinstance(error, OSError) else (error.code, str(error))
            self._give_up(code, sentence)
            return
        refused = self._programs.prolog()
        code, sentence = ("prolog-failed", refused) if refused else self._prepared()
        if sentence:
            self._programs.epilog()
            self._give_up(code, sentence)
            return
        at.named.begin()
        if at.state == "stopped":
            pass  # while the prolog ran
        elif at.request["hold"]:
            self._place.say({"event": "launched"})
        else:
            self._beginning.start()
        at.poll.register(self._place.inbox, select.POLLIN)
        at.poll.register(self._wake, select.POLLIN)
        at.captures.watch(at.poll)
        self._steps.watch()
        self._beginning.watch()
        while not self._ending.over:
            self._turn()

    def _prepare(self):
        at = self._attempt
        refused = at.fence.enclose("%d.%d" % (at.folder.job, at.folder.attempt))
        at.meta["note"] = " ".join(filter(None, [at.meta["note"], refused]))
        if at.fence.temporary:
            at.meta["temporary"] = at.fence.temporary
        self._beginning.allow_files()
        self._beginning.capture()
        # the intent is durable before the first process exists
        self._programs.prepare()
        self._place.write_meta(sync=True)
        self._place.make_group()
        if at.request["batch"]:
            self._steps.listen()

    def _prepared(self):
        """It may be started now; (code, sentence) where that cannot be written down."""
        at = self._attempt
        if at.state == "preparing":
            at.meta["state"] = "prepared"
            try:
                if at.request["hold"]:
                    self._place.write_meta()
            except OSError as error:
                return sentence_of(error)
        return "", ""

    def _turn(self):
        at = self._attempt
        ready = {fd for fd, _ in at.poll.poll(self._orders.timeout_ms(self._due()))}
        if self._wake in ready:
            os.read(self._wake, 4096)
        for rank in at.ranks:
            if rank.pipe in ready:
                self._beginning.hear(rank)
        at.captures.take(ready)
        self._steps.hear(ready)
        if self._place.inbox in ready:
            self._orders.obey()
        self._orders.check_time()
        at.used.look()
        self._beginning.look()
        self._place.look()
        self._ending.reap()
        self._ending.record_again()

    def _due(self):
        at = self._attempt
        others = [*at.captures.due(), *at.used.due(), *self._beginning.due(), *self._ending.due()]
        place = self._place.due()
        return others if place is None else [*others, place]

    def _give_up(self, code, sentence):
        at = self._attempt
        at.captures.close()
        at.group.remove()
        at.fence.remove()
        at.folder.remove()
        self._place.fail(code, sentence)
