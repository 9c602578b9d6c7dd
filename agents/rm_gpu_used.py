"""How busy the GPUs of attempts are, by looking at them from time to time: what the driver counts belongs to
no process, so that the GPUs' own numbers are those of the attempts that have them.

What is found is kept in the attempt's folder, so that the next agent goes on with it. There is also what was
seen last, for the steps of the attempt (rm_step_gpus.py).
"""

import contextlib
import json
import os
import subprocess
import time

from rm_files import read_json, write_bytes
from rm_news import now_us

FILE = "gpus.used"
SEEN = "gpus.seen"
LOOK_S = 10.0
STALE_US = int(3 * LOOK_S * 1e6)  # what is longer ago nobody has looked at
ANSWER_S = 30.0  # a driver that hangs is asked again at the next look
QUERY = ("index", "uuid", "utilization.gpu", "memory.used", "power.draw")
KEYS = ("gpu_us", "gpu_busy_us", "gpu_mem_bytes", "energy_mj")


class Gpu:
    """One GPU at one look. `busy`: a share, `power_w` and `mem_bytes`: 0 where the driver does not say it."""

    def __init__(self, words):
        self.words = words  # by QUERY
        self.names = set(words[:2])
        self.busy = float(words[2]) / 100
        self.mem_bytes, self.power_w = int(_number(words[3])) << 20, _number(words[4])


def looked(text):
    """The GPUs in an answer of nvidia-smi. One without a utilisation (`[N/A]` where it is cut into instances)
    is none that can be watched."""
    found = []
    for line in text.splitlines():
        words = [word.strip() for word in line.split(",")]
        if len(words) == len(QUERY) and words[0].isdigit() and words[2].isdigit():
            found.append(Gpu(words))
    return found


def _number(word):
    return float(word) if word.replace(".", "", 1).isdigit() else 0.0


def kept(folder):
    """What earlier agents have found of an attempt: numbers as KEYS; None when there is nothing."""
    found = read_json(folder.at(FILE))
    good = isinstance(found, list) and len(found) == len(KEYS) and all(type(n) is int for n in found)
    return found if good else None


def seen(folder):
    """(when, GPUs) of the last look at those of an attempt; (0, []) where there is none."""
    try:
        found = read_json(folder.at(SEEN))
        return found["at_us"], [Gpu(words) for words in found["gpus"]]
    except (TypeError, LookupError, ValueError):
        return 0, []


def told(attempt, ended_us):
    """What its GPUs did, by KEYS: from the last look to its end they went on as they were then."""
    numbers = attempt.gpus_used
    if attempt.gpus_last:
        at_us, gpus = attempt.gpus_last
        numbers = added(numbers, max(0, min(ended_us - at_us, int(LOOK_S * 1e6))), gpus)
    return {key: numbers[place] for place, key in enumerate(KEYS)} if numbers else {}


def added(numbers, us, gpus):
    """The numbers, after `us` more microseconds in which these GPUs were as at this look."""
    watched, busy, most, energy = numbers or (0, 0, 0, 0)
    return [
        watched + us * len(gpus),
        busy + sum(int(us * gpu.busy) for gpu in gpus),
        max(most, *(gpu.mem_bytes for gpu in gpus)),
        energy + sum(int(us * gpu.power_w / 1000) for gpu in gpus),
    ]


def _began_s(attempt):
    """How long ago an attempt began that is looked at for the first time, but at most a look; 0 where an
    earlier agent has looked."""
    started = [line["started_us"] for line in attempt.ranks.values() if line["started_us"]]
    if attempt.gpus_used or not started:
        return 0.0
    return min(LOOK_S, max(0.0, (now_us() - min(started)) / 1e6))


class GpuWatch:
    """Of all attempts that run here. `program` finds nvidia-smi, "" where there is none."""

    def __init__(self, attempts, program):
        self._attempts, self._program = attempts, program
        self._asked, self._process = 0.0, None  # since when, monotonic seconds
        self._before = {}  # attempt -> when its GPUs were looked at last, or first could be

    def tick(self):
        """Never waits: the loop comes by each second while anything runs."""
        now = time.monotonic()
        if self._process is not None:
            self._hear(now)
        elif now >= self._asked + LOOK_S:
            self._ask(now)

    def _watched(self):
        """attempt -> the names of its GPUs."""
        found = {}
        for attempt in self._attempts.live:
            given = attempt.meta.get("given", {}).get("gpus", {})
            names = {name for gpus in given.values() for name in gpus}
            if names and any(line["state"] == "running" for line in attempt.ranks.values()):
                found[attempt] = names
        return found

    def _ask(self, now):
        watched = self._watched()
        self._before = {
            attempt: self._before[attempt] if attempt in self._before else now - _began_s(attempt)
            for attempt in watched
        }
        tool = self._program() if watched else ""
        self._asked = now
        if tool:
            query = ["--query-gpu=" + ",".join(QUERY), "--format=csv,noheader,nounits"]
            with contextlib.suppress(OSError):  # it was taken away just now
                self._process = subprocess.Popen(
                    [tool, *query],
                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                )  # fmt: skip

    def _hear(self, now):
        """A GPU's line is short: all of them fit into the pipe, whoever reads it."""
        if self._process.poll() is None:
            if now >= self._asked + ANSWER_S:
                self._process.kill()
            return
        text = self._process.stdout.read().decode(errors="replace")
        self._process.stdout.close()
        self._process = None
        self._add(looked(text), now)

    def _add(self, gpus, now):
        for attempt, names in self._watched().items():
            before, self._before[attempt] = self._before.get(attempt, now), now
            us = min(int((now - before) * 1e6), STALE_US)
            its = [gpu for gpu in gpus if gpu.names & names]
            if us <= 0 or not its:
                continue
            attempt.gpus_used = added(attempt.gpus_used, us, its)
            attempt.gpus_last = now_us(), its
            self._keep(attempt)

    def _keep(self, attempt):
        """Lost with the host, and on a full disk: it is no more than an estimate."""
        with contextlib.suppress(OSError):
            if os.path.isdir(attempt.folder.path):
                at_us, gpus = attempt.gpus_last
                seen = {"at_us": at_us, "gpus": [gpu.words for gpu in gpus]}
                for name, found in ((SEEN, seen), (FILE, attempt.gpus_used)):
                    write_bytes(attempt.folder.at(name), json.dumps(found).encode(), 0o600)
