"""The attempts on this host: finding them again, hearing of them, telling their ends and their reports.

Everything here can be rebuilt from the spool; what is kept in memory is what the supervisors said.
"""

import contextlib
import json
import os
import signal
import sys
import time
import traceback

import rm_epilog
import rm_gpu_used
import rm_reports
import rm_step_records
import rm_task_epilog
import rm_used
from rm_attempt import LIVE, NOT_LIVE, Attempt, given_back, members_of, untold
from rm_become import MARK
from rm_cgroup import marked, marks, send
from rm_ends import Ends
from rm_files import read_json
from rm_reports import size_of
from rm_slot import end_of
from rm_spool import SpoolError
from rm_still_open import StillOpen

POLL_S = 1.0  # how often the locks are looked at: a supervisor that was killed says nothing
REPORTS_S = 0.02  # the others' next waits depend on how soon the reference's iterations are known
QUIET_REPORTS_S = 0.5  # for jobs that have not reported yet, or no longer do
QUIET_AFTER_S = 10
FILLS = "it filled the disk of %s with rm's own files: its script, or what $RM_REPORTS names"
VANISHED = 10
SWEEP_S = 0.02  # between two looks whether what was killed is gone


class Attempts:
    def __init__(self, spool, hierarchy, fences, notify):
        self.spool, self.hierarchy, self.fences, self.notify = spool, hierarchy, fences, notify
        self.ends = Ends(spool.state)
        self.still_open = StillOpen(spool.state)
        self.known = {}
        self.on_steps = lambda attempt: None  # its step daemon has something for another host
        self.live = set()
        self.supervisors = set()  # our children; those of an earlier agent are init's
        self.slices = set()  # folders of slices of which something was forgotten
        self.ending = set()  # attempts without a supervisor, of which something is left that was killed
        self.polled_at = self.reports_at = self.swept_at = 0.0
        self.reported_at = (
            0.0  # when the newest attempt began, or iterations were reported; monotonic seconds
        )
        self.events_path = os.path.join(spool.state, "events")
        self.heard = b""
        self._open_events()

    def _open_events(self):
        """A fifo of our own: several agents may serve one host for a while, and each must hear everything."""
        os.makedirs(self.events_path, mode=0o700, exist_ok=True)
        name = "%d.%d" % (os.getpid(), time.time_ns())
        self.fifo, aside = os.path.join(self.events_path, name), os.path.join(self.events_path, "." + name)
        os.mkfifo(aside, 0o600)
        self.events = os.open(aside, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        os.rename(aside, self.fifo)  # seen only once it has its reader: one without is taken for dead

    def close(self):
        with contextlib.suppress(OSError):
            os.unlink(self.fifo)

    def find(self):
        """Read the spool: which attempts live, which have ended, which were lost."""
        self.spool.prune()
        self.still_open.look()
        slices = members_of(self.spool)
        for folder in self.spool.scan():
            try:
                of_slice = slices.pop((folder.job, folder.attempt), None)
                alive = folder.alive() or (of_slice is not None and of_slice[0].alive())
                if not alive and read_json(folder.at("meta.json")) is None and not rm_epilog.is_due(folder):
                    folder.remove()  # an interrupted launch: nothing of it ever ran
                    if of_slice is not None:
                        self._adopt_member(folder, *of_slice)
                else:
                    self._adopt(folder, *(of_slice or ()))
            except Exception:
                # a folder that cannot be made sense of stays as it is; the others are found
                self.known.pop((folder.job, folder.attempt), None)
                _complain("%s is set aside" % folder.path)
        for (job, count), of_slice in slices.items():
            self._adopt_member(self.spool.folder(job, count), *of_slice)
        for folder in self.spool.scan_slices():
            self._forget_slice(folder)
        for (job, count), of_slice in self._running():
            folder, known = self.spool.folder(job, count), self.known.get((job, count))
            if known is None and os.path.isdir(folder.path):
                continue  # set aside above, or launched by another agent since then
            if known is None or not known.ranks:
                self._find_orphan(folder, of_slice)

    def _running(self):
        """(job, attempt) of everything that runs here for one, whether or not the spool knows it, and the
        folder of its slice where that was deleted."""
        if not self.hierarchy.kind:
            return sorted({(name, None) for _, name in self._marked()}, key=lambda item: item[0])
        found = {name: None for name in self.hierarchy.attempts() if self.hierarchy.group(*name).pids()}
        lost = {}
        for name in self.hierarchy.attempts("slice"):
            folder = self.spool.slice_folder(*name)
            if not os.path.isdir(folder.path):
                lost.update((pid, folder) for pid in self.hierarchy.slice_group(*name).pids())
        if lost:
            found.update((name, lost[pid]) for pid, name in self._marked() if pid in lost)
        return sorted(found.items(), key=lambda item: item[0])

    def _marked(self):
        """(process, (job, attempt)) of what runs with our mark."""
        for pid, path in marks(MARK):
            folder, name = os.path.split(os.path.dirname(path))
            job, _, count = name.partition(".")
            if folder == self.spool.jobs and job.isdigit() and count.isdigit():
                yield pid, (int(job), int(count))

    def _find_orphan(self, folder, of_slice):
        """Its folder was deleted: nobody can record how it ends, so it is ended, and lost. As long as some of
        it is left it counts as running, by its first rank: nobody knows the others, nor what it was given."""
        attempt = Attempt(folder)
        attempt.slice = of_slice
        attempt.ranks, attempt.orphan = {0: dict(untold(folder, 0), state="running")}, True
        self.known[folder.job, folder.attempt] = attempt
        self._refresh(attempt)
        if attempt.live():
            self.live.add(attempt)

    def _forget_slice(self, folder):
        """Nothing of a slice is needed any more when it is over, and each member has a folder of its own or
        was discarded. Is nothing left of it?"""
        if folder.alive():
            return False
        members = [tuple(name) for name in read_json(folder.at("members.json")) or ()]
        left = set(members).difference(self.spool.gone_of(members))
        if all(os.path.isdir(self.spool.folder(*name).path) for name in left):
            self.hierarchy.slice_group(folder.job, folder.attempt).remove()
            folder.remove()
        return not os.path.isdir(folder.path)

    def _guarded(self, attempt, step):
        """One step of the loop for one attempt: no content of its files takes anything from the others."""
        try:
            step(attempt)
        except Exception:
            if not attempt.troubled:
                attempt.troubled = True
                _complain("job %d, attempt %d" % (attempt.folder.job, attempt.folder.attempt))

    def _adopt_member(self, folder, of_slice, place):
        """One of a slice that has no folder: it has not begun, or left none behind. Unless that is over and
        done with."""
        if self.spool.gone(folder.job, folder.attempt):
            return
        attempt = Attempt(folder)
        attempt.slice, attempt.place = of_slice, place
        attempt.cores = read_json(of_slice.at("cores.json")) or ()
        attempt.ranks = {0: dict(untold(folder, 0), state="prepared")}
        self.known[folder.job, folder.attempt] = attempt
        self._refresh(attempt)
        if attempt.live():
            self.live.add(attempt)

    def _adopt(self, folder, of_slice=None, place=0):
        attempt = Attempt(folder)
        attempt.slice, attempt.place = of_slice, place
        attempt.gpus_used = rm_gpu_used.kept(folder)
        attempt.ordered, attempt.lends = read_json(folder.at("lends.json")) or (0, False)
        self.known[folder.job, folder.attempt] = attempt
        for name in os.listdir(folder.path):
            if name.isdigit():
                attempt.ranks[int(name)] = untold(folder, int(name))
        self._refresh(attempt)
        sizes = {rank: size_of(folder.reports(rank)) for rank in attempt.ranks}
        attempt.reported = {rank for rank, size in sizes.items() if size}
        attempt.offsets = {rank: max(0, size - rm_reports.WINDOW_BYTES) for rank, size in sizes.items()}
        self.reported_at = time.monotonic()
        if attempt.live():
            self.live.add(attempt)
        self._close(attempt)

    def _refresh(self, attempt):
        """States from the disk. The lock is looked at first: an exit is written before it is released."""
        folder = attempt.folder
        alive = attempt.alive()
        if attempt.slice is not None and attempt.live() and not os.path.isdir(folder.path):
            ended = end_of(attempt.slice, attempt.place)
            if ended is not None:
                self._end(attempt, 0, ended)
                return
        if attempt.waits():
            if not alive:  # nobody will begin it any more
                self._end(attempt, 0, given_back())
            return
        attempt.orphan = attempt.orphan or not os.path.isdir(folder.path)
        alive = alive and not attempt.orphan
        if not alive and (not self._sweep(attempt) or self._left_to_us(attempt)):
            return  # something of it is left: it is looked at again
        attempt.meta = read_json(folder.at("meta.json")) or attempt.meta
        epilog = "" if alive else rm_epilog.outcome(folder)
        for rank, line in attempt.ranks.items():
            if line["state"] in NOT_LIVE:
                continue
            task = attempt.meta.get("tasks", {}).get(str(rank), {})
            line.update(pid=task.get("pid", 0), started_us=task.get("started_us"))
            exited = attempt.exit(rank)
            if exited is not None:
                self._end(attempt, rank, exited)
            elif not alive:
                cause = "its folder was deleted" if attempt.orphan else "killed, or the host was restarted"
                why = (
                    "The supervisor of rank %d of job %d on %s is gone (%s): how the task ended is unknown.%s"
                )
                why %= rank, folder.job, os.uname().nodename, cause, folder.last_words()
                line.update(state="lost", why=why, epilog=epilog)
                epilog = ""  # told once
            elif attempt.meta.get("state") == "running":
                line["state"] = "running" if task else "launching"
            else:
                line["state"] = "prepared" if attempt.meta.get("state") == "prepared" else "launching"

    def _sweep(self, attempt):
        """Nobody watches over a lost attempt's processes: end them; False while any is left. Of one whose
        ranks have all reported their ends nothing is."""
        folder = attempt.folder
        told = [
            rank for rank, line in attempt.ranks.items() if line["state"] in NOT_LIVE or attempt.exit(rank)
        ]
        if len(told) == len(attempt.ranks):
            return True
        groups = self._groups(attempt)
        mark = folder.at("schedule.json")
        for group in groups:
            group.kill()
        send(marked(MARK, mark), signal.SIGKILL)
        if any(group.pids() for group in groups) or marked(MARK, mark):
            self.swept_at, self.ending = time.monotonic(), self.ending | {attempt}
            return False
        self.ending.discard(attempt)
        for group in groups:
            group.remove()
        return True

    def _left_to_us(self, attempt):
        """Has its supervisor left its epilog to be run? The attempt lives until that is over."""
        if not rm_epilog.is_due(attempt.folder):
            return False
        pid = rm_task_epilog.begin(attempt.folder, (attempt.slice or attempt.folder).at("control"))
        self.supervisors |= {pid} - {0}
        return True

    def _groups(self, attempt):
        """Where its processes may be: one of a slice is in the slice's, or in one of its own where an
        earlier agent has launched it."""
        own, of_slice = self.hierarchy.group(attempt.folder.job, attempt.folder.attempt), attempt.slice
        return (
            [own] if of_slice is None else [own, self.hierarchy.slice_group(of_slice.job, of_slice.attempt)]
        )

    def _end(self, attempt, rank, record):
        line = attempt.ranks[rank]
        line["state"] = "exited"
        line.update({key: record[key] for key in ("started_us", "ended_us", "code", "signal", "oom", "why")})
        line["ran_us"] = record.get("ran_us")  # older supervisors do not say it
        line["epilog"] = record.get("epilog", "")
        line["used"], line["whole"] = rm_used.told(record.get("used")), rm_used.told(record.get("whole"))
        if line["whole"]:
            line["whole"].update(rm_gpu_used.told(attempt, line["ended_us"]))
        attempt.log_bytes[rank] = record.get("log_bytes")
        attempt.log_sizes[rank] = record.get("log_size")

    # the loop

    def timeout_s(self):
        """How long the loop may sleep; None when nothing runs, and no file is looked at."""
        due = self.polled_at + POLL_S
        if self.live:
            due = min(due, self._reports_due())
        elif self.still_open.is_empty():
            return None
        if self.ending:
            due = min(due, self.swept_at + SWEEP_S)
        return max(0.001, due - time.monotonic())

    def _reports_due(self):
        quiet = time.monotonic() - self.reported_at > QUIET_AFTER_S
        return self.reports_at + (QUIET_REPORTS_S if quiet else REPORTS_S)

    def tick(self):
        now = time.monotonic()
        if self.live and now >= self._reports_due():
            self.reports_at = now
            for attempt in self.live:
                if attempt.slice is None or attempt.ranks[0]["state"] != "prepared":
                    self._guarded(attempt, self._read_reports)
        if self.ending and now >= self.swept_at + SWEEP_S:
            ending, self.ending = self.ending, set()
            for attempt in ending:
                self._guarded(attempt, self._look_again)
        if now >= self.polled_at + POLL_S:
            self.polled_at = now
            self._reap()
            fillers, slices = self.still_open.look(), {}
            for attempt in list(self.live):
                if attempt.slice is None or attempt.ranks[0]["state"] != "prepared":
                    self._guarded(attempt, lambda attempt: self._look_at_room(attempt, fillers))
                self._guarded(attempt, lambda attempt: self._look_after(attempt, slices))

    def _reap(self):
        self.supervisors = {pid for pid in self.supervisors if os.waitpid(pid, os.WNOHANG)[0] == 0}

    def _look_at_room(self, attempt, fillers):
        """A job that fills the spool, which all launches here need, ends; so do those of the users `fillers`,
        by their ids: which of them has the file open takes long to find out."""
        fills = sum(map(rm_reports.takes_room, attempt.folder.of_the_user()))  # each of them is emptied
        if fills or attempt.meta.get("uid") in fillers:
            attempt.tell({"op": "stop", "why": FILLS % os.uname().nodename, "grace_us": 0})

    def _look_after(self, attempt, slices):
        if attempt.alive(slices):
            return
        if not attempt.settled() and not os.path.isdir(attempt.folder.path) and attempt.vanished < VANISHED:
            attempt.vanished += 1  # its supervisor gave the launch up, and is about to say why
            return
        self._look_again(attempt)

    def _look_again(self, attempt):
        """The supervisor is gone: report the ends that it could not report."""
        before = {rank for rank, line in attempt.ranks.items() if line["state"] in NOT_LIVE}
        self._refresh(attempt)
        ended = {rank for rank, line in attempt.ranks.items() if line["state"] in NOT_LIVE}
        for rank in sorted(ended - before):
            self._tell_exit(attempt, rank)
        self._settle(attempt)

    def _tell_exit(self, attempt, rank):
        left = attempt.left_folder()
        if left:
            self._guarded(attempt, self._read_reports)
        line = attempt.ranks[rank]
        keys = ("job", "attempt", "rank", "code", "signal", "started_us", "ended_us", "ran_us", "oom", "why",
                "epilog", "used", "whole")  # fmt: skip
        if left and rm_step_records.are_there(attempt.folder):
            self.tell_steps(attempt)  # first: the daemon then asks before it lets the attempt be forgotten
        log_bytes = attempt.log_bytes.get(rank)
        self.notify(dict({key: line[key] for key in keys}, log_bytes=log_bytes, event="exit"))

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
                self._guarded(attempt, lambda attempt, event=event: self._take(attempt, event))
        self._reap()

    def _take(self, attempt, event):
        kind = event["event"]
        if kind == "failed":
            del self.known[attempt.folder.job, attempt.folder.attempt]
            self.live.discard(attempt)
            for reply in attempt.waiting + attempt.discarding:
                reply(None, SpoolError(event["code"], event["error"]))
            return
        if attempt.orphan:
            return  # its supervisor, which has no order from us
        if kind == "started" and attempt.ranks[event["rank"]]["state"] in LIVE:
            attempt.ranks[event["rank"]].update(
                state="running", pid=event["pid"], started_us=event["started_us"]
            )
            self.notify(event)
        elif kind == "exit" and attempt.ranks[event["rank"]]["state"] not in NOT_LIVE:
            self._end(attempt, event["rank"], event)
            self._tell_exit(attempt, event["rank"])
        elif kind == "steps":
            self.on_steps(attempt)
        elif kind == "steps-recorded":
            self.tell_steps(attempt)
        elif kind == "asks":
            job, number = attempt.folder.job, attempt.folder.attempt
            self.notify({"event": "asked", "job": job, "attempt": number, "waiting": event["waiting"]})
        elif kind == "launched":
            attempt.meta = read_json(attempt.folder.at("meta.json")) or attempt.meta
            for line in attempt.ranks.values():
                if line["state"] == "launching":
                    # not started, and its end not yet reported: the exit that follows says why
                    line["state"] = "prepared" if attempt.meta.get("state") == "prepared" else "running"
            self._pay(attempt)
        self._settle(attempt)

    def tell_steps(self, attempt):
        self.notify({"event": "stepped", "job": attempt.folder.job, "attempt": attempt.folder.attempt})

    def _pay(self, attempt):
        for reply in attempt.waiting:
            reply(attempt.outcome())
        attempt.waiting = []

    def _settle(self, attempt):
        if attempt.live():
            return
        self._pay(attempt)
        if attempt in self.live:
            self.live.discard(attempt)
            self._close(attempt)
        for reply in attempt.discarding:
            self._forget((attempt.folder.job, attempt.folder.attempt))
            reply({})
        attempt.discarding = []

    def _close(self, attempt):
        """Its user writes to no file of it any more."""
        if attempt.is_done_with_folder():
            self._guarded(attempt, lambda attempt: attempt.folder.take_from_user())

    # iteration reports

    def _read_reports(self, attempt):
        items = []
        most = rm_reports.WINDOW_BYTES // len(attempt.ranks)
        for rank in attempt.ranks:
            path, offset = attempt.folder.reports(rank), attempt.offsets.get(rank, 0)
            if size_of(path) == offset:
                continue
            attempt.reported.add(rank)
            least = max(most, rm_reports.LINE_BYTES)
            found, attempt.offsets[rank], requeue = rm_reports.read(path, offset, least)
            if requeue and attempt.ranks[rank]["state"] in LIVE:
                attempt.tell({"op": "requeue"})
            items += [item for item in found if item[0] in attempt.ranks]
        if items:
            self.reported_at = time.monotonic()
            self.notify({"event": "iterations", "job": attempt.folder.job, "attempt": attempt.folder.attempt,
                         "items": items})  # fmt: skip


def _complain(about):
    sys.stderr.write("%s: %s" % (about, traceback.format_exc()))
