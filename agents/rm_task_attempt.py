"""What a supervisor knows of its attempt on this host: what the parts of the supervisor share."""

import json
import os
import resource
import select

import rm_container
from rm_capture import Captures
from rm_cgroup import descendants
from rm_lease import alive_us
from rm_named import Named
from rm_news import now_us
from rm_rank import Rank
from rm_spool import boot_id
from rm_used import Used

LATER_BYTES = 256  # of numbers and words that are not known at first, for each path


class Attempt:
    """`request`: what it was launched with. `meta`: what an agent reads of it from its folder."""

    def __init__(self, folder, group, request, user, fence):
        self.folder, self.group, self.request, self.user, self.fence = folder, group, request, user, fence
        self.ranks = [Rank(task) for task in request["tasks"]]
        self.used = Used(group)
        self.why = ""  # why it ends, unless by itself
        # do the first processes pass signals on to the tasks, which would have them twice?
        self.relays = bool(request["container"]) and rm_container.passes_signals(rm_container.found()[0])
        self.finished = False
        self.poll = select.poll()
        self.captures = Captures()
        self.task_files = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.named = Named(request, user, os.path.dirname(folder.path))
        self.meta = {
            "job": folder.job, "attempt": folder.attempt, "user": user.name, "uid": user.uid, "gid": user.gid,
            "supervisor": os.getpid(), "boot_id": boot_id(), "cgroup": group.path,
            # it waits for its start only when its prolog is over
            "state": "preparing" if request["prolog"] else "prepared",
            "chdir": "", "tasks": {}, "note": fence.lacking(), "cores": fence.cores,
            "master_port": request["port"], "lease_us": request["lease_us"],
            # what the tasks have together, each is said to have: it is held until the last of them has ended
            "given": {"cpus": request["cpus_per_task"],
                      "mem_bytes": request["mem_bytes"] or request["mem_bytes_per_task"],
                      "gpus": {str(task["rank"]): task["gpus"] for task in request["tasks"]}},
        }  # fmt: skip
        self.room_bytes = self._room_bytes()  # what `meta` may come to take, where no log is read without it

    @property
    def state(self):
        return self.meta["state"]

    def all_started(self):
        return all(rank.pipe is None for rank in self.ranks)

    def first_processes(self):
        """Those of the tasks that have not ended."""
        return [rank.pid for rank in self.ranks if rank.pid and rank.end is None]

    def processes(self):
        return self.group.pids() if self.group.path else descendants(os.getpid())

    def release(self):
        """The tasks that run nothing end: well, since how the job ends is not theirs to say."""
        for rank in self.ranks:
            if rank.idle and rank.end is None:
                rank.end = (0, 0, now_us(), alive_us())

    def leave(self, mine=None):
        """In a process of its own: close what is the supervisor's, but for what the rank `mine` needs."""
        for rank in self.ranks:
            if rank.pipe is not None:
                os.close(rank.pipe)
            if rank.capture is not None:
                rank.capture.leave(rank is not mine)

    def _room_bytes(self):
        if not self.named.paths:
            return 0
        tasks = self.tasks_written()
        base = max(len(json.dumps(path)) for path in (self.request["chdir"], self.user.home, "/tmp"))
        later = sum(
            LATER_BYTES + base + len(json.dumps(rank.task[stream]))
            for rank in self.ranks
            for stream in ("output", "error")
        )
        return len(json.dumps(dict(self.meta, tasks=tasks))) + base + LATER_BYTES + later

    def tasks_written(self):
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
        return tasks
