"""Transparent mode: profile, pause and regulate a job that knows nothing of rm.

Pausing freezes the job's processes: by its control group (v2 `cgroup.freeze`, v1 `freezer`), else by
SIGSTOP to each process. Whatever happens to this program, the job is thawed: on return, on any error, on
SIGTERM, SIGINT and SIGHUP, and, by a small watchdog process that holds the other end of a pipe, also when
this program is killed with SIGKILL or the freeze outlasts its time.
"""

import contextlib
import glob
import os
import select
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import rm_iteration
import rm_kernel
import rm_profile
import rm_reports
import rm_shape
from rm_freezer import LONGEST_US, Freezer
from rm_iteration import now_us, run_us
from rm_kernel import require

SAMPLE_US = 2_000
FINE_SAMPLES = 2_000  # of one watch; as many again are spread over the rest of a longer one
LOOK_S = 0.25  # between looks whether a job has begun to report by itself
QUIET_US = 8_000  # silence that ends a communication phase


@contextlib.contextmanager
def guarded(freezer):
    """While this lasts, a watchdog process thaws the job should this program die or stall."""
    reader, writer = os.pipe()
    watchdog = os.fork()
    if watchdog == 0:
        _watch_over(freezer, reader, writer)
    os.close(reader)
    before = {}
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        with contextlib.suppress(ValueError):  # not the main thread: the watchdog alone must do
            before[number] = signal.signal(number, _leave)
    try:
        yield lambda frozen: os.write(writer, b"1" if frozen else b"0")
    finally:
        freezer.thaw()
        os.close(writer)
        os.waitpid(watchdog, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave(number, _frame):
    raise SystemExit(128 + number)


def _watch_over(freezer, reader, writer):
    """The watchdog: thaws at end of file, and when a freeze lasts longer than LONGEST_US."""
    try:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        os.setsid()
        os.close(writer)
        frozen = False
        while True:
            ready, _, _ = select.select([reader], [], [], LONGEST_US / 1e6 if frozen else None)
            word = os.read(reader, 4096) if ready else b""
            if not word:
                if ready or frozen:
                    freezer.thaw()
                if ready:
                    os._exit(0)
            frozen = word.endswith(b"1")
    finally:
        os._exit(1)


def _hold(freezer, tell, length_us):
    """Freeze for `length_us`; how long it really was."""
    begin = time.monotonic_ns()
    tell(True)
    try:
        freezer.freeze()
        rm_iteration.sleep_us(min(length_us, LONGEST_US))
    finally:
        freezer.thaw()
        tell(False)
    return (time.monotonic_ns() - begin) // 1000


def pause(request):
    """Freeze the job's processes once, for `length_us` (at most 10 s), now.

    What runs on a GPU or in a timer is not delayed by a freeze that ends before they do: to move a job in
    time use `regulate`, which freezes when it counts.
    """
    job, attempt, length = require(request, "job", "attempt", "length_us")
    freezer = Freezer(job, attempt)
    if length <= 0:
        return {"paused_us": 0}
    with guarded(freezer) as tell:
        return {"paused_us": _hold(freezer, tell, length)}


# --- the job's own bytes ----------------------------------------------------------------------------


@contextlib.contextmanager
def _counted(request):
    """A function that reads the job's bytes so far; counts them first when nobody does.

    A shaped job's class counts what leaves the queue; the nftables counter, used otherwise, counts what
    enters it, which is early by as much as the queue holds.
    """
    job, interface = int(request["job"]), request["interface"]
    added, name = False, rm_shape.class_of(job, interface)
    if not name and str(job) not in rm_shape.job_bytes(interface):
        added = rm_shape.count(request)["added"]
    try:
        if name:
            yield lambda: rm_kernel.class_counters(interface).get(name, {"bytes": 0})["bytes"]
        else:
            yield lambda: rm_shape.job_bytes(interface).get(str(job), 0)
    finally:
        if added:
            rm_shape.unshape(request)


def _sent(interface):
    return rm_kernel.interface_counters(interface)[1]


def _ahead_us():
    """How far the wall clock, which may be set meanwhile, is ahead of `run_us`."""
    return now_us() - run_us()


def _sampled(read, duration_us):
    """Samples (time, what `read` gives) for `duration_us`: FINE_SAMPLES every SAMPLE_US, then rarer ones."""
    samples, begin, due_us, ahead = [], time.monotonic(), 0, _ahead_us()
    rare_us = max(SAMPLE_US, duration_us // FINE_SAMPLES)
    while due_us <= duration_us:
        samples.append((ahead + run_us(), read()))
        due_us += SAMPLE_US if len(samples) < FINE_SAMPLES else rare_us
        time.sleep(max(0.0, begin + due_us / 1e6 - time.monotonic()))
    return samples


def _best_counter(both):
    """0: the job's own counter; 1: the interface's, exact in time, when the job is alone on it."""
    mine, everything = (both[-1][1][n] - both[0][1][n] for n in (0, 1))
    return 1 if mine and 0.9 * mine <= everything <= 1.15 * mine else 0


def profile(request):
    """Period and phases from the job's own byte counter; offsets from the reported origins if it reports.

    `origin` says what offset 0 is: `reports` (the job's iteration origin) or `traffic` (the start of the
    communication phase that follows the longest silence).
    """
    job, attempt, interface, duration = require(request, "job", "attempt", "interface", "duration_us")
    with _counted(request) as read:
        both = _sampled(lambda: (read(), _sent(interface)), min(duration, 60_000_000))
    best = _best_counter(both)
    found = rm_profile.estimate_of_all([(at, counts[best]) for at, counts in both], SAMPLE_US, FINE_SAMPLES)
    origins, origin = found.pop("origins"), "traffic"
    starts = _reported_starts(job, attempt)
    if origins and starts and found["period_us"]:
        gaps = [at - max(s for s in starts if s <= at) for at in origins if starts[0] <= at]
        gaps = [gap for gap in gaps if gap < 1.5 * found["period_us"]]
        if len(gaps) >= 2:
            shift, origin = rm_profile.median(gaps), "reports"
            for phase in found["phases"]:
                phase[0] = int(phase[0] + shift) % found["period_us"]
    return dict(found, origin=origin)


def _reported_starts(job, attempt):
    """Origins of the latest iterations that a rank of the job on this host reported."""
    for path in sorted(_report_files(job, attempt)):
        starts = [item[2] for item in rm_reports.latest(path)]
        if starts:
            return sorted(starts)
    return []


def _report_files(job, attempt):
    """What the job's ranks on this host have reported by themselves, if they have."""
    found = glob.glob("%s/*/reports.jsonl" % glob.escape(rm_kernel.job_state(job, attempt)))
    return [path for path in found if rm_reports.size_of(path) > 0]


class Phases:
    """Finds the starts and ends of communication phases in a stream of byte counts. Pure.

    A phase begins when `need` bytes came within `window` microseconds, and ends after `quiet`
    microseconds below that rate.
    """

    def __init__(self, need_bytes, window_us=6_000, quiet_us=QUIET_US):
        self.need, self.window, self.quiet = need_bytes, window_us, quiet_us
        self.recent = []
        self.active, self.last_busy_us = False, 0

    def feed(self, at_us, count):
        """("start"|"end", time) when a phase begins or has ended, else None."""
        self.recent.append((at_us, count))
        while len(self.recent) > 2 and self.recent[1][0] <= at_us - self.window:
            self.recent.pop(0)
        busy = count - self.recent[0][1] >= self.need
        if busy:
            self.last_busy_us = at_us
            if not self.active:
                self.active = True
                grew = next(i for i in range(1, len(self.recent)) if self.recent[i][1] > self.recent[0][1])
                return "start", self.recent[grew - 1][0]
        elif self.active and at_us - self.last_busy_us >= self.quiet:
            self.active = False
            return "end", self.last_busy_us
        return None


def regulate(request):
    """Keep an unhooked job in its slots: watch its bytes, and when it is early, freeze it as it is about
    to communicate.

    The freeze begins shortly before the communication is expected, not in the middle of the computation:
    work that runs elsewhere (on a GPU, in a timer) goes on while the processes are frozen, and only what
    they would have started is delayed.

    An iteration is counted from one start of its (first) communication phase to the next; the schedule's
    instants are when that should start. The agent's schedule.json, when there is one, goes before the
    request's `schedule`. `phases` (default 1) is how many communication phases make one iteration.

    A job may report for the first time long after its start (importing a framework takes its time). Then
    it waits for its turn by itself, and this ends with `cooperative`.
    """
    job, attempt, interface, duration = require(request, "job", "attempt", "interface", "duration_us")
    freezer, notify = Freezer(job, attempt), request["notify"]
    schedule, path = request.get("schedule"), rm_kernel.job_state(job, attempt) + "/schedule.json"
    reader = rm_iteration.Iterations({"RM_SCHEDULE": path})
    period = int((reader.reload() or schedule or {}).get("period_us") or 0)
    quiet = int(request.get("quiet_us") or max(QUIET_US, period // 10))
    detector = Phases(int(request.get("need_bytes") or 12_000), quiet_us=quiet)
    each, rank = max(1, int(request.get("phases") or 1)), int(request.get("rank") or 0)
    origin, base, seen, iteration, pause_seq, waited, pauses, hold = None, [], 0, 0, 0, 0, 0, None
    end, looked = time.monotonic() + duration / 1e6, 0.0
    with _counted(request) as own, guarded(freezer) as tell:
        alone = _best_counter(_sampled(lambda: (own(), _sent(interface)), min(1_000_000, duration // 5)))
        read = (lambda: _sent(interface)) if alone else own
        while time.monotonic() < end:
            if time.monotonic() - looked > LOOK_S:
                looked = time.monotonic()
                if _report_files(job, attempt):
                    return {"iterations": iteration, "pauses": pauses, "cooperative": True}
            event = detector.feed(run_us(), read())
            if event and event[0] == "start" and seen % each == 0:
                if origin is not None:
                    length = event[1] - origin
                    notify({
                        "event": "iterations", "job": job, "attempt": attempt,
                        "items": [[rank, iteration, origin + _ahead_us(), length, min(waited, length), None]],
                    })  # fmt: skip
                    base = [*base[-8:], length - waited]
                    iteration += 1
                origin, waited, hold = event[1], 0, None
            if event and event[0] == "end":
                seen += 1
                current = reader.reload() or schedule
                expected = rm_profile.median(base) if len(base) >= 3 else _base(current or {})
                if current and origin is not None and seen % each == 0 and expected > 0:
                    due, ahead = int(origin + expected), _ahead_us()
                    wait = rm_iteration.wait_us(due + ahead, current, pause_seq, origin + ahead)
                    pause_seq = max(pause_seq, int(current.get("pause_seq") or 0))
                    margin = max(4_000, int(expected) // 32)
                    hold = (due - margin, due + wait - margin // 2, wait) if wait > 0 else None
            if hold and not detector.active and run_us() >= hold[0]:
                if hold[1] > run_us():
                    _hold(freezer, tell, hold[1] - run_us())
                    waited, pauses = hold[2], pauses + 1
                    detector.recent.clear()  # what came meanwhile says nothing about when
                hold = None
            time.sleep(SAMPLE_US / 1e6)
    return {"iterations": iteration, "pauses": pauses}


def _base(schedule):
    return int(schedule.get("period_us") or 0) - int(schedule.get("inject_us") or 0)


OPS = {}
SLOW_OPS = {"profile": profile, "pause": pause, "regulate": regulate}

if __name__ == "__main__":
    rm_kernel.serve_lines(SLOW_OPS)
