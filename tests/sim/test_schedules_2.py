"""One part of the seeded schedules: files are what the test runner spreads over the cores."""

import pytest

from tests.sim.schedules import CHUNKS, play, seeds


@pytest.mark.usefixtures("gently")
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_whatever_fails_no_job_is_lost_or_started_twice(chunk: int) -> None:
    for seed in seeds(1, chunk):
        play(seed)
