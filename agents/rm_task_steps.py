"""The steps of a supervisor's job: the door where the job asks for them, and the step daemon behind it.

A job whose script runs once has the door from its beginning. One whose script is started for each task
gets it when somebody comes from outside to enter the job.
"""

import contextlib
import select
import time

import rm_mpi
import rm_step_process
from rm_cgroup import descendants

STEPS_S = 0.02  # between two looks whether steps still run that were asked to end
OF_TASKS = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK"}
FIRST = {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0", "SLURM_GTIDS": "0", "RM_RANK": "0"}


def beside_tasks(request):
    """The launch as if its script ran once: what runs beside tasks that have the script each has no rank of
    theirs, and all that the job has on this host."""
    if request["batch"]:
        return request
    tasks = request["tasks"]
    env = {**_without_ranks(tasks[0]["env"]), **FIRST}
    gpus = list(dict.fromkeys(gpu for task in tasks for gpu in task["gpus"]))
    numbers = [task["env"].get("RM_GPUS", "") for task in tasks]
    if any(numbers):
        env["RM_GPUS"] = ",".join(dict.fromkeys(",".join(filter(None, numbers)).split(",")))
    once = [dict(tasks[0], env=env, gpus=gpus)]
    return dict(request, batch=request["script"], env=_without_ranks(request["env"]), tasks=once)


def _without_ranks(env):
    return {
        name: value
        for name, value in env.items()
        if name not in OF_TASKS and not name.startswith("SLURM_STEP")
    }


class Steps:
    """`daemon`: the process id of the step daemon, 0 while nobody has asked for a step."""

    def __init__(self, attempt, place):
        self._attempt, self._place = attempt, place
        self._door, self.daemon = None, 0
        self.look_at = None  # monotonic seconds: when to look again whether a step still runs

    def listen(self):
        at = self._attempt
        if at.request["allocation"]:
            rm_mpi.write_hosts(at.folder, at.request["allocation"], at.user)
        self._door = rm_step_process.listen(at.folder, at.user)

    def open(self):
        """Somebody wants to come in. Where the disk refuses it, they hear that they cannot."""
        if self._door is None and not self._attempt.finished:
            with contextlib.suppress(OSError):
                self.listen()
                self.watch()

    def watch(self):
        if self._door is not None:
            self._attempt.poll.register(self._door, select.POLLIN)

    def hear(self, ready):
        """The first word for the step daemon, if it has come; what comes later the daemon hears itself."""
        if self._door is None or self.daemon or self._door.fileno() not in ready:
            return
        attempt = self._attempt
        attempt.poll.unregister(self._door)
        request = dict(beside_tasks(attempt.request), task_files=attempt.task_files)
        self.daemon = rm_step_process.start(
            self._door, attempt.folder, attempt.group, request, attempt.user, attempt.fence,
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

    def close(self):
        """The attempt has ended: nobody comes in any more."""
        if self._door is not None:
            with contextlib.suppress(KeyError):  # the step daemon alone listened
                self._attempt.poll.unregister(self._door)
            self._door.close()
            self._door = None

    def _run(self):
        if self._attempt.group.path:
            return bool(self._attempt.group.pids())
        return bool(descendants(self.daemon))

    def _leave(self):
        """In the step daemon's process."""
        self._attempt.leave()
        self._place.leave()
