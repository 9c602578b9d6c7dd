"""The five papers' ideas, each on the smallest lab that shows it."""

from __future__ import annotations

from rm.demo.papers.scene import Scene, Way
from rm.demo.scenario import BUCKETS, CONGESTION_CONTROL, LINK_MBPS, PAIR, QUEUE_PACKETS, Training
from rm.errors import NotFound
from rm.lab import Degrade, LabSpec
from rm.lab.spec import dscp_of

BYTES_PER_MS = 11_400  # of an all-reduce over two hosts' links, alone
ON = {"link_mbps": LINK_MBPS, "queue_packets": QUEUE_PACKETS, "congestion_control": CONGESTION_CONTROL}


def job(name: str, period_ms: float, share: float, spread: bool = True) -> Training:
    """A job of two tasks that communicates for this share of its period, alone on two hosts."""
    comm_ms = share * period_ms
    size = round(comm_ms * BYTES_PER_MS)
    return Training(name, "low", period_ms - comm_ms, size, BUCKETS, spread)


def metronome() -> Scene:
    return Scene(
        "metronome",
        "a high and a low job of unequal periods share links: the low one is stretched and rotated",
        LabSpec(zones=1, hosts=2, gpus_per_host=2, **ON),  # type: ignore[arg-type]
        PAIR,
        (Way("unmanaged", "first-fit", "none"), Way("metronome", "first-fit", "metronome")),
        (0.0, 120.0),
        ("z1h1", "z1h2"),
    )


def cassini() -> Scene:
    """Two equal jobs slide apart by themselves; three do so in one run and not in the next."""
    equal = tuple(job(name, 200, 0.30) for name in ("one", "two", "three"))
    return Scene(
        "cassini",
        "three jobs that share a link get a time-shift each, once, and then keep it by themselves",
        LabSpec(zones=1, hosts=4, gpus_per_host=3, **ON),  # type: ignore[arg-type]
        equal,
        (Way("unmanaged", "first-fit", "none"), Way("cassini", "first-fit", "cassini")),
        (0.0, 20.0, 40.0),
        ("z1h1", "z1h2"),
        nodelists=(("z1h1", "z1h2"), ("z1h2", "z1h3"), ("z1h2", "z1h4")),
        runs=3,
    )


def foresight() -> Scene:
    """Between two leaves three jobs share two spines: two of them must meet."""
    ring = tuple(job(f"job-{n}", period_ms, 0.40) for n, period_ms in enumerate((400, 390, 400), 1))
    told = (dscp_of(0), dscp_of(1))
    return Scene(
        "foresight",
        "three jobs of unlike periods between two leaves share two spines: single iterations are delayed, "
        "and take the spine that is free for them",
        LabSpec(zones=1, hosts=6, gpus_per_host=1, leaves=2, spines=2, **ON),  # type: ignore[arg-type]
        ring,
        (
            Way("hashed (ECMP)", "first-fit", "none"),
            Way("foresight", "first-fit", "foresight", {"comm": {"margin": 0.02}}, dscp=told),
        ),
        (0.0, 40.0, 80.0),
        ("z1h1", "z1h4"),
        nodelists=(("z1h1", "z1h4"), ("z1h2", "z1h5"), ("z1h3", "z1h6")),
        iterations=40,
    )


def ada_srsf() -> Scene:
    """A job of one GPU leaves an odd GPU behind, at which first fit lets each later job cross the network.
    There their transfers meet, unless they are admitted one by one."""
    small = Training("small", "low", 200.0, 0, 1, spread=False, tasks=1)
    return Scene(
        "ada-srsf",
        "transfers that would meet on a host wait for each other (AdaDUAL); LWF-κ puts a job's GPUs onto one "
        "host where it can, so that it needs no network",
        LabSpec(zones=1, hosts=3, gpus_per_host=2, **ON),  # type: ignore[arg-type]
        (small, job("one", 200, 0.46, spread=False), job("two", 195, 0.46, spread=False)),
        (
            Way("first fit", "first-fit", "none"),
            Way("first fit, AdaDUAL", "first-fit", "adadual"),
            Way("LWF-1, AdaDUAL", "lwf", "adadual"),
        ),
        (0.0, 20.0, 40.0),
        ("z1h1", "z1h2"),
    )


def zone_first() -> Scene:
    return Scene(
        "zone-first",
        "hosts are chosen within a zone by what was measured between them, not in the order of their names",
        LabSpec(
            zones=2,
            hosts=5,
            gpus_per_host=1,
            degrade={"z1h2": Degrade(rate_mbps=20)},
            **ON,  # type: ignore[arg-type]
        ),
        (job("one", 200, 0.40),),
        (Way("first fit", "first-fit", "none"), Way("zone first", "zone", "none")),
        (0.0,),
        ("z1h1", "z1h3"),
        measures=True,
    )


SCENES = {"metronome": metronome, "cassini": cassini, "foresight": foresight, "ada-srsf": ada_srsf,
          "zone-first": zone_first}  # fmt: skip


def scene_of(paper: str) -> Scene:
    """Raises NotFound: no paper has this name."""
    if paper not in SCENES:
        raise NotFound(f"There is no demo of a paper '{paper:.40}'.", f"There are: {', '.join(SCENES)}.")
    return SCENES[paper]()
