"""What a supervisor is ordered while its tasks run, and what their time orders: limits, signals, ends."""

import json
import os
import select
import signal
import time

from rm_cgroup import descendants, send
from rm_lease import alive_us
from rm_news import now_us
from rm_signalled import SCRIPT, STEPS, receivers

LONGEST_POLL_MS = 86_400_000
STANDS_S = 0.5  # between two looks whether tasks that are to stand still do


class Orders:
    """A part of rm_task.Supervisor, which has the attributes."""

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
        send(self._first() if self.relays else processes, signal.SIGTERM)
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
        if self.relays and number != signal.SIGKILL:
            to = SCRIPT
        send(receivers(self._processes(), self._first(), bool(self.request["batch"]), number, to), number)

    def _first(self):
        return [rank.pid for rank in self.ranks if rank.pid and rank.end is None]

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
