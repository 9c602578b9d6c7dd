"""One part of the seeded schedules: files are what the test runner spreads over the cores."""

import pytest

from tests.sim.schedules import CHUNKS, FAULTS, play, seeds

pytestmark = pytest.mark.usefixtures("gently")
_met: list[set[str]] = []  # of each chunk that was played


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_whatever_fails_no_job_is_lost_or_started_twice(chunk: int) -> None:
    _met.append(set().union(*(play(seed) for seed in seeds(5, chunk))))


def test_they_meet_every_kind_of_fault() -> None:
    if len(_met) < CHUNKS:
        pytest.skip("not all chunks were selected, or one failed")
    assert not set(FAULTS) - set().union(*_met)
