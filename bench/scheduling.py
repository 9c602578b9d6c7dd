"""One scheduling pass over a long queue and many hosts: the engine alone, without a daemon.

1,000 hosts with 8 GPUs in 20 zones, the network within each zone measured; 10,000 pending jobs of
50 shapes, half of them communicating over several hosts. The first pass meets an empty cluster
and fills it; the second meets the full cluster after one job has ended.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Sequence
from dataclasses import replace

from bench.figure import Figure, Settings
from rm.collector import uncollected
from rm.core.jobs import events as ev
from rm.core.jobs.state import ClusterState
from rm.core.model.acceptance import accept
from rm.core.model.asked.traffic import on_off
from rm.core.model.host import Gpu, Host, HostState, Zone
from rm.core.model.job import JobSpec
from rm.core.model.network.links import LinkStats
from rm.core.registry import load
from rm.core.scheduling.cycle import Cycle
from rm.core.scheduling.engine import Policies
from rm.core.scheduling.limits.limiting import RETRY_US
from rm.core.sharing.accounts import Account, Accounts, Member, checked
from rm.units import HOUR_US

HOSTS, ZONES, GPUS = 1_000, 20, 8
JOBS, SHAPES = 10_000, 50
USERS = 10
TARGET_S = 1.0
EMPTY_S = {"zone": 0.3, "metronome": 0.5}  # of processor, by placement policy
NOW_US = 1_000_000_000


def shapes(chance: random.Random) -> list[JobSpec]:
    """50 kinds of jobs: 1 to 32 GPUs, half of them with a profile of 200 to 800 ms."""
    made = []
    for kind in range(SHAPES):
        tasks = chance.choice((1, 1, 2, 4, 8, 16, 32))
        profile = None
        if kind % 2 and tasks > 1:
            period_us = chance.choice((200_000, 400_000, 800_000))
            profile = on_off(period_us, chance.uniform(0.1, 0.5), chance.choice((5, 10, 25)) * 10**9)
        made.append(
            JobSpec(
                f"kind{kind}",
                "alice",
                "#!/bin/sh\ntrue\n",
                ntasks=tasks,
                tasks_per_host=chance.choice((0, 4)),
                cpus_per_task=chance.choice((1, 2, 4)),
                mem_bytes_per_task=chance.choice((2, 4, 8)) << 30,
                gpus_per_task=1,
                priority=chance.choice((0, 0, 0, 100)),
                traffic=profile,
                low_comm=profile is None and kind % 4 == 0,
            )
        )
    for spec in made:
        accept(spec)  # what no daemon takes measures nothing
    return made


def cluster_of(placement: str) -> Cycle:
    """A cycle over an empty cluster with the policies under measurement."""
    chance = random.Random(7)
    state = ClusterState()
    names = [f"h{i:04}" for i in range(HOSTS)]
    for i, name in enumerate(names):
        gpus = tuple(Gpu(g, f"{name}-{g}", "A100", 40 << 30) for g in range(GPUS))
        host = Host(name, f"z{i % ZONES:02}", name, cpus=64, mem_bytes=512 << 30, gpus=gpus,
                    nic_bps=25 * 10**9, state=HostState.UP)  # fmt: skip
        state.hosts[name] = host
        state.recount(name)
    for z in range(ZONES):
        state.zones[f"z{z:02}"] = Zone(f"z{z:02}", delay_us=1_000 * z)
        for a in names[z::ZONES]:
            for b in names[z::ZONES]:
                if a != b:
                    delay_us = chance.randrange(20, 200)
                    state.network[a, b] = LinkStats(0.0, delay_us, 24 * 10**9, 1, NOW_US)
    policies = Policies(load("queue", "priority"), load("placement", placement), load("comm", "metronome"))
    return Cycle(state, policies)


def submitted(users: int = 1) -> list[ev.Event]:
    chance = random.Random(11)
    kinds = shapes(chance)
    jobs = [ev.JobSubmitted(i + 1, chance.choice(kinds)) for i in range(JOBS)]
    if users == 1:
        return list[ev.Event](jobs)
    return [
        replace(one, spec=replace(one.spec, user=f"user{one.job % users}", time_limit_us=limit_us(one.job)))
        for one in jobs
    ]


def limit_us(job: int) -> int:
    """One hour to a day."""
    return (1 + job % 24) * HOUR_US


def limited(gpus: str, each: int = 1) -> Accounts:
    """Two accounts of five users each, all of whom and each of whom may have less than they ask for; `gpus`:
    the measure, of which a GPU counts `each`."""
    limits = {gpus: 3_000 * each, f"user.{gpus}": 800 * each, "job.hosts": 64}
    accounts = [Account(name, limits=limits) for name in "ab"]
    members = [Member("ab"[i % 2], f"user{i}", limits={"running": 300}) for i in range(USERS)]
    return checked(accounts, members, limits={gpus: 5_000 * each, "user.running": 400})


def with_limits(settings: Settings) -> list[Figure]:
    """The same jobs of ten users with limits, with limits of minutes and without, one after the other; the
    best of some."""
    kinds = {"none": None, "limits": limited("gpus"), "minutes": limited("gpu_minutes_running", 600)}
    best: dict[str, list[float]] = {}
    placed: dict[str, int] = {}
    for _ in range(2 if settings.quick else 5):
        for name, accounts in kinds.items():
            cycle = cluster_of("zone")
            if accounts is not None:
                cycle.step([ev.AccountsSet(accounts, "root")], NOW_US)
            took = [used_s(cycle, submitted(USERS))]
            placed[name] = len(cycle.state.placed)
            took.append(used_s(cycle, end_of(cycle, next(iter(cycle.state.placed)))))
            took.append(used_s(cycle, [], NOW_US + RETRY_US))
            best[name] = [*map(min, took, best.get(name, took))]
    where = f"of processor; placement zone, {JOBS:,} pending of {USERS} users, {HOSTS:,} hosts"
    found = []
    for name, what in (("limits", "limits"), ("minutes", "limits of minutes")):
        first_s, ended_s, later_s = best[name]
        beside = f"{where}; {placed[name]:,} jobs placed"
        for pass_of, took_s, none_s in (
            (f"pass over an empty cluster with {what}", first_s, best["none"][0]),
            (f"pass with {what} after one job ended", ended_s, best["none"][1]),
        ):
            found.append(Figure(pass_of, took_s, "s", f"{beside}; {none_s:.3f} s without limits", TARGET_S))
        if name == "minutes":
            found.append(Figure(f"pass each half minute with {what}", later_s, "s", beside, TARGET_S))
    return found


def used_s(cycle: Cycle, events: Sequence[ev.Event], now_us: int = NOW_US) -> float:
    """Of the processor, by one step."""
    with uncollected():  # as the leader does
        since_s = time.process_time()
        cycle.step(events, now_us)
        return time.process_time() - since_s


def end_of(cycle: Cycle, job_id: int) -> list[ev.Event]:
    """Everything that the hosts of a placed job say until it has ended."""
    job = cycle.state.jobs[job_id]
    said: list[ev.Event] = [
        ev.TaskExited(job.id, job.attempt, t.host, t.rank, 0, 0, NOW_US, NOW_US + 1) for t in job.tasks
    ]
    return said


def measure(placement: str, settings: Settings) -> list[Figure]:
    used_s, jobs = float("inf"), submitted()
    for _ in range(1 if settings.quick else 3):
        cycle = cluster_of(placement)
        gc.collect()
        gc.freeze()  # as the daemon does after each full collection
        since, used = time.perf_counter(), time.process_time()
        with uncollected():  # as the leader does
            cycle.step(jobs, NOW_US)
        first_s, used_s = time.perf_counter() - since, min(used_s, time.process_time() - used)
        gc.unfreeze()
    placed = list(cycle.state.placed)
    chance = random.Random(13)
    later = []
    for job_id in chance.sample(placed, 5 if settings.quick else 20):
        ended = end_of(cycle, job_id)
        since = time.perf_counter()
        cycle.step(ended, NOW_US)
        later.append(time.perf_counter() - since)
    later.sort()
    where = f"placement {placement}, {JOBS:,} pending of {SHAPES} shapes, {HOSTS:,} hosts"
    return [
        Figure(
            "pass over an empty cluster",
            used_s,
            "s",
            f"of processor; {where}; {len(placed):,} jobs placed; {first_s:.2f} s on the clock",
            EMPTY_S[placement],
        ),
        Figure("pass after one job ended (median)", later[len(later) // 2], "s", where, TARGET_S),
        Figure("pass after one job ended (worst)", later[-1], "s", where, TARGET_S),
    ]


def run(settings: Settings) -> list[Figure]:
    figures = [f for placement in ("zone", "metronome") for f in measure(placement, settings)]
    return figures + with_limits(settings)
