"""How a supervisor's tasks begin, and what their first words are."""

import contextlib
import json
import os
import resource
import select
import time

from rm_become import become_task, task_environment, wanted_directory
from rm_lease import alive_us
from rm_news import now_us
from rm_spawn import Spawned
from rm_spool import sentence_of

FILES_OF_RANK, FILES_OF_ALL = 4, 256  # that a supervisor has open


def begun(rank):
    """The event that a task has started: now, unless it has ended before that was heard, or was not listened
    to so long."""
    if rank.spawned_at is not None:
        rank.started_us, rank.started_alive_us = rank.spawned_at
    else:
        rank.started_us, rank.started_alive_us = (now_us(), alive_us()) if rank.end is None else rank.end[2:]
    return {"event": "started", "rank": rank.rank, "pid": rank.pid, "started_us": rank.started_us}


class Beginning:
    def __init__(self, attempt, place, deadlines):
        self._attempt, self._place, self._deadlines = attempt, place, deadlines
        self._listen_at = None  # to the first words of a task; monotonic seconds

    def allow_files(self):
        """As many open files as the ranks need: a login's 1024 are too few for some hundred."""
        soft, hard = self._attempt.task_files
        wanted = max(soft, FILES_OF_ALL + FILES_OF_RANK * len(self._attempt.ranks))
        for most in (max(hard, wanted), hard):  # the first one is for root
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, most), most))
                return

    def capture(self):
        for rank in self._attempt.ranks:
            if not rank.task["output"] and not rank.idle:
                rank.capture = self._place.capture(rank)
                self._attempt.captures.add(rank.capture)

    def start(self):
        attempt = self._attempt
        attempt.meta["state"] = "running"
        attempt.used.begin()
        for rank in attempt.ranks:
            if rank.idle:
                continue
            self._start_task(rank, self._may_spawn(rank))
        self._deadlines.begin()
        self._announce([begun(rank) for rank in attempt.ranks if rank.idle])

    def watch(self):
        """Wait for the first words of the tasks as well. Of one that was started without a fork they can only
        be that it runs: where nobody needs that at once, its end may come first, which saves a wake-up."""
        for rank in self._attempt.ranks:
            if rank.pipe is None:
                continue
            self._listen_at = self._place.start_due() if rank.spawned is not None else None
            if self._listen_at is not None:
                rank.spawned_at = now_us(), alive_us()
            else:
                self._attempt.poll.register(rank.pipe, select.POLLIN)

    def due(self):
        """When to look again, in monotonic seconds."""
        return [] if self._listen_at is None else [self._listen_at]

    def look(self):
        if self._listen_at is not None and time.monotonic() >= self._listen_at:
            self._listen_at = None
            for rank in self._attempt.ranks:
                if rank.pipe is not None:
                    self._attempt.poll.register(rank.pipe, select.POLLIN)
                    if select.select([rank.pipe], [], [], 0)[0]:
                        self.hear(rank)  # at once, so that it is told with the ends that are due now

    def _may_spawn(self, rank):
        """Is it started with nothing that only `become_task` knows?"""
        task, fence = rank.task, self._attempt.fence
        plain = rank.capture is not None and not (task["input"] or task["error"])
        if self._attempt.request["container"]:
            return False
        return len(self._attempt.ranks) == 1 and plain and not (fence.has_view or fence.binds_tasks)

    def _start_task(self, rank, quickly):
        """Start its process, which closes the pipe when it calls exec, or ends."""
        at = self._attempt
        environ = task_environment(at.folder, at.request, at.user, rank.task, at.fence.hides_gpus)
        rank.pipe, said = os.pipe()
        os.set_blocking(rank.pipe, False)
        rank.pid = self._spawn(rank, environ) if quickly else -1
        if rank.pid < 0:
            rank.spawned = None
            rank.pid = at.group.fork()
        if rank.pid == 0:
            self._leave_files(rank)
            printed = None if rank.capture is None else rank.capture.entrance
            become_task(at.folder, at.group, at.request, at.user, at.fence, rank.task, environ, printed, said)
        os.close(said)
        if rank.capture is not None and rank.spawned is None:
            rank.capture.close_entrance()

    def _leave_files(self, mine):
        """In a task's process, which may have fewer: close what it does not need, before it is so limited."""
        self._attempt.leave(mine)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, self._attempt.task_files)

    def _spawn(self, rank, environ):
        at = self._attempt
        if at.user.groups is None:
            at.user.groups = os.getgrouplist(at.user.name, at.user.gid)
        script = at.folder.at("script")
        rank.spawned = Spawned(at.user, wanted_directory(at.request, at.user), rank.capture.entrance,
                               at.task_files, script, at.request["args"], environ,
                               self._place.texts)  # fmt: skip
        return at.group.spawn(rank.spawned)

    def _fork_instead(self, rank):
        """What failed before exec is tried again by a child that can say what is wrong."""
        if rank.end is None:
            os.waitpid(rank.pid, 0)
        rank.end, rank.said, rank.spawned_at = None, b"", None
        self._start_task(rank, False)
        self._attempt.poll.register(rank.pipe, select.POLLIN)

    def hear(self, rank):
        """The task's own words until exec closes the pipe."""
        at = self._attempt
        data = os.read(rank.pipe, 65536)
        rank.said += data
        if data:
            return
        with contextlib.suppress(KeyError):  # its end came before it was listened to
            at.poll.unregister(rank.pipe)
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
            rank.failed_with = words.get("end", rank.failed_with)
            rank.chdir = words.get("chdir", rank.chdir)
            rank.opened_in = words.get("opened_in", rank.opened_in)
            if words.get("note", "") not in at.meta["note"]:
                at.meta["note"] = " ".join(filter(None, [at.meta["note"], words["note"]]))
        news = []
        if not rank.failure:
            rank.chdir = rank.chdir or wanted_directory(at.request, at.user)
            news = [begun(rank)]
        at.meta["chdir"] = at.meta["chdir"] or rank.chdir
        self._announce(news)

    def _announce(self, news):
        """That tasks have started; and, when it was the last of them, that all have."""
        if self._attempt.all_started():
            try:
                self._place.write_tasks()
            except OSError as error:
                self._attempt.meta["note"] = sentence_of(error)[1]
            news.append({"event": "launched"})
        if news:
            self._place.say(*news)
