"""Gaps between the phases of jobs, against a look at every microsecond."""

from hypothesis import given
from hypothesis import strategies as st

from rm.core.monitoring.idle import Beat, beat_of, bursts, busy_spans, idle_windows
from tests import builders

phase = st.tuples(st.integers(0, 40), st.integers(1, 15))
beats = st.builds(
    Beat,
    st.integers(0, 60),
    st.integers(20, 60),
    st.lists(phase, min_size=1, max_size=2).map(tuple),
    st.integers(0, 3),
    st.integers(0, 1),
)


def communicates(beat: Beat, at: int) -> bool:
    for n in range(40):
        doubt = beat.jitter_us + beat.drift_us * n
        begin = beat.origin_us + n * beat.period_us
        if any(begin + o - doubt <= at < begin + o + d + doubt for o, d in beat.phases):
            return True
    return False


@given(
    st.lists(beats, max_size=3),
    st.integers(60, 200),
    st.integers(1, 300),
    st.integers(1, 20),
    st.integers(0, 3),
)
def test_gaps_are_all_the_idle_time_there_is(
    given_: list[Beat], begin: int, length: int, least: int, guard: int
) -> None:
    end = begin + length
    busy = {at for at in range(begin - guard, end + guard) if any(communicates(b, at) for b in given_)}
    idle = [at for at in range(begin, end) if not busy & set(range(at - guard, at + guard + 1))]
    # a gap as found is half-open: its last instant is one before its end
    found = list(idle_windows(given_, begin, end, least, guard))
    inside = [at for a, b in found for at in range(a, b)]
    assert not set(inside) & busy
    assert all(b - a >= least for a, b in found)
    assert found == sorted(found)
    runs: list[list[int]] = []
    for at in idle:
        if runs and runs[-1][-1] == at - 1:
            runs[-1].append(at)
        else:
            runs.append([at])
    for run in runs:
        if len(run) >= least + 2:
            assert set(run[1:-1]) <= set(inside)


def test_a_job_that_nothing_holds_is_less_sure_the_further_ahead() -> None:
    beat = Beat(0, 1_000, ((100, 200),), jitter_us=5, drift_us=10)
    spans = list(busy_spans(beat, 0, 5_000))
    assert spans[0] == (95, 305)
    assert spans[4] == (4_100 - 45, 4_300 + 45)
    wild = Beat(0, 1_000, ((100, 200),), drift_us=500)
    assert list(idle_windows([wild], 10_000, 20_000, 1, 0)) == []


def test_a_beat_from_the_iterations_seen() -> None:
    profile = builders.profile(100, (60, 30, 80))
    steady = [n * 101_000 for n in range(11)]
    assert beat_of(profile, steady) == Beat(1_010_000, 101_000, ((60_000, 30_000),))
    assert beat_of(profile, steady, held=True) == Beat(1_010_000, 101_000, ((60_000, 30_000),))
    assert beat_of(profile, steady[:3]) is None


def test_a_held_job_scatters_about_its_grid_and_a_free_one_goes_on_from_where_it_is() -> None:
    profile = builders.profile(100, (60, 30, 80))
    begins = [n * 120_000 + (n % 2) * 300 for n in range(10)]
    begins[-1] += 5_000  # one is late
    held, free = beat_of(profile, begins, held=True), beat_of(profile, begins)
    assert held is not None
    assert free is not None
    assert abs(held.origin_us - 9 * 120_000) <= 600  # not where the late one is
    assert abs(held.period_us - 120_000) <= 60
    assert free.origin_us == begins[-1]
    assert 0 < held.jitter_us <= 600


def test_a_test_is_cut_to_the_gaps() -> None:
    gaps = [(0, 50), (100, 105), (200, 300), (400, 500)]
    assert bursts(gaps, 120, 10, 100) == [(0, 50), (200, 70)]
    assert bursts(gaps, 60, 20, 100) == [(0, 50), (200, 20)]  # what is left alone would be too short
    assert bursts(gaps, 1_000, 10, 60) == [(0, 50), (200, 60), (400, 60)]
    assert bursts([], 10, 1, 10) == []
