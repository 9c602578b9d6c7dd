"""The iteration client: a training loop says where its iterations begin, and keeps its place in time.

    from rm_iteration import iteration

    for batch in data:
        with iteration():
            train_step(batch)

Outside rm (no RM_SCHEDULE, no RM_REPORTS) this does nothing. Inside, each iteration first waits for its
turn as the job's schedule asks (docs/agent-protocol.md), then time-stamps its origin, and reports the
iteration before. It never raises into the training loop: on any error it warns once on standard
error and behaves as if there were no schedule.
"""

import atexit
import bisect
import contextlib
import json
import os
import signal
import sys
import time

MAX_BLIND_WAIT_US = 10_000_000  # bound of a wait while it is not known how long iterations take


def wait_us(now_us, schedule, last_pause_seq, previous_start_us):
    """Microseconds to wait at `now_us` before the next iteration may begin. Pure.

    `schedule` is the document's dict or None; `last_pause_seq` the last pause obeyed;
    `previous_start_us` the origin of the iteration before, or None. With e the time to the next
    instant epoch + shift + n*period: a new pause waits e once, at any length; a gate waits e when the
    job is early (tolerance < e <= period/2) and never when it is late; without a gate, adjust_us > 0
    waits e when the job is off by more than that, early or late. Else an injecting job does not begin
    before one effective period (which contains the injected time) after its previous origin; with a
    gate the grid itself injects, so that a late job uses its idle time to catch up.
    Never more than one period. With `starts_us`, the instants of a plan's round counted from its epoch, e is
    the time to the next of them (see `planned_start`), at any length, and never waited when late.

    A schedule is for iterations of its length. Where the one before took less than half of that, the profile
    is wrong and waiting would be most of the job's time: nothing is waited. Where none is known, or the clock
    was set back since, MAX_BLIND_WAIT_US is the most.
    """
    if not schedule:
        return 0
    took = 0 if previous_start_us is None else now_us - previous_start_us
    wait = _scheduled_wait_us(now_us, schedule, last_pause_seq, previous_start_us)
    if took <= 0:
        return min(wait, MAX_BLIND_WAIT_US)
    length = int((schedule.get("length_us") if schedule.get("starts_us") else schedule.get("period_us")) or 0)
    return 0 if 2 * took < length else wait


def _scheduled_wait_us(now_us, schedule, last_pause_seq, previous_start_us):
    period = int(schedule.get("period_us") or 0)
    pausing = int(schedule.get("pause_seq") or 0) > last_pause_seq
    if period <= 0:
        length = int(schedule.get("pause_length_us") or 0)
        return max(0, min(length, MAX_BLIND_WAIT_US)) if pausing else 0
    tolerance = max(0, int(schedule.get("tolerance_us") or 0))
    if schedule.get("starts_us"):
        early = planned_start(now_us, schedule, previous_start_us)[0] - now_us
        return min(early, period) if early > tolerance else 0
    anchor = int(schedule.get("epoch_us") or 0) + int(schedule.get("shift_us") or 0)
    early = (anchor - now_us) % period
    on_time = early <= tolerance or period - early <= tolerance
    if pausing:
        return 0 if on_time else early
    if schedule.get("gate"):
        return early if tolerance < early <= period // 2 else 0
    adjust = int(schedule.get("adjust_us") or 0)
    if adjust > 0 and adjust < early < period - adjust:
        return early
    if int(schedule.get("inject_us") or 0) > 0 and previous_start_us is not None:
        return max(0, min(period, previous_start_us + period - now_us))
    return 0


def planned_start(now_us, schedule, previous_start_us):
    """(instant, number in its round) of the iteration to begin next, by the plan in `schedule`. Pure.

    The one before is that which began last by `previous_start_us` and half an iteration: it may have been
    late by as much. Who is later than a whole iteration looks for the next instant that is still to come.
    """
    starts, period = schedule["starts_us"], int(schedule["period_us"])
    length, tolerance = int(schedule.get("length_us") or 0), int(schedule.get("tolerance_us") or 0)
    first = int(schedule.get("epoch_us") or 0) + int(starts[0])
    offsets = [int(start) - int(starts[0]) for start in starts]
    after = now_us - tolerance - 1 if previous_start_us is None else previous_start_us + length // 2
    rounds, offset = divmod(after - first, period)
    number = bisect.bisect_right(offsets, offset)
    if number == len(offsets):
        rounds, number = rounds + 1, 0
    instant = first + rounds * period + offsets[number]
    if previous_start_us is not None and instant + length < now_us:
        return planned_start(now_us, schedule, None)
    return instant, number


def sleep_us(length_us):
    """Sleep at least `length_us` microseconds, close to it: one long sleep, then short ones."""
    end = time.monotonic_ns() + int(length_us) * 1000
    while True:
        left = end - time.monotonic_ns()
        if left <= 0:
            return
        time.sleep((left - 1_000_000 if left > 2_000_000 else min(left, 250_000)) / 1e9)


def now_us():
    """Wall clock of this host, microseconds since the epoch."""
    return time.time_ns() // 1000


def run_us():
    """A clock that nobody sets, microseconds: durations are measured by it."""
    return time.monotonic_ns() // 1000


class Iterations:
    """The iterations of one rank: `start()` and `end()`, or `with Iterations() as …` per iteration.

    `environ` is read once: RM_SCHEDULE (path of schedule.json), RM_REPORTS (file to append to),
    RM_RANK or RANK. Not safe for several threads at once.
    """

    def __init__(self, environ=os.environ):
        self._schedule_path = environ.get("RM_SCHEDULE") or ""
        self._reports_path = environ.get("RM_REPORTS") or ""
        self.rank = _integer(environ.get("RM_RANK") or environ.get("RANK") or "0")
        self.active = bool(self._schedule_path or self._reports_path)
        self.schedule = None
        self.count = 0  # iterations begun
        self.waited_us = 0  # all waiting so far
        self.last_wait_us = 0
        self._seen = None  # identity of the schedule file as last parsed
        self._reports = None
        self._pause_seq = 0
        self._origin_us = None
        self._began_us = None  # the same instant by the clock that nobody sets
        self._end_us = None
        self._comm_us = None
        self._comm_from_us = None
        self._communicates = False
        self._sends = 0, 0  # bit/s to each other host, 0: as fast as it goes; code point
        self._turn = None  # of its communications, where they are admitted
        self._communications = 0  # begun
        self._turned_us = 0  # waited for turns in this iteration
        self._warned = False
        if self.active:
            atexit.register(self.close)

    def start(self):
        """Wait for the job's turn, report the iteration before, begin the next one."""
        if not self.active:
            return
        try:
            self._read_schedule()
            at, before = now_us(), run_us()
            # where the iteration before began by the clock of now, which may have been set since
            previous = None if self._origin_us is None else at - (before - self._began_us)
            wait = wait_us(at, self.schedule, self._pause_seq, previous)
            if self.schedule:
                self._pause_seq = max(self._pause_seq, int(self.schedule.get("pause_seq") or 0))
            try:
                self._send_as_planned(at, previous)
            except Exception as error:
                self._warn(error)
            if wait > 0:
                sleep_us(wait)
            origin, began = now_us(), run_us()
            self.last_wait_us = began - before if wait > 0 else 0
            self.waited_us += self.last_wait_us
            self._report(began, self.last_wait_us)
            self._origin_us, self._began_us = origin, began
            self._end_us, self._comm_us, self._turned_us = None, None, 0
            self.count += 1
        except Exception as error:  # training must continue after any error here
            self._warn(error)
            self._origin_us = None

    def _send_as_planned(self, now, previous):
        """Rate and code point of what the process sends in the iteration that is about to begin."""
        wanted, schedule = (0, 0), self.schedule
        if schedule and (schedule.get("paces_bps") or schedule.get("dscps")):
            number = planned_start(now, schedule, previous)[1]
            wanted = tuple(int((schedule.get(key) or [0])[number:][:1][0]) for key in ("paces_bps", "dscps"))
        if wanted != self._sends:
            self._sends = wanted
            import rm_sending

            rm_sending.send(*wanted)

    def end(self):
        """The iteration's work is done. Optional: it bounds the last iteration's duration."""
        if self.active and self._origin_us is not None:
            self._end_us = run_us()

    def reload(self):
        """The schedule as it is now, None when there is none or it cannot be read."""
        try:
            self._read_schedule()
        except Exception as error:
            self._warn(error)
        return self.schedule

    def asks(self):
        """Does rm admit single transfers of the job at present?"""
        return bool(self.active and self._schedule_path) and os.path.exists(self._admission_path())

    def communication_starts(self, timed=True):
        """Communication begins (optional; makes the reports carry `comm_us`, if it is `timed`). Waits for the
        job's turn on its links, where rm admits single transfers."""
        if self.active:
            self._communications += 1
            if self._schedule_path:
                try:
                    self._await_turn()
                except Exception as error:
                    self._warn(error)
            self._communicates, self._comm_from_us = True, run_us() if timed else None

    def _admission_path(self):
        return os.path.join(os.path.dirname(self._schedule_path), "admission")

    def _await_turn(self):
        if self._turn is None:
            import rm_turn

            self._turn = rm_turn.Turn(self._admission_path(), self.rank)
        waited = self._turn.ask(self._communications)
        self._turned_us += waited
        self.waited_us += waited

    def communication_ends(self):
        """Communication ends; several spans in one iteration are summed."""
        if not self.active or not self._communicates:
            return
        self._communicates = False
        if self._comm_from_us is not None:
            self._comm_us = (self._comm_us or 0) + run_us() - self._comm_from_us
            self._comm_from_us = None
        if self._turn is not None:
            self._turn.over(self._communications)

    def close(self):
        """Report the last iteration (up to its end) and stop. Called at exit."""
        if not self.active:
            return
        try:
            self._report(self._end_us or run_us(), 0)
        except Exception as error:
            self._warn(error)
        self._origin_us = None
        self.active = False
        if self._turn is not None:
            self._turn.close()
        if self._reports is not None:
            os.close(self._reports)
            self._reports = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.end()
        return False

    def _read_schedule(self):
        """Parse schedule.json when its identity changed; a missing file is not a schedule."""
        if not self._schedule_path:
            return
        try:
            stat = os.stat(self._schedule_path)
        except FileNotFoundError:
            self.schedule, self._seen = None, None
            return
        seen = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
        if seen == self._seen:
            return
        self._seen, self.schedule = seen, None
        with open(self._schedule_path, encoding="utf-8") as file:
            schedule = json.load(file)
        if schedule is not None and not isinstance(schedule, dict):
            raise ValueError("the schedule is not a JSON object")
        wait_us(0, schedule, 0, 0)  # refuse wrong types here, once, and not at every iteration
        self.schedule = schedule

    def _report(self, until_us, paused_us):
        """One line [rank, n, start_us, duration_us, paused_us, comm_us]; `until_us` by `run_us`."""
        if self._origin_us is None or not self._reports_path:
            return
        if self._reports is None:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            self._reports = os.open(self._reports_path, flags, 0o644)
        duration = until_us - self._began_us
        paused_us += self._turned_us
        line = [self.rank, self.count - 1, self._origin_us, duration, paused_us, self._comm_us]
        os.write(self._reports, (json.dumps(line) + "\n").encode())

    def _warn(self, error):
        if not self._warned:
            self._warned = True
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.write("rm_iteration: %s; iterations are not coordinated\n" % (error,))


class _Communication:
    def __enter__(self):
        current().communication_starts()

    def __exit__(self, *_):
        current().communication_ends()
        return False


_current = None


def current():
    """The process's Iterations, made at first use."""
    global _current
    if _current is None:
        _current = Iterations()
    return _current


def iteration():
    """`with iteration(): …` around one step of the training loop."""
    return current()


def communication():
    """`with communication(): …` around the communication inside an iteration (optional)."""
    return _Communication()


def requeue():
    """Put this job back into the queue: its processes get SIGTERM as on a cancel, and it keeps its id.
    `python3 -m rm_iteration requeue` does the same.

    For a handler of the signal that `--signal` asks for, once the state is saved. False outside rm.
    """
    path = os.environ.get("RM_REPORTS")
    if not path:
        return False
    with open(path, "ab", buffering=0) as file:
        file.write(b'\n["requeue"]\n')
    return True


def _integer(text):
    try:
        return int(text)
    except ValueError:
        return 0


if __name__ == "__main__":
    if sys.argv[1:] != ["requeue"]:
        sys.exit("usage: python3 -m rm_iteration requeue")
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # which may come before it has ended: that is no failure
    if not requeue():
        sys.exit("This is no task of a job of rm: RM_REPORTS is not set.")
