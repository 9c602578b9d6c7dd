"""The attempts on this host: launching, stopping, telling, forgetting; and their iteration reports.

Everything here can be rebuilt from the spool; what is kept in memory is what the supervisors said.
"""

import base64
import contextlib
import json
import os
import signal
import time

from rm_become import MARK
from rm_cgroup import marked, send
from rm_request import checked_launch, name_of, read_as, user_of
from rm_spool import SpoolError, read_json, write_bytes
from rm_task import spawn

POLL_S = 1.0  # how often the locks are looked at: a supervisor that was killed says nothing
REPORTS_S = 0.05
QUIET_REPORTS_S = 0.5  # for jobs that have not reported yet, or no longer do
QUIET_AFTER_S = 10
BACKLOG_BYTES = 64 << 10
REPLY_BYTES = 2 << 20
LIVE = ("launching", "prepared", "running")
NOT_LIVE = ("exited", "lost")


class Attempt:
    """What is known of one attempt. `ranks`: rank -> its line in the answer to `tasks`."""

    def __init__(self, folder):
        self.folder = folder
        self.ranks = {}
        self.meta = {}
        self.waiting = []  # replies owed once it is launched
        self.discarding = []  # replies owed once it has ended
        self.offsets = {}  # rank -> bytes of its reports already read
        self.reported_at = 0.0

    def live(self):
        return any(rank["state"] in LIVE for rank in self.ranks.values())

    def settled(self):
        return all(rank["state"] != "launching" for rank in self.ranks.values())


class Attempts:
    def __init__(self, spool, hierarchy, notify):
        self.spool, self.hierarchy, self.notify = spool, hierarchy, notify
        self.known = {}
        self.live = set()
        self.polled_at = self.reports_at = 0.0
        self.events_path = os.path.join(spool.state, "events")
        self.heard = b""
        self._open_events()

    def _open_events(self):
        """A fifo of our own: an agent that lingers from before keeps its old one and hears nothing more."""
        aside = "%s.%d" % (self.events_path, os.getpid())
        if os.path.exists(aside):
            os.unlink(aside)
        os.mkfifo(aside, 0o600)
        self.events = os.open(aside, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        os.rename(aside, self.events_path)

    def find(self):
        """Read the spool: which attempts live, which have ended, which were lost."""
        self.spool.prune()
        for folder in self.spool.scan():
            if folder.alive():
                self._adopt(folder)
            elif read_json(folder.at("meta.json")) is None:
                folder.remove()  # an interrupted launch: nothing of it ever ran
            else:
                self._adopt(folder)

    def _adopt(self, folder):
        attempt = Attempt(folder)
        self.known[folder.job, folder.attempt] = attempt
        for name in os.listdir(folder.path):
            if name.isdigit():
                attempt.ranks[int(name)] = _line(folder, int(name))
        self._refresh(attempt)
        for rank in attempt.ranks:
            size = _size(folder.reports(rank))
            attempt.offsets[rank] = max(0, size - BACKLOG_BYTES)
        attempt.reported_at = time.monotonic()
        if attempt.live():
            self.live.add(attempt)

    def _refresh(self, attempt):
        """States from the disk. The lock is looked at first: an exit is written before it is released."""
        folder = attempt.folder
        alive = folder.alive()
        attempt.meta = read_json(folder.at("meta.json")) or attempt.meta
        for rank, line in attempt.ranks.items():
            if line["state"] in NOT_LIVE:
                continue
            task = attempt.meta.get("tasks", {}).get(str(rank), {})
            line.update(pid=task.get("pid", 0), started_us=task.get("started_us"))
            exited = folder.exit(rank)
            if exited is not None:
                self._end(attempt, rank, exited)
            elif not alive:
                where = (rank, folder.job, os.uname().nodename)
                why = (
                    "The supervisor of rank %d of job %d on %s is gone (killed, or the host was restarted): "
                    "how the task ended is unknown." % where
                )
                line.update(state="lost", why=why)
            elif attempt.meta.get("state") == "running":
                line["state"] = "running" if task else "launching"
            else:
                line["state"] = "prepared" if attempt.meta else "launching"
        if not alive and any(line["state"] == "lost" for line in attempt.ranks.values()):
            self._sweep(attempt)

    def _sweep(self, attempt):
        """Nobody watches over a lost attempt's processes: end them, whatever is left of them."""
        folder = attempt.folder
        group = self.hierarchy.group(folder.job, folder.attempt)
        group.kill()
        send(marked(MARK, folder.at("schedule.json")), signal.SIGKILL)
        group.remove()

    def _end(self, attempt, rank, record):
        line = attempt.ranks[rank]
        line["state"] = "exited"
        line.update({key: record[key] for key in ("started_us", "ended_us", "code", "signal", "oom", "why")})

    # the loop

    def timeout_s(self):
        """How long the loop may sleep; None when nothing runs."""
        if not self.live:
            return None
        return max(0.001, min(self.polled_at + POLL_S, self._reports_due()) - time.monotonic())

    def _reports_due(self):
        quiet = time.monotonic() - max(attempt.reported_at for attempt in self.live) > QUIET_AFTER_S
        return self.reports_at + (QUIET_REPORTS_S if quiet else REPORTS_S)

    def tick(self):
        if not self.live:
            return
        now = time.monotonic()
        if now >= self._reports_due():
            self.reports_at = now
            for attempt in self.live:
                self._read_reports(attempt)
        if now >= self.polled_at + POLL_S:
            self.polled_at = now
            for attempt in list(self.live):
                if not attempt.folder.alive():
                    self._look_again(attempt)

    def _look_again(self, attempt):
        """The supervisor is gone: tell the ends that it could not tell."""
        before = {rank for rank, line in attempt.ranks.items() if line["state"] in NOT_LIVE}
        self._refresh(attempt)
        for rank in sorted(set(attempt.ranks) - before):
            self._tell_exit(attempt, rank)
        self._settle(attempt)

    def _tell_exit(self, attempt, rank):
        self._read_reports(attempt)
        line = attempt.ranks[rank]
        keys = ("job", "attempt", "rank", "code", "signal", "started_us", "ended_us", "oom", "why")
        self.notify(dict({key: line[key] for key in keys}, event="exit"))

    def hear(self):
        """What the supervisors said."""
        try:
            data = os.read(self.events, 1 << 18)
        except BlockingIOError:
            return
        *lines, self.heard = (self.heard + data).split(b"\n")
        for text in lines:
            event = json.loads(text)
            attempt = self.known.get((event["job"], event["attempt"]))
            if attempt is not None:
                self._take(attempt, event)

    def _take(self, attempt, event):
        kind = event["event"]
        if kind == "failed":
            del self.known[attempt.folder.job, attempt.folder.attempt]
            self.live.discard(attempt)
            for reply in attempt.waiting + attempt.discarding:
                reply(None, SpoolError(event["code"], event["error"]))
            return
        if kind == "started" and attempt.ranks[event["rank"]]["state"] in LIVE:
            attempt.ranks[event["rank"]].update(
                state="running", pid=event["pid"], started_us=event["started_us"]
            )
            self.notify(event)
        elif kind == "exit" and attempt.ranks[event["rank"]]["state"] not in NOT_LIVE:
            self._end(attempt, event["rank"], event)
            self._tell_exit(attempt, event["rank"])
        elif kind == "launched":
            attempt.meta = read_json(attempt.folder.at("meta.json")) or attempt.meta
            for line in attempt.ranks.values():
                if line["state"] == "launching":
                    # not started, and its end not yet told: the exit that follows says why
                    line["state"] = "prepared" if attempt.meta.get("state") == "prepared" else "running"
            self._pay(attempt)
        self._settle(attempt)

    def _pay(self, attempt):
        for reply in attempt.waiting:
            reply(self._outcome(attempt))
        attempt.waiting = []

    def _settle(self, attempt):
        if attempt.live():
            return
        self._pay(attempt)
        self.live.discard(attempt)
        for reply in attempt.discarding:
            self._forget(attempt)
            reply({})
        attempt.discarding = []

    def _outcome(self, attempt):
        tasks = [{key: line[key] for key in ("rank", "state", "pid", "started_us")}
                 for line in attempt.ranks.values()]  # fmt: skip
        return dict({key: attempt.meta.get(key, "") for key in ("cgroup", "chdir", "note")}, tasks=tasks)

    # operations

    def launch(self, request, reply):
        job, number = name_of(request)
        attempt = self.known.get((job, number))
        if attempt is None and self.spool.gone(job, number):
            raise SpoolError("discarded", "Attempt %d of job %d was discarded on this host." % (number, job))
        if attempt is None:
            request = checked_launch(request)
            user = user_of(request)
            folder = self.spool.folder(job, number)
            try:
                lock = folder.lock()
            except OSError:
                with contextlib.suppress(OSError):
                    os.rmdir(folder.path)
                raise
            if lock is not None and read_json(folder.at("meta.json")) is None:
                attempt = self._launch(folder, request, user, lock)
            else:
                if lock is not None:
                    os.close(lock)
                self._adopt(folder)  # another agent launched it
                attempt = self.known[job, number]
        if attempt.settled():
            return self._outcome(attempt)
        attempt.waiting.append(reply)
        return None

    def _launch(self, folder, request, user, lock):
        for task in request["tasks"]:
            own = folder.at(str(task["rank"]), "out")
            task["out"] = task["output"] or own
            task["err"] = task["error"] or task["out"]
        try:
            folder.fill([task["rank"] for task in request["tasks"]], request["script"], user.uid, user.gid)
            group = self.hierarchy.group(folder.job, folder.attempt)
            attempt = Attempt(folder)
            attempt.ranks = {task["rank"]: _line(folder, task["rank"]) for task in request["tasks"]}
            attempt.reported_at = time.monotonic()
            self.known[folder.job, folder.attempt] = attempt
            self.live.add(attempt)
            spawn(folder, group, request, user, lock, self.events_path)
        except OSError:
            self.live.discard(self.known.pop((folder.job, folder.attempt), None))
            folder.remove()
            os.close(lock)
            raise
        return attempt

    def start(self, request, reply):
        attempt = self._get(request)
        if all(line["state"] == "prepared" for line in attempt.ranks.values()):
            for line in attempt.ranks.values():
                line["state"] = "launching"
            if not attempt.folder.tell({"op": "start"}):
                self._look_again(attempt)
        if attempt.settled():
            return self._outcome(attempt)
        attempt.waiting.append(reply)
        return None

    def stop(self, request, reply):
        attempt = self._get(request)
        why, grace_us = request.get("why", "cancel"), request.get("grace_us", 0)
        if not isinstance(why, str) or not isinstance(grace_us, int) or grace_us < 0:
            raise ValueError("why is a string and grace_us a duration")
        if attempt.live() and not attempt.folder.tell({"op": "stop", "why": why[:200], "grace_us": grace_us}):
            self._look_again(attempt)
        return {}

    def signal(self, request, reply):
        attempt = self._get(request)
        number = request.get("signal")
        if isinstance(number, str):
            name = number if number.startswith("SIG") else "SIG" + number
            number = getattr(signal, name, None)
        if not isinstance(number, int) or not 0 < number < signal.NSIG:
            raise ValueError("signal %r is none" % request.get("signal"))
        if attempt.live() and not attempt.folder.tell({"op": "signal", "signal": int(number)}):
            self._look_again(attempt)
        return {}

    def tasks(self, request, reply):
        lines = []
        for attempt in self.known.values():
            for rank, line in sorted(attempt.ranks.items()):
                report = attempt.folder.reports(rank)
                lines.append(dict(line, cooperative=_size(report) > 0))
        return {"tasks": lines}

    def discard(self, request, reply):
        job, number = name_of(request)
        attempt = self.known.get((job, number))
        if attempt is None:
            self.spool.mark_gone(job, number)
            return {}
        if any(line["state"] in ("running", "launching") for line in attempt.ranks.values()):
            raise SpoolError(
                "still-running", "Job %d still runs on %s: stop it first." % (job, os.uname().nodename)
            )
        if attempt.live():
            attempt.discarding.append(reply)
            if not attempt.folder.tell({"op": "stop", "why": "discard", "grace_us": 0}):
                self._look_again(attempt)
            return None
        self._forget(attempt)
        return {}

    def _forget(self, attempt):
        job, number = attempt.folder.job, attempt.folder.attempt
        self.spool.mark_gone(job, number)
        self.hierarchy.group(job, number).remove()
        attempt.folder.remove()
        self.known.pop((job, number), None)

    def logs(self, request, reply):
        attempt = self._get(request)
        rank, stream = request.get("rank", 0), request.get("stream", "out")
        offset, limit = request.get("offset", 0), request.get("limit", 1 << 18)
        if rank not in attempt.ranks:
            raise SpoolError(
                "no-such-task", "Job %d has no rank %s on this host." % (attempt.folder.job, rank)
            )
        if stream not in ("out", "err") or min(offset, limit) < 0:
            raise ValueError("stream is out or err, offset and limit are sizes")
        ended = attempt.ranks[rank]["state"] in NOT_LIVE
        task = attempt.meta.get("tasks", {}).get(str(rank), {})
        path = task.get(stream, "")
        if stream == "err" and path == task.get("out"):
            path = ""  # merged into the output
        data, size = b"", 0
        if path:
            data, size = read_as(attempt.meta, attempt.folder, path, offset, min(limit, REPLY_BYTES))
        offset += len(data)
        return {"data": base64.b64encode(data).decode(), "offset": offset, "size": size,
                "done": ended and offset >= size}  # fmt: skip

    def schedule(self, request, reply):
        attempt = self._get(request)
        path, schedule = attempt.folder.at("schedule.json"), request.get("schedule")
        if schedule is not None:
            write_bytes(path, json.dumps(schedule).encode(), 0o644)
        elif os.path.exists(path):
            os.unlink(path)
        return {}

    def _get(self, request):
        job, number = name_of(request)
        attempt = self.known.get((job, number))
        if attempt is None:
            raise SpoolError("no-such-attempt", "Attempt %d of job %d is not on %s."
                             % (number, job, os.uname().nodename))  # fmt: skip
        return attempt

    # iteration reports

    def _read_reports(self, attempt):
        items = []
        for rank in attempt.ranks:
            path = attempt.folder.reports(rank)
            offset = attempt.offsets.get(rank, 0)
            size = _size(path)
            if size <= offset:
                continue
            with open(path, "rb") as file:
                file.seek(offset)
                text = file.read(1 << 20)
            end = text.rfind(b"\n") + 1
            attempt.offsets[rank] = offset + end
            items += filter(None, map(_report, text[:end].splitlines()))
        if items:
            attempt.reported_at = time.monotonic()
            self.notify({"event": "iterations", "job": attempt.folder.job, "attempt": attempt.folder.attempt,
                         "items": items})  # fmt: skip


def _report(text):
    """One report, None when the user's program wrote something else there."""
    try:
        item = json.loads(text)
    except ValueError:
        return None
    good = isinstance(item, list) and len(item) == 6 and all(isinstance(x, int) for x in item[:5])
    return item if good and (item[5] is None or isinstance(item[5], int)) else None


def _line(folder, rank):
    return {"job": folder.job, "attempt": folder.attempt, "rank": rank, "state": "launching", "pid": 0,
            "started_us": None, "ended_us": None, "code": None, "signal": None, "oom": False,
            "why": ""}  # fmt: skip


def _size(path):
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
