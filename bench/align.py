"""Aligning everything that runs on a large cluster: from nothing, and when one job comes or goes.

    python -m bench align            # up to 5,000 jobs on 5,000 hosts: a minute
    python -m bench align --quick    # up to 211 on 300

Hosts of 25 Gbit/s hang below leaves of 40, whose uplinks carry half of what their hosts can. Jobs of 40 kinds
are put on two to four hosts each, drawn from a fixed seed without any regard to what is there, up to three on
a host: nearly all of them share links with each other, directly or through others. Measured is processor time
of the leader's turn: the event, the alignment, its digest for the journal, and what the regulator copies; and
of the recomputations in the background.
"""

from __future__ import annotations

import random
import time

from bench.figure import Figure, Settings
from rm.collector import pass_over_survivors
from rm.core.jobs import events as ev
from rm.core.jobs.state import ClusterState
from rm.core.journal.digest import Digests
from rm.core.model.asked.traffic import on_off
from rm.core.model.host import Gpu, Host, HostState, Zone
from rm.core.model.job import Job, JobSpec, Placement, TaskPlacement
from rm.core.model.network.alignment import PERFECT, Alignment
from rm.core.model.network.fabric import Fabric
from rm.core.registry import load
from rm.core.scheduling.cycle import Cycle, Outcome
from rm.core.scheduling.engine import Policies
from rm.daemon.regulation.running import RunningJobs

SIZES = ((71, 100), (211, 300), (5_000, 5_000))
LEAF, SPINES, NIC_BPS = 40, 4, 25 * 10**9
UPLINK_BPS = LEAF * NIC_BPS // 2 // SPINES
ON_A_HOST, GPUS = 3, 8
PERIODS_US = (200_000, 400_000, 800_000)
RATES_BPS = (5 * 10**9, 10 * 10**9, 25 * 10**9)
KINDS, EVENTS = 40, 20
TARGET_MS = 50.0
NOW_US = 1_000_000_000


class World:
    """A cluster on which jobs appear where chance puts them, and the cycle that aligns them."""

    def __init__(self, jobs: int, hosts: int) -> None:
        self.chance = random.Random(jobs)
        self.names = [f"h{i:04}" for i in range(hosts)]
        leaves = {name: f"r{i // LEAF:03}" for i, name in enumerate(self.names)}
        state = ClusterState(fabric=Fabric(leaves, SPINES, UPLINK_BPS))
        gpus = tuple(Gpu(g, f"gpu{g}", "A100", 40 << 30) for g in range(GPUS))
        for name in self.names:
            state.hosts[name] = Host(
                name, "z", name, cpus=64, mem_bytes=512 << 30, gpus=gpus, nic_bps=NIC_BPS, state=HostState.UP
            )
            state.recount(name)
        state.zones["z"] = Zone("z")
        policies = Policies(
            load("queue", "priority"), load("placement", "first-fit"), load("comm", "metronome")
        )
        self.cycle = Cycle(state, policies)
        self.room = dict.fromkeys(self.names, ON_A_HOST)
        self.kinds = [self._kind(i) for i in range(KINDS)]
        self.next_job = 1
        self.digests, self.running = Digests(), RunningJobs()

    def _kind(self, number: int) -> JobSpec:
        tasks = self.chance.choice((2, 2, 3, 4))
        profile = on_off(
            self.chance.choice(PERIODS_US), self.chance.uniform(0.1, 0.5), self.chance.choice(RATES_BPS)
        )
        return JobSpec(f"kind{number}", "alice", "#!/bin/sh\ntrue\n", ntasks=tasks, traffic=profile)

    def arrival(self) -> list[ev.Event]:
        """A job, and where it goes."""
        spec, number = self.chance.choice(self.kinds), self.next_job
        self.next_job += 1
        hosts: list[str] = []
        while len(hosts) < spec.ntasks:
            host = self.chance.choice(self.names)
            if self.room[host] and host not in hosts:
                hosts.append(host)
        for host in hosts:
            self.room[host] -= 1
        placement = Placement(tuple(TaskPlacement(rank, host) for rank, host in enumerate(hosts)))
        return [ev.JobSubmitted(number, spec), ev.JobPlaced(number, placement)]

    def departure(self) -> list[ev.Event]:
        """What the hosts of some job say until it has ended."""
        job = self.cycle.state.jobs[self.chance.choice(list(self.cycle.state.placed))]
        for task in job.tasks:
            self.room[task.host] += 1
        return [
            ev.TaskExited(job.id, job.attempt, t.host, t.rank, 0, 0, NOW_US, NOW_US + 1) for t in job.tasks
        ]

    def start_all(self) -> None:
        """All that is placed begins to run."""
        jobs = [self.cycle.state.jobs[number] for number in self.cycle.state.placed]
        self.cycle.step([event for job in jobs for event in started(job)], NOW_US)

    def timed(self, events: list[ev.Event]) -> tuple[float, Outcome]:
        """Milliseconds of processor of one turn."""
        since = time.process_time()
        outcome = self.cycle.step(events, NOW_US)
        self.digests.of(outcome, self.cycle.state.alignment)
        self.running.of(self.cycle.state)
        spent_ms = 1000 * (time.process_time() - since)
        assert not outcome.refused, outcome.refused
        return spent_ms, outcome

    def recompute(self, outcome: Outcome) -> tuple[float, float, int]:
        """Until nothing is left to be found: milliseconds in the background, of the longest turn, and
        rounds."""
        behind_ms, longest_ms, rounds = 0.0, 0.0, 0
        while outcome.recompute is not None:
            since = time.process_time()
            event = outcome.recompute.run()
            behind_ms += 1000 * (time.process_time() - since)
            turn_ms, outcome = self.timed([event])
            longest_ms, rounds = max(longest_ms, turn_ms), rounds + 1
        return behind_ms, longest_ms, rounds


def started(job: Job) -> list[ev.Event]:
    """What a job's hosts say when it begins."""
    ranks: dict[str, list[int]] = {}
    for task in job.tasks:
        ranks.setdefault(task.host, []).append(task.rank)
    return [ev.TasksStarted(job.id, job.attempt, h, NOW_US, tuple(r)) for h, r in ranks.items()]


def told(alignment: Alignment) -> str:
    perfect = sum(link.score >= PERFECT for link in alignment.links)
    mean = sum(link.score for link in alignment.links) / max(1, len(alignment.links))
    return (
        f"{len(alignment.links):,} contended links, {perfect:,} of them without contention, mean score "
        f"{mean:.2f}; {len(alignment.schedules):,} jobs in slots"
    )


def measure(jobs: int, hosts: int, events: int) -> list[Figure]:
    world, where = World(jobs, hosts), f"{jobs:,} jobs on {hosts:,} hosts"
    first_ms, outcome = world.timed([event for _ in range(jobs) for event in world.arrival()])
    world.start_all()
    pass_over_survivors()  # as the daemon does
    state = world.cycle.state
    figures = [Figure(f"{where}, all at once", first_ms, "ms", told(state.alignment))]
    behind_ms, longest_ms, rounds = world.recompute(outcome)
    figures += [
        Figure(f"{where}, the background after that", behind_ms, "ms", told(state.alignment)),
        Figure(f"{where}, its longest turn of {rounds}", longest_ms, "ms"),
    ]
    for what, event in (("one comes", world.arrival), ("one leaves", world.departure)):
        turns, behind = [], []
        for _ in range(events):
            turn_ms, outcome = world.timed(event())
            turns.append(turn_ms)
            behind.append(world.recompute(outcome)[0])
        turns.sort()
        then = f"then {sum(behind) / events:.0f} ms in the background"
        figures.append(Figure(f"{where}, {what} (median)", turns[len(turns) // 2], "ms", then))
        figures.append(Figure(f"{where}, {what} (worst of {events})", turns[-1], "ms", "", TARGET_MS))
    return figures


def run(settings: Settings) -> list[Figure]:
    sizes = SIZES[:-1] if settings.quick else SIZES
    return [figure for jobs, hosts in sizes for figure in measure(jobs, hosts, EVENTS)]
