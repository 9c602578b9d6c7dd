"""The steps of a supervisor's job: the door where the job asks for them, and the step daemon behind it."""

import select
import time

import rm_step_process
from rm_cgroup import descendants

STEPS_S = 0.02  # between two looks whether steps still run that were asked to end


class Steps:
    """`daemon`: the process id of the step daemon, 0 while nobody has asked for a step."""

    def __init__(self, attempt, place):
        self._attempt, self._place = attempt, place
        self._door, self.daemon = None, 0
        self.look_at = None  # monotonic seconds: when to look again whether a step still runs

    def listen(self):
        self._door = rm_step_process.listen(self._attempt.folder, self._attempt.user)

    def watch(self):
        if self._door is not None:
            self._attempt.poll.register(self._door, select.POLLIN)

    def hear(self, ready):
        """The first word for the step daemon, if it has come; what comes later the daemon hears itself."""
        if self._door is None or self.daemon or self._door.fileno() not in ready:
            return
        attempt = self._attempt
        attempt.poll.unregister(self._door)
        attempt.request["task_files"] = attempt.task_files
        self.daemon = rm_step_process.start(
            self._door, attempt.folder, attempt.group, attempt.request, attempt.user, attempt.fence,
            self._place.say, self._leave,
        )  # fmt: skip

    def reaped(self, pid):
        """A child has ended: if it was the step daemon, the next word starts another one."""
        if pid and pid == self.daemon:
            self.daemon = 0
            if not self._attempt.finished:
                self.watch()

    def await_end(self):
        """The steps here have their grace; the step daemon ends after them."""
        self.look_at = time.monotonic() + STEPS_S
        if not self._run():
            self.end()
            self.look_at = None

    def end(self):
        if self.daemon:
            rm_step_process.end(self.daemon)

    def _run(self):
        if self._attempt.group.path:
            return bool(self._attempt.group.pids())
        return bool(descendants(self.daemon))

    def _leave(self):
        """In the step daemon's process."""
        self._attempt.leave()
        self._place.leave()
