"""2,000 elements of job arrays and of chains of them, while daemons, agents and supervisors are killed.

Elements note their starts and ends in files that rm does not know; what they say is judged alone.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bench.cluster import Cluster, cluster, spec
from bench.figure import Figure, Settings
from bench.nemesis.faults import is_agent, is_supervisor, processes
from bench.running import HOSTS, SLOTS
from rm.errors import Conflict, IllegalTransition, RmError, Unreachable

SEED = 12
PATIENCE_S = 900.0
SCRIPT = """#!/bin/bash
file=$1/$SLURM_ARRAY_JOB_ID
note() { echo "$1 $SLURM_ARRAY_TASK_ID $SLURM_JOB_ID $RM_ATTEMPT $EPOCHREALTIME" >>"$file"; }
note S
[ $((SLURM_ARRAY_TASK_ID % 50)) != 7 ] || sleep 1
note E
"""


@dataclass(slots=True)
class Killer:
    """Kills what it draws until it is ended; the daemon comes back at once."""

    made: Cluster
    ended: threading.Event
    killed: Counter[str] = field(default_factory=Counter)
    failed: list[Exception] = field(default_factory=list)

    def run(self) -> None:
        draw = random.Random(SEED)
        while not self.ended.wait(draw.uniform(0.5, 2)):
            what = draw.choice(("daemon", "agent", "agent", "supervisor", "supervisor"))
            try:
                if what == "daemon":
                    self.made.end(signal.SIGKILL)
                    self.made.start()
                    self.killed[what] += 1
                else:
                    self._kill(what, is_agent if what == "agent" else is_supervisor, draw)
            except Exception as error:  # a process that ended by itself; what matters is judged at the end
                self.failed.append(error)

    def _kill(self, what: str, which: Callable[[Path], bool], draw: random.Random) -> None:
        assert self.made.lab is not None
        host = draw.choice(self.made.lab.hosts).name
        found = sorted(int(p.name) for p in processes(self.made, host) if which(p))  # type: ignore[arg-type]
        if found:
            os.kill(draw.choice(found), signal.SIGKILL)
            self.killed[what] += 1


@dataclass(frozen=True, slots=True)
class Found:
    lost: int
    twice: int
    again: int  # elements that ended more than once, in different attempts
    early: int


def judge(notes: Path, arrays: dict[int, int], chains: dict[int, int]) -> Found:
    """`arrays`: how many elements each has; `chains`: the array that follows, and which one it does."""
    starts: Counter[tuple[str, str]] = Counter()
    began: dict[tuple[int, int], float] = {}
    ends: dict[tuple[int, int], list[float]] = defaultdict(list)
    for array in arrays:
        for line in (notes / str(array)).read_text().splitlines():
            kind, task, job, attempt, at = line.split()
            element = array, int(task)
            if kind == "S":
                starts[job, attempt] += 1
                began[element] = min(float(at), began.get(element, float(at)))
            else:
                ends[element].append(float(at))
    lost = sum(not ends.get((array, task)) for array, count in arrays.items() for task in range(count))
    early = sum(
        not ends.get((chains[array], task)) or began[array, task] < min(ends[chains[array], task])
        for array, task in began
        if array in chains
    )
    again = sum(len(times) > 1 for times in ends.values())
    return Found(lost, sum(count > 1 for count in starts.values()), again, early)


def play(made: Cluster, notes: Path, share: int) -> tuple[Found, Killer, float]:
    client = made.client()
    arrays, chains = {}, {}
    begun = time.perf_counter()
    for part, limit in ((14, ""), (6, "%8")):
        before = 0
        for _ in range(2):
            count = part * share
            fields = {"array": f"0-{count - 1}{limit}", "script_args": [str(notes)]}
            if before:
                fields["dependency"] = f"aftercorr:{before}"
            job = client.post("jobs", body={"spec": spec("soak", SCRIPT, **fields)})["job"]
            arrays[job] = count
            if before:
                chains[job] = before
            before = job
    client.close()
    killer = Killer(made, threading.Event())
    thread = threading.Thread(target=killer.run, daemon=True)
    thread.start()
    states: dict[int, str] = {}
    while time.perf_counter() - begun < PATIENCE_S and set(states.values()) != {"COMPLETED"}:
        time.sleep(1)
        try:
            asking = made.client()
            states = {job: asking.get("jobs", job)["job"]["state"] for job in arrays}
            for job in arrays:  # what lost its supervisor twice in a row is held
                with contextlib.suppress(Conflict, IllegalTransition):
                    asking.post("jobs", job, "release")
            asking.close()
        except (Unreachable, RmError):
            continue  # the daemon is being killed
    killer.ended.set()
    thread.join(60)
    return judge(notes, arrays, chains), killer, time.perf_counter() - begun


def run(settings: Settings) -> list[Figure]:
    share = 10 if settings.quick else 50
    notes = Path(f"/var/tmp/rm-soak-{os.getpid()}")
    notes.mkdir(mode=0o777)
    notes.chmod(0o777)
    try:
        with cluster(hosts=HOSTS, cpus=SLOTS // HOSTS, share=(str(notes),)) as made:
            found, killer, took_s = play(made, notes, share)
    finally:
        for file in notes.iterdir():
            file.unlink()
        notes.rmdir()
    said = ", ".join(f"{count} {what}s" for what, count in sorted(killer.killed.items()))
    how = f"{40 * share:,} elements of 4 arrays, of which two follow by aftercorr; {said} were killed"
    return [
        Figure("elements that never ended", found.lost, "", f"{how}; {took_s:.0f} s", 0),
        Figure("attempts that started twice", found.twice, "", "", 0),
        Figure("elements that started before those that they wait for", found.early, "", "", 0),
        Figure(
            "elements that ended again in another attempt", found.again, "",
            "their supervisor was killed before it could write down the end", killer.killed["supervisor"],
        ),
    ]  # fmt: skip
