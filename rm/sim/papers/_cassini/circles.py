"""Fig. 5 and the left half of Table 2: scores, rotations and time-shifts of jobs on one link.

Asked of the communication policy that the daemon runs, as it aligns placed jobs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rm.core.model.asked.traffic import Phase, TrafficProfile
from rm.core.model.job import Placement, TaskPlacement
from rm.core.model.network.alignment import Alignment
from rm.core.model.network.links import NetworkView
from rm.core.model.snapshot import PlacedJob, Snapshot
from rm.core.registry import load
from rm.sim.papers._cassini.testbed import LINK, one_link
from rm.sim.papers.frame.paper import Sample
from rm.sim.papers.frame.parameters import parameters

SNAPSHOTS = (1, 2, 3, 4, 5)


def aligned(profiles: Sequence[TrafficProfile]) -> Alignment:
    """The jobs 1, 2, ... of these profiles on one link; the first is the reference."""
    bed, pairs = one_link(len(profiles))
    placed = [
        PlacedJob(
            job=i + 1,
            name=f"j{i + 1}",
            high=False,
            priority=0,
            sequence=i,
            placement=Placement(tuple(TaskPlacement(rank, host) for rank, host in enumerate(pairs[i]))),
            traffic=profile,
            low_comm=False,
        )
        for i, profile in enumerate(profiles)
    ]
    snapshot = Snapshot(
        now_us=0,
        hosts={host.name: host for host in bed.hosts},
        zones={},
        links={},
        network=NetworkView(),
        free={},
        placed={p.job: p for p in placed},
        fabric=bed.fabric,
    )
    alignment: Alignment = load("comm", "cassini").align(placed, snapshot)
    return alignment


def members(snapshot: int) -> list[tuple[str, TrafficProfile]]:
    """A snapshot's jobs: what it is called, and its profile. The guesses count from the beginning of Up."""
    known = parameters("cassini")
    given = (known[f"snapshot_{snapshot}_{what}"] for what in ("jobs", "period_us", "up_us", "bps"))
    return [
        (name, TrafficProfile(period_us, (Phase(0, up_us, int(bps)),)))
        for name, period_us, up_us, bps in zip(*given, strict=True)
    ]


def fig_5() -> Iterator[Sample]:
    """Two jobs of 40 and 60 ms: the unified circle, and how far the first turns against the second."""
    known = parameters("cassini")
    up_us, bps = known["fig_5_up_us"], int(known["nic_bps"])
    first, second = (TrafficProfile(t, (Phase(0, up_us, bps),)) for t in known["fig_5_periods_us"])
    (link,) = (found for found in aligned([second, first]).links if found.link == LINK)
    turned = next(r for r in link.rotations if r.job == 2)
    case = "40 ms and 60 ms"
    yield Sample("Fig. 5", case, "perimeter of the unified circle", link.perimeter_us / 1000)
    yield Sample("Fig. 5", case, "rotation of the first job", 360 * turned.slots / turned.circle_slots)
    yield Sample("Fig. 5", case, "compatibility score", link.score / 100)


def table_2() -> Iterator[Sample]:
    for number in SNAPSHOTS:
        jobs = members(number)
        alignment = aligned([profile for _, profile in jobs])
        (link,) = (found for found in alignment.links if found.link == LINK)
        case = f"snapshot {number}"
        yield Sample("Table 2", case, "compatibility score", link.score / 100)
        shifts = {s.job: s.shift_us for s in alignment.schedules}
        for job, (name, _) in enumerate(jobs, 1):
            yield Sample("Table 2", f"{case}, {name}", "time-shift", shifts[job] / 1000)
