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
from rm_news import Gathered, line_of, now_us
from rm_slot import Ends, Slot
from rm_spawn import Texts
from rm_task import Supervisor, detach, woken_by_children
from rm_task_attempt import Attempt
from rm_task_place import made_capture, make_group, remove_group

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
        self.user, self.fence, self.news = user, fence, Gathered(events_path)
        self.control, self.texts = -1, Texts()
        self.counted = None  # by the group, when it served the last one
        self.running = self.place = None  # the supervisor of the member that runs, and where it is
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
            attempt = Attempt(folder, self.group, self._request(member), self.user, fence)
            self.place = InSlice(self, member, attempt)
            self.running = Supervisor(attempt, self.place, self.wake)
            member.over = True
            self.running.run()
            member.over = not self.place.failed
        except OSError:
            self.slot.drop()
        finally:
            self.running = self.place = None
            self.news.starts = []
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
            if self.running is not None and name == self.place.name:
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
            self.note_end(line_of(record, *member.name))

    # news

    def note_end(self, line):
        self.news.end(line)
        if self.news.many():
            self.tell()

    def tell_due(self):
        due = self.news.due()
        if due is not None and time.monotonic() >= due:
            self.tell()

    def tell(self):
        if self.news.starts:
            self.place.write_told_tasks()
        self.news.send(self.place.name if self.place else ())


class InSlice:
    """The place of one member of a slice: its orders come to the slice, and its news goes to it.

    Nothing waits for the disk: that it has begun is said by its folder, and a host that loses what it had not
    written yet has lost the element, which is then requeued. (What each method does: rm_task_place.Alone.)
    """

    def __init__(self, of, member, attempt):
        self._began_at = time.monotonic()
        self._of, self._number, self._attempt = of, member.place, attempt
        self.inbox, self.name, self.failed, self.texts = of.control, member.name, False, of.texts
        del attempt.meta["job"], attempt.meta["attempt"]  # the next one's are the same but for these

    def make_group(self):
        fence = self._attempt.fence
        if self._of.has_group:
            self._attempt.used.share(self._of.counted)
        else:
            if fence.program >= 0:
                fence.program = os.dup(fence.program)
            make_group(self._attempt)
            self._attempt.group.keep_open()
            self._of.has_group = True

    def remove_group(self):
        """It stays for the next one, unless something of this one is left in it. What is in memory may be
        files, which outlive the element."""
        request = self._attempt.request
        limited = request["mem_bytes"] or request["mem_bytes_per_task"]
        if limited or not self._attempt.group.is_as_made():
            remove_group(self._attempt)
            self._of.has_group = False
        self._of.counted = self._attempt.used.counted

    def capture(self, rank):
        slot = self._of.slot
        if slot.log is None:
            slot.log = made_capture(self._attempt, rank)
            slot.log.stays = True
        else:
            slot.log.open_pipe(self._attempt.user)
        return slot.log

    def obey(self, _):
        self._of.hear()

    def leave(self):
        os.close(self.inbox)

    def look(self):
        self._of.tell_due()

    def due(self):
        return self._of.news.due()

    def start_due(self):
        return self._of.news.due_of(self._began_at)

    def write_meta(self, sync=False):
        meta = self._attempt.meta
        if not meta["tasks"]:  # for who reads its log, if it ends before its start is reported
            spooled = self._attempt.ranks[0].capture is not None
            meta["tasks"] = {"0": {"pid": 0, "started_us": None, "spooled": spooled, "out": "", "err": ""}}
        data = json.dumps(meta, separators=(",", ":")).encode()
        self._of.slot.write_meta(self._attempt.folder, data, self._attempt.room_bytes)

    def write_tasks(self):
        if self._attempt.named.paths:
            self._write_tasks()

    def write_told_tasks(self):
        """When its start is reported: others need to know it as well."""
        with contextlib.suppress(OSError):
            self._write_tasks()

    def _write_tasks(self):
        self._attempt.meta["tasks"] = self._attempt.tasks_written()
        self.write_meta()

    def write_exit(self, record):
        slot, folder = self._of.slot, self._attempt.folder
        if slot.is_as_before(folder) and self._of.ends_file.write(self._number, record):
            slot.keep(folder)
        else:
            folder.write_exit(record["rank"], record, False)
            slot.leave()

    def say(self, *events):
        if events[-1]["event"] != "exit":
            self._of.news.start(events, self._began_at)
            return
        self._of.news.starts = []  # an end says also when it started
        for event in events:
            self._of.note_end(line_of(event, *self.name))

    def fail(self, code, sentence):
        self.failed = True  # given back; a launch by itself says why
        self._of.has_group = False
        self._of.slot.drop()
