"""When the tasks of an attempt are warned, stopped and killed."""

import time


class Deadlines:
    """In seconds of the monotonic clock; None: there is none so far."""

    def __init__(self, attempt):
        self._attempt = attempt
        self.begun_at = self.limit_at = self.warn_at = self.kill_at = None
        self._warned = self._ending = False

    def begin(self):
        self.begun_at = time.monotonic()
        self.set_limit()

    def set_limit(self):
        """When the time limit ends the tasks, and when its signal warns them; a later one warns anew."""
        request = self._attempt.request
        if self._ending:
            return  # a longer time changes nothing any more
        self.limit_at = self.warn_at = None
        if not request["time_limit_us"]:
            return
        self.limit_at = self.begun_at + request["time_limit_us"] / 1e6
        if request["warn_signal"]:
            warn_at = self.limit_at - request["warn_before_us"] / 1e6
            if not self._warned or warn_at > time.monotonic():
                self.warn_at = warn_at

    def warned(self):
        self.warn_at, self._warned = None, True

    def delay(self, late_s):
        """The tasks have stood still for so long."""
        self.begun_at += late_s
        if self.limit_at is not None:
            self.limit_at += late_s
        if self.warn_at is not None:
            self.warn_at += late_s

    def end_within(self, left_s):
        """The end comes no later than so, and without another warning. Is that news?"""
        if self._ending:
            return False
        at, self._ending = time.monotonic() + left_s, True
        self.limit_at = at if self.limit_at is None else min(self.limit_at, at)
        self.warn_at = None
        return True

    def stop(self, grace_s):
        """The tasks are asked to end, and killed after the grace; an earlier time stays."""
        deadline = time.monotonic() + grace_s
        self.kill_at = deadline if self.kill_at is None else min(self.kill_at, deadline)
        self.limit_at = self.warn_at = None

    def kill_again(self):
        """Until nobody is left."""
        self.kill_at = time.monotonic() + 0.05

    def warns(self, now):
        """Nobody has a handler for the signal before all tasks are at their programs."""
        return self.warn_at is not None and now >= self.warn_at and self._attempt.all_started()

    def ahead(self):
        """All that are to come."""
        found = [at for at in (self.limit_at, self.kill_at) if at is not None]
        if self.warn_at is not None and self._attempt.all_started():
            found.append(self.warn_at)
        return found
