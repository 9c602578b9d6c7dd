"""What `rmx why` shows of the plan: the part that concerns one job, in the form of a dry run."""

from dataclasses import replace

from rm.core.model.network.alignment import Alignment, LinkAlignment, Schedule
from rm.core.model.network.paths import JobPath
from rm.daemon.services.job_reading import alignment_around


def test_only_what_concerns_the_job_is_shown() -> None:
    plan = Alignment(
        40.0,
        links=(
            LinkAlignment("h1", 90.0, 200_000, (1, 2)),
            LinkAlignment("h2", 100.0, 200_000, (2, 3)),
            LinkAlignment("h9", 40.0, 0, (7, 8)),
        ),
        schedules=(
            Schedule(1, 1, 0, 200_000, 200_000, reference=True),
            Schedule(2, 1, 80_000, 200_000, 200_000),
            Schedule(3, 1, 10_000, 200_000, 200_000),
        ),
        unmatched=(7, 8),
    )
    first = alignment_around(plan, 1)
    assert first is not None
    assert (first.score, [link.link for link in first.links]) == (90.0, ["h1"])
    assert [s.job for s in first.schedules] == [1, 2, 3]
    assert first.unmatched == ()
    lost = alignment_around(plan, 7)
    assert lost is not None
    assert (lost.score, lost.schedules, lost.unmatched) == (40.0, (), (7, 8))
    assert alignment_around(plan, 5) is None
    pinned = alignment_around(replace(plan, paths=(JobPath(5, "a", 1), JobPath(6, "a", 0))), 5)
    assert pinned == Alignment(100.0, paths=(JobPath(5, "a", 1),))
