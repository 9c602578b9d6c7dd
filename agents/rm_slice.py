"""Several attempts of one task each that share a place on this host: one supervisor runs them in turn.

Each is as if it had been launched by itself, with a folder, a control group, a time limit and an exit record
of its own; the folder is made when its turn comes. What has not begun when the slice has taken its time, or
cannot be begun, is given back: it ends with `unstarted`, and nothing of it was on the disk. When this process
is killed the agent sees by the folders how far it had come.
"""

import contextlib
import copy
import gc
import json
import os
import signal
import traceback

from rm_lease import alive_us
from rm_spool import read_json
from rm_task import Supervisor, detach, line_of, now_us, say

PIPE_BYTES = 4096  # lines that are written together stay whole
MEMBERS_MAX = 1_000
CLOCKS = ("SLURM_JOB_START_TIME", "SLURM_JOB_END_TIME")


class Member:
    """One of a slice: its (job, attempt), and what it is launched with."""

    def __init__(self, name, request):
        self.name, self.request = name, request
        self.over = False


def checked_slice(first, names, followers):
    """The members in their order, from the first's request and what differs from it; ValueError says what is
    wrong."""
    if len(first["tasks"]) != 1 or first["hold"] or first["lease_us"] or first["batch"]:
        raise ValueError("a slice has attempts of one task each, that nothing waits for")
    if len(set(names)) != len(names) or len(names) > MEMBERS_MAX:
        raise ValueError("a slice has each attempt once, and not more than %d" % MEMBERS_MAX)
    members = [Member(names[0], first)]
    for i, follower in enumerate(followers, start=1):
        env = follower.get("env") or {}
        files = {key: follower.get(key) or "" for key in ("output", "error", "input")}
        texts = [*files.values(), *(value for value in env.values() if value is not None)]
        if not all(isinstance(text, str) and "\0" not in text for text in texts):
            raise ValueError("env, output, error and input of a follower are texts")
        merged = {key: value for key, value in dict(first["env"], **env).items() if value is not None}
        task = dict(first["tasks"][0], **files)
        members.append(Member(names[i], dict(first, env=merged, tasks=[task])))
    return members


class Slice:
    def __init__(self, spool, hierarchy, folder, members, user, fence, events_path):
        self.spool, self.hierarchy, self.folder, self.members = spool, hierarchy, folder, members
        self.user, self.fence, self.events_path = user, fence, events_path
        self.control, self.running = -1, None
        self.began_us = alive_us()

    def spawn(self, lock, until_us, within_us):
        """Fork the supervisor, which alone keeps `lock`; its process id. Nothing begins later than `until_us`
        by this host's clock, nor `within_us` from now."""
        self.control = os.open(self.folder.at("control"), os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        pid = os.fork()
        if pid:
            os.close(self.control)
            os.close(lock)
            return pid
        try:
            gc.disable()  # a collection would copy the pages shared with the agent
            os.setsid()
            detach({lock, self.control, self.fence.program})
            self._run(until_us, within_us)
        except BaseException:
            with open(self.folder.at("supervisor.err"), "a") as file:
                file.write(traceback.format_exc())
        finally:
            os._exit(0)

    def _run(self, until_us, within_us):
        for member in self.members:
            self.hear()
            if member.over:
                continue
            if now_us() > until_us or alive_us() - self.began_us > within_us:
                break
            if not self._run_one(member):
                break
        self._give_back([member for member in self.members if not member.over], "unstarted")

    def _run_one(self, member):
        """Run it to its end; False when it could not be begun, and nothing of it is left."""
        folder = self.spool.folder(*member.name)
        try:
            lock = folder.lock()
        except OSError:
            return False
        if lock is None or read_json(folder.at("meta.json")) is not None:
            return False
        control = -1
        fence = copy.copy(self.fence)
        try:
            folder.fill([0], member.request["script"], self.user.uid, self.user.gid)
            control = os.open(folder.at("control"), os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            fence.program = os.dup(fence.program) if fence.program >= 0 else -1
            group = self.hierarchy.group(*member.name)
            self.running = InSlice(self, folder, group, self._request(member), fence, control)
            member.over = True
            self.running.run()
            member.over = not self.running.failed
        except OSError:
            folder.remove()
        finally:
            self.running = None
            for fd in (lock, control, *fence.views()):
                if fd >= 0:
                    with contextlib.suppress(OSError):
                        os.close(fd)
        return member.over

    def _request(self, member):
        """As if it had been placed when it begins."""
        later_s = (alive_us() - self.began_us) // 1_000_000
        env = dict(member.request["env"])
        for name in CLOCKS:
            if later_s and env.get(name, "").isdigit():
                env[name] = str(int(env[name]) + later_s)
        return dict(member.request, env=env)

    def hear(self):
        """The agent's orders: for the one that runs, or for others, of which the end is said at once."""
        try:
            data = os.read(self.control, 65536)
        except BlockingIOError:
            return
        for words in map(json.loads, data.splitlines()):
            name = (words.get("job"), words.get("attempt"))
            if self.running is not None and name == (self.running.folder.job, self.running.folder.attempt):
                if words.get("why") != "hold":  # it has begun
                    self.running.follow(words)
                continue
            for member in self.members:
                if member.name != name or member.over:
                    continue
                if words["op"] == "stop":
                    self._give_back([member], "unstarted" if words["why"] == "hold" else words["why"])
                elif words["op"] == "limit":
                    member.request = dict(member.request, time_limit_us=words["time_limit_us"])

    def _give_back(self, members, why):
        lines = []
        for member in members:
            member.over = True
            record = {"event": "exit", "rank": 0, "code": 0, "signal": int(signal.SIGTERM), "oom": False,
                      "started_us": None, "ended_us": now_us(), "ran_us": None, "why": why}  # fmt: skip
            lines.append(line_of(record, *member.name))
            if sum(map(len, lines)) > PIPE_BYTES:
                say(self.events_path, b"".join(lines[:-1]))
                lines = lines[-1:]
        if lines:
            say(self.events_path, b"".join(lines))


class InSlice(Supervisor):
    """The supervisor of one member: its orders come to the slice."""

    def __init__(self, of, folder, group, request, fence, control):
        super().__init__(folder, group, request, of.user, fence, control, of.events_path)
        self.of, self.orders, self.failed = of, of.control, False

    def _obey(self):
        self.of.hear()

    def _fail(self, code, sentence):
        self.failed = True  # given back; a launch by itself says why
