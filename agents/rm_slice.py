"""Several attempts of one task each that share a place on this host: one supervisor runs them in turn.

Each is as if it had been launched by itself, with a folder, a time limit and an exit record of its own; it
gets the folder when its turn comes (rm_slot.py). What has not begun when the slice has taken its time, or
cannot be begun, is given back: it ends with `unstarted`, and nothing of it was on the disk. When this process
is killed the agent sees by the folders and the recorded ends how far it had come.
"""

import contextlib
import copy
import gc
import json
import os
import signal
import time
import traceback

from rm_lease import alive_us
from rm_news import line_of, now_us, say
from rm_slot import Ends, Slot
from rm_task import Supervisor, detach, woken_by_children

PIPE_BYTES = 4096  # lines that are written together stay whole
NEWS_S = 0.02  # news is told together: each telling wakes the agent, and the daemon behind it
MEMBERS_MAX = 1_000
CLOCKS = ("SLURM_JOB_START_TIME", "SLURM_JOB_END_TIME")


class Member:
    """One of a slice: its (job, attempt), and what it is launched with."""

    def __init__(self, place, name, request):
        self.place, self.name, self.request = place, name, request
        self.over = False


def checked_slice(first, names, followers):
    """The names and requests in their order, from the first's request and what differs from it; ValueError
    says what is wrong."""
    if len(first["tasks"]) != 1 or first["hold"] or first["lease_us"] or first["batch"]:
        raise ValueError("a slice has attempts of one task each, that nothing waits for")
    if len(set(names)) != len(names) or len(names) > MEMBERS_MAX:
        raise ValueError("a slice has each attempt once, and not more than %d" % MEMBERS_MAX)
    members = [(names[0], first)]
    for i, follower in enumerate(followers, start=1):
        env = follower.get("env") or {}
        files = {key: follower.get(key) or "" for key in ("output", "error", "input")}
        texts = [*files.values(), *(value for value in env.values() if value is not None)]
        if not all(isinstance(text, str) and "\0" not in text for text in texts):
            raise ValueError("env, output, error and input of a follower are texts")
        merged = {key: value for key, value in dict(first["env"], **env).items() if value is not None}
        task = dict(first["tasks"][0], **files)
        members.append((names[i], dict(first, env=merged, tasks=[task])))
    return members


class Slice:
    def __init__(self, spool, hierarchy, folder, members, user, fence, events_path):
        self.folder, self.members = folder, members
        self.group, self.has_group = hierarchy.slice_group(folder.job, folder.attempt), False
        self.slot = Slot(spool, folder, members[0].request["script"], user)
        self.ends_file, self.wake = Ends(folder, len(members)), -1
        self.user, self.fence, self.events_path = user, fence, events_path
        self.control, self.running = -1, None
        self.ends, self.starts, self.news_at = [], [], None  # lines to be told; since when, monotonic seconds
        self.began_us = alive_us()

    def spawn(self, lock, until_us, within_us):
        """Fork the supervisor, which alone keeps `lock`; its process id. Nothing begins later than `until_us`
        by this host's clock, nor `within_us` from now."""
        self.control = os.open(self.folder.at("control"), os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        pid = os.fork()
        if pid:
            for fd in (self.control, self.ends_file.file, lock):
                os.close(fd)
            return pid
        try:
            gc.disable()  # a collection would copy the pages shared with the agent
            os.setsid()
            detach({lock, self.control, self.ends_file.file, self.fence.program})
            self.user.groups = os.getgrouplist(self.user.name, self.user.gid)
            self.wake, _ = woken_by_children()
            self._run(lock, until_us, within_us)
        except BaseException:
            with open(self.folder.at("supervisor.err"), "a") as file:
                file.write(traceback.format_exc())
        finally:
            os._exit(0)

    def _run(self, lock, until_us, within_us):
        for member in self.members:
            self.hear()
            if member.over:
                continue
            if now_us() > until_us or alive_us() - self.began_us > within_us:
                break
            if not os.fstat(lock).st_nlink:
                break  # the slice's folder was deleted: nobody hears how what runs now ends
            if not self._run_one(member):
                break
            self.tell_due()
        self.slot.drop()
        self.group.remove()
        self._give_back([member for member in self.members if not member.over], "unstarted")
        self.tell()

    def _run_one(self, member):
        """Run it to its end; False when it could not be begun, and nothing of it is left."""
        fence = copy.copy(self.fence)
        try:
            folder = self.slot.take(member.name)
            if folder is None:
                return False
            self.running = InSlice(self, member, folder, self._request(member), fence)
            member.over = True
            self.running.run()
            member.over = not self.running.failed
        except OSError:
            self.slot.drop()
        finally:
            self.running = None
            for fd in fence.views():
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
        for member in members:
            member.over = True
            record = {"event": "exit", "rank": 0, "code": 0, "signal": int(signal.SIGTERM), "oom": False,
                      "started_us": None, "ended_us": now_us(), "ran_us": None, "why": why}  # fmt: skip
            self.note(self.ends, line_of(record, *member.name))

    # news

    def note(self, news, *lines):
        """To be told soon. The start of what has ended before is not: its end says it, too."""
        news += lines
        if news is self.ends:
            self.starts = []
        self.news_at = self.news_at or time.monotonic()
        if sum(map(len, self.ends)) > PIPE_BYTES // 2:
            self.tell()

    def due(self):
        return None if self.news_at is None else self.news_at + NEWS_S

    def tell_due(self):
        if self.news_at is not None and time.monotonic() >= self.news_at + NEWS_S:
            self.tell()

    def tell(self):
        if self.starts and self.running is not None:
            self.running.write_tasks()
        if self.ends or self.starts:
            say(self.events_path, b"".join(self.ends + self.starts))
        self.ends, self.starts, self.news_at = [], [], None


class InSlice(Supervisor):
    """The supervisor of one member: its orders come to the slice, and its news goes to it.

    Nothing waits for the disk: that it has begun is said by its folder, and a host that loses what it had not
    written yet has lost the element, which is then requeued.
    """

    def __init__(self, of, member, folder, request, fence):
        super().__init__(folder, of.group, request, of.user, fence, -1, of.events_path)
        self.of, self.place, self.orders, self.failed = of, member.place, of.control, False
        self.sync = False
        del self.meta["job"], self.meta["attempt"]  # the next one's are the same but for these

    def run(self):
        self.wake = self.of.wake
        self._run()

    def _make_group(self):
        if not self.of.has_group:
            if self.fence.program >= 0:
                self.fence.program = os.dup(self.fence.program)
            super()._make_group()
            self.group.keep_open()
            self.of.has_group = True

    def _remove_group(self):
        """It stays for the next one, unless something of this one is left in it. What is in memory may be
        files, which outlive the element."""
        limited = self.request["mem_bytes"] or self.request["mem_bytes_per_task"]
        if limited or not self.group.is_as_made():
            super()._remove_group()
            self.of.has_group = False

    def _made_capture(self, rank, most, reserve):
        slot = self.of.slot
        if slot.log is None:
            slot.log = super()._made_capture(rank, most, reserve)
            slot.log.stays = True
        else:
            slot.log.open_pipe(self.user)
        return slot.log

    def _write_exit(self, record):
        slot = self.of.slot
        if slot.is_as_before(self.folder) and self.of.ends_file.write(self.place, record):
            slot.keep(self.folder)
        else:
            super()._write_exit(record)
            slot.leave()

    def _obey(self):
        self.of.hear()

    def _timeout_ms(self):
        due, others_ms = self.of.due(), super()._timeout_ms()
        if due is None:
            return others_ms
        mine_ms = max(0, due - time.monotonic()) * 1000 + 0.5
        return mine_ms if others_ms is None else min(mine_ms, others_ms)

    def _check_time(self):
        super()._check_time()
        self.of.tell_due()

    def _write_meta(self, sync=False):
        if not self.meta["tasks"]:  # what a reader of its log must know, should it end before that is told
            spooled = self.ranks[0].capture is not None
            self.meta["tasks"] = {
                "0": {"pid": 0, "started_us": None, "spooled": spooled, "out": "", "err": ""}
            }
        self.of.slot.write_meta(self.folder, json.dumps(self.meta, separators=(",", ":")).encode())

    def _write_tasks(self):
        if self.named.paths:
            super()._write_tasks()

    def write_tasks(self):
        """When its start is told: others are to know of it as well."""
        with contextlib.suppress(OSError):
            super()._write_tasks()

    def _say(self, *events):
        ended = any(event["event"] == "exit" for event in events)
        lines = [line_of(event, self.folder.job, self.folder.attempt) for event in events]
        self.of.note(self.of.ends if ended else self.of.starts, *lines)

    def _fail(self, code, sentence):
        self.failed = True  # given back; a launch by itself says why
        self.of.has_group = False
        self.of.slot.drop()
