"""What is recorded of a job's steps: a file in the attempt's folder, on the job's first host.

The step daemon (rm_stepd.py) writes a line when a step begins and one when it ends, and another one where a
host tells later what the step used there; each says all that those before it said. The agent reads it, for
the daemon. It outlives both.
"""

import json
import os
import time

import rm_step_used

FILE = "steps.recorded"
STEPS = 10_000  # of an attempt; no later ones are recorded
WORDS = 200  # characters of a step's name
LINE = 500  # of what was typed for it
HOSTS = 2_000  # characters of its list of hosts
READ_BYTES = 256 << 10
LATE = 64  # steps that have ended, of which hosts may still tell
LATE_WORDS = 4  # that a host may say of one: a lying one does not fill the first host's disk
CODE_MAX = 255
WHYS = ("", "cancelled", "timeout")


def now_us():
    return time.time_ns() // 1000


class Records:
    """The step daemon's side; `next` is the number of the attempt's next step. What the disk refuses is
    lost: no step waits for it."""

    def __init__(self, folder):
        self.path = folder.at(FILE)
        self.running = {}  # step -> what was said of it
        self.over = {}  # of those that have ended while hosts may still tell what they used
        self.told = {}  # step -> {host: what it used there, as rm_step_used has it, None: nothing yet}
        self.late = {}  # (step, host) -> how often it told after the step's end
        self.next = self.count = 0
        self.torn = False  # a full disk has cut the last line: the next begins one of its own
        try:
            with open(self.path, "rb") as file:
                for line in file:
                    self.torn = not line.endswith(b"\n")
                    self.next = max(self.next, _number(line) + 1)
        except OSError:
            pass
        self.count = self.next

    def begun(self, step, parts, folded_hosts, name, typed):
        """`parts`: those of the step, as rm_step_plan lays them out, with what they hold; `typed`: for it."""
        if self.count >= STEPS:
            return
        self.count += 1
        hosts = folded_hosts([part["host"] for part in parts])
        if len(hosts) > HOSTS:
            hosts = hosts[:HOSTS].rpartition(",")[0] + ",..."
        self.running[step] = {
            "step": step, "name": _printable(name[:WORDS]), "typed": _printable(typed[:LINE]),
            "hosts": hosts, "hosts_count": len(parts),
            "tasks": sum(len(part["ranks"]) for part in parts),
            "cpus": sum(part["holds"][0] for part in parts), "started_us": now_us(),
        }  # fmt: skip
        self.told[step] = {part["host"]: None for part in parts}
        self._write(self.running[step])

    def ended(self, step, said):
        """`said`: how it ended, as srun told, or None: it told nothing."""
        record = self.running.pop(step, None)
        if record is None:
            return
        code, number, why = said or (None, None, "cancelled")
        record = dict(record, ended_us=now_us(), code=code, signal=number, why=why)
        self.over[step] = record
        if len(self.over) > LATE:
            self._forget(next(iter(self.over)))
        self._write_used(step, record)

    def used(self, step, host, used):
        """What it used so far on one of its hosts; was there something to write?"""
        if step not in self.running and step not in self.over:
            return False
        known = self.told[step]
        if known.get(host, used) == used:  # it was said again, or by a host that is not the step's
            return False
        if step not in self.over:
            known[host] = used
            return False
        words = self.late[step, host] = self.late.get((step, host), 0) + 1
        if words > LATE_WORDS:
            return False
        known[host] = used
        self._write_used(step, self.over[step])
        return True

    def _forget(self, step):
        self.over.pop(step, None)
        for host in self.told.pop(step, ()):
            self.late.pop((step, host), None)

    def _write_used(self, step, record):
        told = [(host, used) for host, used in self.told[step].items() if used is not None]
        self._write(dict(record, used=rm_step_used.together(told)) if told else record)

    def _write(self, record):
        line = json.dumps(record, separators=(",", ":")).encode() + b"\n"
        try:
            fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                if self.torn:
                    line = b"\n" + line
                self.torn = os.write(fd, line) < len(line)
            finally:
                os.close(fd)
        except OSError:
            pass


def _printable(text):
    return "".join(c if c.isprintable() else "?" for c in text)


def _number(line):
    try:
        return int(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return -1  # a full disk has cut it


def how_ended(said):
    """What srun says of the end of its step; ValueError, TypeError or KeyError for what it never says."""
    code, number, why = said["code"], said["signal"], said["why"]
    if not (type(code) is int and 0 <= code <= CODE_MAX and type(number) is int and 0 <= number <= 64):
        raise ValueError("no step ends with %.20r and %.20r" % (code, number))
    if why not in WHYS:
        raise ValueError("a step ends for no such reason as %.20r" % (why,))
    return code, number, why


def read(folder, offset):
    """The records from a byte on: (records, where the next ones begin, are there more)."""
    try:
        with open(folder.at(FILE), "rb") as file:
            file.seek(offset)
            data = file.read(READ_BYTES)
            more = bool(file.read(1))
    except OSError:
        return [], offset, False
    data = data[: data.rfind(b"\n") + 1]
    records = []
    for line in data.splitlines():
        try:
            records.append(json.loads(line))
        except ValueError:
            continue  # a full disk has cut it
    return records, offset + len(data), more and bool(data)


def are_there(folder):
    return os.path.exists(folder.at(FILE))
