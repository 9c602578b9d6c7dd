"""The papers' demos without live hosts: rm.toml takes each way, and simulated each idea does what it says."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from rm import config
from rm.core.model.asked.traffic import Phase, TrafficProfile
from rm.core.model.network.fabric import Fabric
from rm.core.registry import load
from rm.core.scheduling.engine import Policies
from rm.demo.papers.scene import Scene, Way
from rm.demo.papers.scenes import BYTES_PER_MS, SCENES, scene_of
from rm.demo.scenario import LINK_MBPS, Training
from rm.demo.simulated import Links, Ran, pooled, simulated
from rm.errors import NotFound
from rm.lab.spec import plan_hosts

# where each way puts the jobs, by their ranks, when nothing else is measured
PLACED = {
    "metronome": ((("z1h1", "z1h2"), ("z1h1", "z1h2")),) * 2,
    "cassini": (scene_of("cassini").nodelists,) * 2,
    "foresight": (scene_of("foresight").nodelists,) * 2,
    "ada-srsf": (
        (("z1h1",), ("z1h1", "z1h2"), ("z1h2", "z1h3")),
        (("z1h1",), ("z1h1", "z1h2"), ("z1h2", "z1h3")),
        (("z1h1",), ("z1h2", "z1h2"), ("z1h3", "z1h3")),
    ),
    "zone-first": ((("z1h1", "z1h2"),), (("z1h1", "z1h3"),)),
}


def alone(training: Training) -> TrafficProfile:
    compute_us = round(1000 * training.compute_ms)
    if training.tasks == 1:
        return TrafficProfile(compute_us, ())
    comm_us = round(1000 * training.bytes / BYTES_PER_MS)
    return TrafficProfile(compute_us + comm_us, (Phase(compute_us, comm_us, LINK_MBPS * 1_000_000),))


def slowest(scene: Scene, way: Way, placed: tuple[tuple[str, ...], ...]) -> float:
    """Mean iteration of the slowest job, as a multiple of its period alone."""
    spec = scene.lab
    plan = plan_hosts(spec, 0)
    fabric = None
    if spec.leaves:
        below = {host.name: host.leaf for host in plan}
        fabric = Fabric(below, spec.spines, round(spec.uplink_rate_mbps * 1e6), way.dscp)
    links = Links({host.name: round(host.rate_mbps * 1e6) for host in plan}, fabric)
    jobs = [
        Ran(training, alone(training), hosts, round(1000 * delay_ms), 60)
        for training, hosts, delay_ms in zip(scene.jobs, placed, scene.delays_ms, strict=True)
    ]
    comm = load("comm", way.comm, way.options.get("comm", {}))
    policies = Policies(load("queue", "fifo"), load("placement", "first-fit"), comm)
    every = (simulated(jobs, policies, links, jitter=0.005, left_out_s=1.5, seed=seed) for seed in range(4))
    found = pooled(every)
    return max(t.mean_ms * 1000 / job.profile.period_us for t, job in zip(found, jobs, strict=True))


@pytest.mark.parametrize("paper", SCENES)
def test_the_paper_s_way_is_the_better_one(paper: str) -> None:
    scene = scene_of(paper)
    without, *with_it = (
        slowest(scene, way, placed) for way, placed in zip(scene.ways, PLACED[paper], strict=True)
    )
    assert without > 1.08, "there is something to win"
    assert max(with_it) < 1.05
    assert without - max(with_it) > 0.05


@pytest.mark.parametrize("paper", SCENES)
def test_rm_takes_each_way(paper: str, tmp_path: Path) -> None:
    scene = scene_of(paper)
    chosen = []
    for shapes in (True, False):
        for way in scene.ways:
            file = tmp_path / "rm.toml"
            file.write_text(way.tables(scene.lab, shapes))
            found = config.load(env={"HOME": str(tmp_path), "RM_CONFIG": str(file)}, euid=0).config
            assert (found.shaping.enabled, found.fabric.spines) == (shapes, scene.lab.spines)
            assert found.fabric.dscp == way.dscp
            chosen.append((found.policies.placement, found.policies.comm))
    half = len(scene.ways)
    assert chosen[:half] == chosen[half:] == [(way.placement, way.comm) for way in scene.ways]
    assert all(one.name != other.name for one, other in pairwise(scene.ways))


def test_other_papers_are_refused() -> None:
    with pytest.raises(NotFound, match="no demo of a paper 'slurm'"):
        scene_of("slurm")
