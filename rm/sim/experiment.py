"""One scenario, one seed, one run; and several variants over the same seeds, compared in pairs."""

from __future__ import annotations

import csv
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import msgspec

from rm.core import registry
from rm.core.model.asked.demand import PRIORITY_HIGH
from rm.core.model.asked.traffic import Phase, TrafficProfile, on_off
from rm.core.model.host import Host
from rm.core.model.job import PRIORITY_LOW, JobSpec
from rm.core.model.network.fabric import Fabric
from rm.core.scheduling.engine import Policies, Tuning
from rm.errors import UsageError
from rm.sim import scenario as form
from rm.sim.network.fabric import Topology
from rm.sim.network.fluid import Fluid
from rm.sim.network.ideal import Ideal
from rm.sim.network.penalty import Penalty
from rm.sim.network.port import Network
from rm.sim.network.unfairness import Unfairness
from rm.sim.program import Communicate, Compute, Program, program_of, sequence
from rm.sim.result import Result
from rm.sim.workload import Noise, SimJob, hosts, poisson
from rm.sim.world import Settings, World

BITS = 8


def run(
    scenario: form.Scenario, seed: int, base: Path, progress: Callable[[int, int], None] | None = None
) -> Result:
    """Simulate a scenario. `base` is the directory that a trace file's path counts from.

    Raises:
        UsageError: a value of the scenario that cannot be used, with its place.
    """
    cluster = _hosts(scenario.cluster)
    fabric = _fabric(scenario, cluster)
    policies = scenario.policies
    loaded = Policies(
        *(
            registry.load(kind, name, policies.options.get(kind, {}).get(name))
            for kind, name in (
                ("queue", policies.queue),
                ("placement", policies.placement),
                ("comm", policies.comm),
            )
        )
    )
    world = World(
        cluster,
        _arrived(scenario, seed, base),
        loaded,
        _network(scenario, cluster, fabric, seed),
        tuning=Tuning(policies.candidates, policies.min_score, policies.patience),
        fabric=fabric,
        settings=_settings(scenario, seed),
    )
    return world.run(progress)


def variants(scenario: form.Scenario) -> Iterator[tuple[str, form.Scenario]]:
    """The scenario as it stands, then with each of its variants' changes."""
    chosen = scenario.policies
    yield f"{chosen.queue} / {chosen.placement} / {chosen.comm}", scenario
    for variant in scenario.variant:
        options = {kind: dict(by_name) for kind, by_name in chosen.options.items()}
        for kind, by_name in variant.options.items():
            options.setdefault(kind, {}).update(by_name)
        policies = msgspec.structs.replace(
            chosen,
            queue=variant.queue or chosen.queue,
            placement=variant.placement or chosen.placement,
            comm=variant.comm or chosen.comm,
            options=options,
        )
        settings, network = scenario.settings, scenario.network
        if variant.regulation is not None:
            settings = msgspec.structs.replace(settings, regulation=variant.regulation)
        if variant.network is not None:
            network = msgspec.structs.replace(network, model=variant.network)
        yield (
            variant.name,
            msgspec.structs.replace(scenario, policies=policies, settings=settings, network=network),
        )


def _hosts(cluster: form.Cluster) -> tuple[Host, ...]:
    return hosts(
        cluster.hosts,
        gpus=cluster.gpus,
        gpu_mem_bytes=form.size_bytes(cluster.gpu_mem, "cluster.gpu_mem"),
        nic_bps=form.bandwidth_bps(cluster.nic, "cluster.nic"),
        cpus=cluster.cpus,
        zones=cluster.zones,
    )


def _fabric(scenario: form.Scenario, cluster: tuple[Host, ...]) -> Fabric | None:
    given = scenario.fabric
    if given is None:
        return None
    leaf_of = {h.name: f"leaf{i * given.leaves // len(cluster) + 1}" for i, h in enumerate(cluster)}
    dscp = tuple(range(given.spines)) if given.pinned else ()
    return Fabric(leaf_of, given.spines, form.bandwidth_bps(given.uplink, "fabric.uplink"), dscp)


def _network(scenario: form.Scenario, cluster: tuple[Host, ...], fabric: Fabric | None, seed: int) -> Network:
    given = scenario.network
    if given.model == "penalty":
        return Penalty(
            a_us=form.duration_us(given.a, "network.a"),
            b_us_per_byte=given.b_ns / 1e3,
            eta_us_per_byte=given.eta_ns / 1e3,
        )
    ecmp = scenario.fabric.ecmp if scenario.fabric is not None else "connection"
    topology = Topology({h.name: h.nic_bps for h in cluster}, fabric, ecmp=ecmp, seed=seed)
    if given.model == "ideal":
        return Ideal(topology)
    head_start_us = form.duration_us(given.head_start, "network.head_start")
    unfair = Unfairness(given.newcomer, head_start_us, given.luck, given.loss)
    return Fluid(topology, lockstep=given.lockstep, unfair=unfair)


def _settings(scenario: form.Scenario, seed: int) -> Settings:
    given, noise = scenario.settings, scenario.noise
    return Settings(
        seed=seed,
        noise=Noise(noise.jitter, noise.drift, noise.straggle, noise.straggle_factor),
        regulation=given.regulation,
        launch_us=form.duration_us(given.launch, "settings.launch"),
        restart_us=form.duration_us(given.restart, "settings.restart"),
        lease_us=form.duration_us(given.lease, "settings.lease"),
        until_us=form.duration_us(given.until, "settings.until") if given.until else None,
    )


def _arrived(scenario: form.Scenario, seed: int, base: Path) -> list[SimJob]:
    arrivals = scenario.arrivals
    kinds = [_job(scenario, index) for index in range(len(scenario.job))]
    if arrivals.process == "trace":
        return _traced(base / arrivals.file, {job.spec.name: job for job in kinds})
    jobs = []
    for kind, given in zip(kinds, scenario.job, strict=True):
        for number in range(given.count):
            name = given.name if given.count == 1 else f"{given.name}-{number + 1}"
            jobs.append(replace(kind, spec=replace(kind.spec, name=name)))
    if arrivals.process == "poisson":
        random.Random(f"{seed}/order").shuffle(jobs)
        jobs = poisson(jobs, form.duration_us(arrivals.mean_gap, "arrivals.mean_gap"), seed)
    return jobs


def _traced(path: Path, kinds: Mapping[str, SimJob]) -> list[SimJob]:
    """The jobs of a trace file, in the order of their arrival."""
    try:
        rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    except (OSError, UnicodeDecodeError) as problem:
        raise UsageError(f"The trace {path} cannot be read: {problem}.") from None
    jobs = []
    for line, row in enumerate(rows, 2):
        kind, at = kinds.get(row.get("job") or ""), row.get("at") or ""
        if kind is None or not at:
            raise UsageError(
                f"{path}, line {line}: {row} names no job of the scenario, or no time.",
                f"Write the columns job and at; known jobs are {', '.join(kinds)}.",
            )
        spec = replace(kind.spec, name=f"{kind.spec.name}-{line - 1}")
        jobs.append(SimJob(form.duration_us(at, f"trace, line {line}"), spec, kind.program))
    return sorted(jobs, key=lambda job: job.arrival_us)


def _job(scenario: form.Scenario, index: int) -> SimJob:
    given, where = scenario.job[index], f"job[{index}]"
    spec = JobSpec(
        name=given.name,
        user="sim",
        script="",
        array=given.array,
        ntasks=given.tasks,
        tasks_per_host=given.tasks_per_host,
        gpus_per_task=given.gpus,
        gpu_mem_bytes=form.size_bytes(given.gpu_mem, f"{where}.gpu_mem"),
        priority=PRIORITY_HIGH if given.priority == "high" else PRIORITY_LOW,
        hosts_only=given.hosts,
        iterations=given.iterations,
        time_limit_us=form.duration_us(given.time_limit, f"{where}.time_limit") if given.time_limit else None,
    )
    if given.period:
        profile = _profile(given, where)
        program = program_of(profile, given.iterations)
        spec = replace(spec, traffic=profile)
    else:
        program = _parallel(scenario, given, where)
    # compute only: whether it will communicate is not known before it is placed (Ada-SRSF Sec. IV-A)
    return SimJob(0, replace(spec, expected_us=int(given.iterations * program.compute_us)), program)


def _profile(given: form.JobForm, where: str) -> TrafficProfile:
    period_us = form.duration_us(given.period, f"{where}.period")
    if given.duty_cycle is not None:
        rate_bps = form.bandwidth_bps(given.bandwidth, f"{where}.bandwidth")
        return on_off(period_us, given.duty_cycle, rate_bps)
    phases = []
    for number, phase in enumerate(given.phases):
        place = f"{where}.phases[{number}]"
        phases.append(
            Phase(
                form.duration_us(phase.offset, f"{place}.offset"),
                form.duration_us(phase.duration, f"{place}.duration"),
                form.bandwidth_bps(phase.bandwidth, f"{place}.bandwidth"),
            )
        )
    return TrafficProfile(period_us, tuple(phases))


def _parallel(scenario: form.Scenario, given: form.JobForm, where: str) -> Program:
    """Forward pass, backward pass, all-reduce of M bytes, one after the other (Ada-SRSF Fig. 3)."""
    message = form.size_bytes(given.message, f"{where}.message")
    forward_us = form.duration_us(given.forward, f"{where}.forward")
    backward_us = form.duration_us(given.backward, f"{where}.backward")
    network = scenario.network
    rate_bps = float(form.bandwidth_bps(scenario.cluster.nic, "cluster.nic"))
    fixed_us = 0.0
    if network.model == "penalty":
        rate_bps = BITS * 1e9 / network.b_ns
        fixed_us = float(form.duration_us(network.a, "network.a"))
    stages = (
        Compute((float(forward_us), float(backward_us))),
        Communicate(float(message * BITS), size_bytes=float(message)),
    )
    return sequence(given.iterations, stages, rate_bps, fixed_us)
