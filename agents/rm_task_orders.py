"""What a supervisor is ordered while its tasks run, and what their time orders: limits, signals, ends."""

import signal
import time

from rm_cgroup import send
from rm_lease import alive_us
from rm_news import now_us
from rm_signalled import SCRIPT, STEPS, receivers

LONGEST_POLL_MS = 86_400_000
STANDS_S = 0.5  # between two looks whether tasks that are to stand still do


class Orders:
    """`lease`: None where the attempt may run without hearing of its daemon."""

    def __init__(self, attempt, place, deadlines, beginning, steps, lease):
        self._attempt, self._place, self._deadlines = attempt, place, deadlines
        self._beginning, self._steps, self._lease = beginning, steps, lease
        self._stands, self._order = False, 0  # whether the tasks are to stand still; the number of that order
        self._frozen_at = None  # monotonic seconds, while they do
        self._grace_us = None  # of a stop that comes after a warning

    def obey(self):
        self._place.obey(self.follow)

    def follow(self, words):
        """One order of the agent's."""
        at, op = self._attempt, words["op"]
        if op == "start":
            self.check_time()  # a lease that is over starts nothing
        if op == "start" and at.state == "prepared":
            at.request["port"] = words.get("master_port") or at.request["port"]
            self._beginning.start()
            self._beginning.watch()
        elif op == "stop":
            self._end(words["why"], words["grace_us"], words.get("warn_us", 0))
        elif op == "requeue" and self._deadlines.kill_at is None:
            # a handler of the SIGTERM that it leads to asks for it again, and would hear one more each time
            self._stop("requeue", at.request["grace_us"])
        elif op == "freeze" and words["order"] > self._order:
            self._order, self._stands = words["order"], words["frozen"]
        elif op == "limit":
            at.request["time_limit_us"] = words["time_limit_us"]
            if at.state == "running" and self._deadlines.kill_at is None:
                self._deadlines.set_limit()
        elif op == "signal" and at.state == "running":
            self._signal(words["signal"], words.get("to", STEPS))
        elif op == "open" and at.state == "running":
            self._steps.open()
        elif op == "renew" and self._lease is not None:
            self._lease.renew(words["heard_us"])

    def check_time(self):
        """Do what is due: let the tasks stand still, warn, stop or kill them."""
        due = self._deadlines
        if self._stands or self._frozen_at is not None:
            self._stand()
        now = time.monotonic()
        if self._frozen_at is not None:
            self._check_lease()
            return
        if due.warns(now):
            self._warn()
        if due.limit_at is not None and now >= due.limit_at:
            own = self._attempt.request["grace_us"]
            self._stop("timeout", own if self._grace_us is None else self._grace_us)
        self._check_lease()
        if due.kill_at is not None and now >= due.kill_at:
            self.kill()

    def timeout_ms(self, others):
        """How long nothing is due, neither here nor at the instants `others`; None: for ever."""
        if self._frozen_at is None:
            at = self._deadlines.ahead()
        else:
            at = [time.monotonic() + STANDS_S]
        at += others
        if self._lease is not None:
            at.append(time.monotonic() + self._lease.look_in_s())
        if not at:
            return None
        # poll takes less than 25 days; a wake-up before the time looks at the clock again
        return min(max(0, min(at) - time.monotonic()) * 1000 + 0.5, LONGEST_POLL_MS)

    def end_rest(self):
        """All tasks have ended: what else is left of the attempt is killed, later again until nothing is."""
        self._attempt.group.thaw()
        self.kill()

    def kill(self):
        at = self._attempt
        at.group.kill()
        self._steps.end()
        # also what could not be moved into the cgroup; a fork during the walk is met by the next round
        send(at.first_processes() if at.group.path else at.processes(), signal.SIGKILL)
        self._deadlines.kill_again()

    def _stand(self):
        """Let the tasks stand still or go on, as was ordered; not before they are all at their programs. What
        else freezes the group, to keep the job in its slots, must not let it go on."""
        at, now = self._attempt, time.monotonic()
        may = at.state == "running" and at.all_started() and self._deadlines.kill_at is None
        if self._stands and may:
            self._frozen_at = now if self._frozen_at is None else self._frozen_at
            if not at.group.freeze():
                send([pid for pid in at.processes() if pid != self._steps.daemon], signal.SIGSTOP)
        elif self._frozen_at is not None:
            self._deadlines.delay(now - self._frozen_at)
            self._frozen_at = None
            at.group.thaw()
            send(at.processes(), signal.SIGCONT)

    def _end(self, why, grace_us, warn_us):
        """Stop the tasks, at once or so long after their own signal; said again it changes nothing."""
        at, due = self._attempt, self._deadlines
        if not (warn_us and at.request["warn_signal"] and at.state == "running" and due.kill_at is None):
            self._stop(why, grace_us)
            return
        self._stands = False
        self._stand()
        if due.end_within(warn_us / 1e6):
            at.why, self._grace_us = at.why or why, grace_us
            self._warn()

    def _stop(self, why, grace_us):
        at = self._attempt
        at.why = at.why or why
        self._stands = False
        if at.state in ("preparing", "prepared"):
            for rank in at.ranks:
                rank.end = (0, int(signal.SIGTERM), now_us(), alive_us())
            at.meta["state"] = "stopped"
            return
        self._deadlines.stop(grace_us / 1e6)
        at.release()
        at.group.thaw()
        processes = at.processes()
        send(at.first_processes() if at.relays else processes, signal.SIGTERM)
        send(processes, signal.SIGCONT)

    def _warn(self):
        """The signal that the user wants before the time limit."""
        self._deadlines.warned()
        request = self._attempt.request
        self._signal(request["warn_signal"], SCRIPT if request["warn_batch"] else STEPS)

    def _signal(self, number, to):
        at = self._attempt
        if at.relays and number != signal.SIGKILL:
            to = SCRIPT
        batch, programs = bool(at.request["batch"]), at.folder.programs()
        send(receivers(at.processes(), at.first_processes(), batch, number, to, programs), number)

    def _check_lease(self):
        if self._lease is not None and self._lease.left_us() <= 0 and not self._attempt.finished:
            self._stop("fence", self._lease.grace_left_us())
            self._lease = None  # what is over is not renewed
