"""What the daemon may ask of the agent about attempts: launch, start, stop, signal, renew, tasks, discard,
adopt, logs, schedule. Each takes the request and a function for a reply that comes later; it returns the
result, or None when it will reply later.
"""

import base64
import contextlib
import json
import os
import signal
import socket
import time

import rm_logs
import rm_signalled
import rm_step_records
import rm_used_now
from rm_attempt import NOT_LIVE, Attempt, untold
from rm_attempts import Attempts
from rm_cgroup import Group
from rm_ends import KEEP_S
from rm_fence_mounts import remove_temporary
from rm_files import read_json, write_bytes, write_json
from rm_lease import Lease, alive_us
from rm_reports import size_of
from rm_request import checked_launch, heard_of, name_of, not_too_late, number, user_of
from rm_slice import Member, Slice, checked_slice
from rm_spool import NO_ROOM, SpoolError, boot_id
from rm_task import spawn

REPLY_BYTES = 2 << 20
# below those that Linux gives to outgoing connections
FIRST_PORT, PORTS = 20_000, 12_000


class Operations(Attempts):
    def launch(self, request, reply):
        job, count = name_of(request)
        attempt = self.known.get((job, count))
        if attempt is None and self.spool.gone(job, count):
            raise SpoolError("discarded", "Attempt %d of job %d was discarded on this host." % (count, job))
        if attempt is None:
            not_too_late(request)
            request = checked_launch(request)
            if request["lease_us"] and Lease(request["lease_us"], 0, request["heard_us"]).left_us() <= 0:
                raise SpoolError("too-late", "The lease of job %d was over before its launch came." % job)
            user = user_of(request)
            fence = self.fences.of(request, user, self._held_cores())
            folder = self.spool.folder(job, count)
            try:
                lock = folder.lock()
            except OSError:
                with contextlib.suppress(OSError):
                    os.rmdir(folder.path)
                raise
            if lock is not None and read_json(folder.at("meta.json")) is None:
                attempt = self._launch(folder, request, user, fence, lock)
            else:
                if lock is not None:
                    os.close(lock)
                self._adopt(folder)  # another agent launched it
                attempt = self.known[job, count]
        if attempt.settled():
            return attempt.outcome()
        attempt.waiting.append(reply)
        return None

    def _launch(self, folder, request, user, fence, lock):
        request["port"] = self._free_port() if request["master_port"] else 0
        try:
            folder.fill([task["rank"] for task in request["tasks"]], request["script"], user.uid, user.gid)
            group = self.hierarchy.group(folder.job, folder.attempt)
            attempt = Attempt(folder)
            attempt.ranks = {task["rank"]: untold(folder, task["rank"]) for task in request["tasks"]}
            self.reported_at, attempt.cores = time.monotonic(), fence.cores
            self.known[folder.job, folder.attempt] = attempt
            self.live.add(attempt)
            self.supervisors.add(spawn(folder, group, request, user, fence, lock, self.events_path))
        except Exception:
            self.live.discard(self.known.pop((folder.job, folder.attempt), None))
            folder.remove()
            os.close(lock)
            raise
        return attempt

    def _held_cores(self):
        """Processors that attempts here have for themselves, but of those that lend them."""
        holding = [attempt for attempt in self.live if not attempt.lends]
        return {cpu for attempt in holding for cpu in attempt.cores or attempt.meta.get("cores", ())}

    def _free_port(self):
        """Where the tasks of an attempt meet: at random, so that nobody takes it beforehand; free now, and no
        other attempt's. Of the kernel's own ports only where all of ours are taken."""
        taken = {attempt.meta.get("master_port") for attempt in self.live}
        for _ in range(200):
            port = FIRST_PORT + int.from_bytes(os.urandom(4), "big") % PORTS
            if port not in taken and _bound(port):
                return port
        return _bound(0)

    def start(self, request, reply):
        attempt = self._get(request)
        if all(line["state"] == "prepared" for line in attempt.ranks.values()):
            not_too_late(request)
            for line in attempt.ranks.values():
                line["state"] = "launching"
            port = number(request.get("master_port") or 0, "master_port")
            if not attempt.tell({"op": "start", "master_port": port}):
                self._look_again(attempt)
        if attempt.settled():
            return attempt.outcome()
        attempt.waiting.append(reply)
        return None

    def slice(self, request, reply):
        """Several attempts of one task each, run one after the other by one supervisor. All are taken, or
        none: those that were discarded here are named, and those that are known need nothing."""
        first = checked_launch(request["first"])
        names = [name_of(request["first"])]
        names += [name_of(follower) for follower in request["followers"]]
        new = {name for name in names if name not in self.known}
        gone = self.spool.gone_of(name for name in names if name in new)
        new.difference_update(gone)
        if new:
            not_too_late(request["first"])
            until_us = request["first"]["not_after_us"]
            within_us = number(request.get("within_us"), "within_us")
            first["port"] = self._free_port() if first["master_port"] else 0
            named = [m for m in checked_slice(first, names, request["followers"]) if m[0] in new]
            members = [Member(place, *m) for place, m in enumerate(named)]
            user = user_of(first)
            self._launch_slice(members, first, user, until_us, within_us)
        return {"refused": gone}

    def _launch_slice(self, members, first, user, until_us, within_us):
        fence = self.fences.of(first, user, self._held_cores())
        folder = self.spool.slice_folder(*members[0].name)
        lock = folder.lock()
        if lock is None:
            raise SpoolError("still-running", "Another agent of this host launches this slice.")
        try:
            write_json(folder.at("members.json"), [member.name for member in members], sync=True)
            if fence.cores:
                write_json(folder.at("cores.json"), fence.cores, sync=True)
            os.mkfifo(folder.at("control"), 0o600)
            for member in members:
                attempt = Attempt(self.spool.folder(*member.name))
                attempt.slice, attempt.place = folder, member.place
                attempt.cores = fence.cores
                attempt.ranks = {0: dict(untold(attempt.folder, 0), state="prepared")}
                self.known[member.name] = attempt
                self.live.add(attempt)
            self.reported_at = time.monotonic()
            runner = Slice(self.spool, self.hierarchy, folder, members, user, fence, self.events_path)
            self.supervisors.add(runner.spawn(lock, until_us, within_us))
        except Exception:
            for member in members:
                self.live.discard(self.known.pop(member.name, None))
            folder.remove()
            os.close(lock)
            raise

    def stop(self, request, reply):
        attempt = self._get(request)
        why, grace_us = request.get("why", "cancel"), request.get("grace_us", 0)
        if not isinstance(why, str):
            raise ValueError("why is a string")
        words = {"op": "stop", "why": why[:200], "grace_us": number(grace_us, "grace_us"),
                 "warn_us": number(request.get("warn_us", 0), "warn_us")}  # fmt: skip
        return self._order(attempt, words)

    def _order(self, attempt, words):
        """Tell its supervisor, unless it has ended. One that lives and has no room for it is asked later."""
        if attempt.live() and not attempt.tell(words):
            self._look_again(attempt)
            if attempt.live() and attempt.alive():
                raise SpoolError("too-late", "The supervisor of job %d on %s does not read its orders."
                                 % (attempt.folder.job, os.uname().nodename))  # fmt: skip
        return {}

    def limit(self, request, reply):
        attempt = self._get(request)
        limit_us = number(request.get("time_limit_us", 0), "time_limit_us")
        return self._order(attempt, {"op": "limit", "time_limit_us": limit_us})

    def freeze(self, request, reply):
        attempt = self._get(request)
        frozen, order = request.get("frozen"), number(request.get("order", 0), "order")
        if not isinstance(frozen, bool):
            raise ValueError("frozen is true or false")
        if order > attempt.ordered:  # while it stands still for others, these may have its processors
            attempt.ordered, attempt.lends = order, frozen and request.get("lends") is True
            self._note_lending(attempt)
        return self._order(attempt, {"op": "freeze", "frozen": frozen, "order": order})

    @staticmethod
    def _note_lending(attempt):
        """For the next agent. Where there is no space, it takes the processors for held."""
        path = attempt.folder.at("lends.json")
        try:
            write_json(path, [attempt.ordered, attempt.lends], sync=True)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(path)

    def signal(self, request, reply):
        attempt = self._get(request)
        which = request.get("signal")
        if isinstance(which, str):
            name = which if which.startswith("SIG") else "SIG" + which
            which = getattr(signal, name, None)
        if not isinstance(which, int) or not 0 < which < signal.NSIG:
            raise ValueError("signal %r is not a signal's number" % request.get("signal"))
        to = request.get("to", rm_signalled.STEPS)
        if to not in (rm_signalled.STEPS, rm_signalled.SCRIPT, rm_signalled.ALL):
            raise ValueError("a signal goes to steps, script or all, not to %r" % (to,))
        if attempt.live() and not attempt.tell({"op": "signal", "signal": int(which), "to": to}):
            self._look_again(attempt)
        return {}

    def renew(self, request, reply):
        """The daemon leads: the leases of everything that runs here count from `heard_us` on. It learns what
        time it is here now, for the next renewal."""
        heard_us = heard_of(number(request.get("heard_us", 0), "heard_us"))
        for attempt in self.live:
            if heard_us and attempt.meta.get("lease_us"):
                attempt.tell({"op": "renew", "heard_us": heard_us})
        return {"alive_us": alive_us()}

    def tasks(self, request, reply):
        lines = []
        for attempt in self.known.values():
            for rank, line in sorted(attempt.ranks.items()):
                spoke = rank in attempt.reported or size_of(attempt.folder.reports(rank)) > 0
                given = attempt.meta.get("given", {})
                lines.append(dict(line, cooperative=spoke, cpus=given.get("cpus", 0),
                                  mem_bytes=given.get("mem_bytes", 0),
                                  gpus=given.get("gpus", {}).get(str(rank))))  # fmt: skip
            if rm_step_records.are_there(attempt.folder):
                self.tell_steps(attempt)  # whoever asks may not know of the last ones
        self.ends.prune(number(request.get("keep_s", KEEP_S), "keep_s"))
        asked = {number(job, "job"): number(count, "attempt") for job, count in request.get("about", ())}
        return {"tasks": lines, "remembered": self.ends.of(asked)}

    def job_steps(self, request):
        """What is recorded of the attempt's steps, from a byte of the record on."""
        offset = number(request.get("offset", 0), "offset")
        records, offset, more = rm_step_records.read(self._get(request).folder, offset)
        return {"steps": records, "offset": offset, "more": more}

    def used_now(self, request):
        """A function that finds what the attempt uses now, for a process of its own: there may be many
        processes to look at."""
        folder = self._get(request).folder
        meta = read_json(folder.at("meta.json")) or {}
        group = Group(meta.get("cgroup") or "")
        return lambda _: {"lines": rm_used_now.of_attempt(group, meta.get("supervisor"))}

    def discard(self, request, reply):
        job, count = name_of(request)
        attempt = self.known.get((job, count))
        if attempt is None:
            self._forget((job, count))
            return {}
        if any(line["state"] in ("running", "launching") for line in attempt.ranks.values()):
            raise SpoolError(
                "still-running", "Job %d still runs on %s: stop it first." % (job, os.uname().nodename)
            )
        if attempt.live():
            attempt.discarding.append(reply)
            if not attempt.tell({"op": "stop", "why": "discard", "grace_us": 0}):
                self._look_again(attempt)
            return None
        self._forget((job, count))
        return {}

    def forget(self, request, reply):
        """Of many: those that have not ended are left."""
        names = [(number(job, "job"), number(count, "attempt")) for job, count in request["attempts"]]
        left = [name for name in names if name in self.known and self.known[name].live()]
        self._forget(*(name for name in names if name not in left))
        return {"left": left}

    def adopt(self, request):
        """Belong to a cluster: the first that asks, or one that names the one that it is to replace. Then
        nothing of that one is left here; while its tasks run, nothing changes. And have one name there."""
        cluster, led_at = str(request["cluster"]), str(request.get("led_at", ""))
        mine, _ = self.spool.cluster()
        if mine not in ("", cluster):
            if request.get("instead_of") != mine:
                self.spool.check_cluster(cluster)
            live = [attempt for attempt in self.known.values() if attempt.live()]
            for attempt in live if request.get("stop_jobs") else ():
                if not attempt.tell({"op": "stop", "why": "abort", "grace_us": 0}):
                    self._look_again(attempt)
            if live:
                return {"running": sorted({attempt.folder.job for attempt in live})}
            self._forget(*self.known)
        self.spool.join(cluster, led_at, mine)
        name = self.spool.take_name(str(request.get("host", "")), str(request.get("renamed_from", "")))
        return {"running": [], "known_as": name}

    def _forget(self, *names):
        """What has ended, or was never here: a launch of it that is still under way is refused."""
        try:
            self.spool.mark_gone(*names)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            self.still_open.look()  # the room that is missing may be there, or theirs
            for name in names:
                if name in self.known:
                    self.known[name].folder.empty()
            self.spool.mark_gone(*names)
        self.ends.remember([self.known[name] for name in names if name in self.known])
        for name in names:
            attempt = self.known.get(name)
            if attempt is None:
                continue
            if attempt.slice is None:
                self.hierarchy.group(*name).remove()
            self._remove_temporary(attempt.meta.get("temporary"))
            attempt.folder.remove()
            del self.known[name]
            if attempt.slice is not None:
                self.slices.add(attempt.slice)
        # a supervisor that is about to end is met by the next discard
        self.slices = {folder for folder in self.slices if not self._forget_slice(folder)}

    def _remove_temporary(self, home):
        """What a supervisor that was killed left of a job's own /tmp; it may hold a million files."""
        if home and os.path.isdir(home):
            pid = os.fork()
            if pid == 0:
                try:
                    remove_temporary(home)
                finally:
                    os._exit(0)
            self.supervisors.add(pid)

    def logs(self, request):
        """The answer, or a function that finds it, for a process of its own: a file of the user's can lie
        on a file system that keeps its reader waiting."""
        job, count = name_of(request)
        if self.spool.gone(job, count):  # also by another agent, which this one has not heard of
            # the daemon had all that it wanted of the logs
            raise SpoolError("discarded", "Attempt %d of job %d was discarded on this host." % (count, job))
        attempt = self._get(request)
        rank, stream = request.get("rank", 0), request.get("stream", "out")
        offset = number(request.get("offset", 0), "offset")
        limit = min(number(request.get("limit", 1 << 18), "limit"), REPLY_BYTES)
        if rank not in attempt.ranks:
            raise SpoolError(
                "no-such-task", "Job %d has no rank %s on this host." % (attempt.folder.job, rank)
            )
        if stream not in ("out", "err"):
            raise ValueError("stream is out or err")
        ended = attempt.ranks[rank]["state"] in NOT_LIVE
        attempt.meta = attempt.meta or read_json(attempt.folder.at("meta.json")) or {}
        task = attempt.meta.get("tasks", {}).get(str(rank), {})

        def answer(data, begin, size, kept, whole=0):
            end = begin + len(data)
            lacks = {"lacks_bytes": whole - size} if size < whole else {}
            return {"data": base64.b64encode(data).decode(), "offset": end, "size": size, "kept_bytes": kept,
                    "done": ended and end >= size, **lacks}  # fmt: skip

        path = task.get(stream)
        # an agent older than this one named the spool's file by its path
        spooled = task.get("spooled", task.get("out") == attempt.folder.at(str(rank), "out"))
        if stream == "out" and (spooled or not task):  # a full disk took no note of how it began
            # a crash may have taken what the disk did not have yet of the log, and left the record of its end
            crashed = ended and attempt.meta.get("boot_id") != boot_id()
            whole = attempt.log_sizes.get(rank) if crashed else 0
            return answer(*rm_logs.read_spooled(attempt.folder, rank, offset, limit), whole or 0)
        if not path or (stream == "err" and path == task.get("out")):  # merged, or never opened
            return answer(b"", offset, 0, 0)
        if ended:  # the file may be another attempt's, too
            attempt.meta = read_json(attempt.folder.at("meta.json")) or attempt.meta
            task = attempt.meta.get("tasks", {}).get(str(rank), task)
        bounds = task.get(stream + "_begin", 0), task.get(stream + "_end")
        return lambda _: answer(*rm_logs.read_as(attempt.meta, path, offset, limit, *bounds))

    def schedule(self, request, reply):
        attempt = self._get(request)
        path, schedule = attempt.folder.at("schedule.json"), request.get("schedule")
        if not attempt.live():
            return {}  # its folder may be the next one's
        if schedule is not None:
            write_bytes(path, json.dumps(schedule).encode(), 0o644)
        elif os.path.exists(path):
            os.unlink(path)
        return {}

    def admission(self, request, reply):
        most_us = number(request.get("most_us", 0), "most_us")
        self.admissions.order(self._get(request), most_us)
        return {}

    def admit(self, request, reply):
        self.admissions.admit(name_of(request), number(request.get("number"), "number"))
        return {}

    def hold(self, request, reply):
        most_us = number(request.get("most_us", 0), "most_us")
        self.admissions.hold(name_of(request), number(request.get("number"), "number"), most_us)
        return {}

    def stream(self, request, reply):
        attempt = self.known.get(name_of(request))
        return self.streams.deliver(
            attempt.folder if attempt is not None and attempt.live() else None, request
        )

    def _get(self, request):
        job, count = name_of(request)
        attempt = self.known.get((job, count))
        if attempt is None:
            raise SpoolError("no-such-attempt", "Attempt %d of job %d is not on %s."
                             % (count, job, os.uname().nodename))  # fmt: skip
        return attempt


def _bound(port):
    """The port that can be listened at now; 0 when this one cannot."""
    with socket.socket() as trying:
        try:
            trying.bind(("", port))
        except OSError:
            return 0
        return trying.getsockname()[1]
