"""How a supervisor's tasks begin, and what their first words are."""

import contextlib
import json
import os
import resource
import select
import time

from rm_become import become_task, task_environment, wanted_directory
from rm_capture import Capture
from rm_lease import alive_us
from rm_news import now_us
from rm_spawn import Spawned
from rm_spool import sentence_of, write_json

FILES_OF_RANK, FILES_OF_ALL = 4, 256  # that a supervisor has open


class Beginning:
    """A part of rm_task.Supervisor, which has the attributes."""

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
        if self.request["container"]:
            return False
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
