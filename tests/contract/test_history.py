"""What every store must do with the history of the network, whatever it keeps its data in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rm.core.monitoring.cells import Cell, Change, Status
from rm.core.monitoring.history import Retention, Sample, Stat, Summary, merge, summarise
from rm.core.monitoring.mesh import MeshState
from rm.units import DAY_US, HOUR_US, MINUTE_US
from tests import builders

DAY_0 = 20_000 * DAY_US  # a midnight


def sample(at_us: int, delay_us: float = 100, pair: str = "ab", mesh: str = "m", failed: str = "") -> Sample:
    values = {} if failed else {"delay_us": delay_us, "loss_pct": 0.5}
    return Sample(pair[0], pair[1], at_us, mesh, values, failed)


def test_a_try_comes_back_and_is_kept_once(database: Any, store: Any) -> None:
    odd = replace(sample(9, mesh="esmond:a/b \u2028'"), source="é\U0001f600", destination="x'y")
    bad = sample(7, failed="b is gone.")
    given_ = [sample(5), bad, sample(5, mesh="other"), sample(6, pair="ba"), odd]
    assert store.history.record(given_) == 5
    assert store.history.record([sample(5, 999), sample(8)]) == 1
    again = database.open()
    assert again.history.samples("a", "b") == [sample(5), sample(5, mesh="other"), bad, sample(8)]
    assert again.history.samples(odd.source, odd.destination) == [odd]
    assert again.history.samples("b", "a") == [sample(6, pair="ba")]
    assert again.history.samples("a", "c") == []
    again.close()


def test_what_is_selected(store: Any) -> None:
    history = store.history
    history.record(sample(i, mesh="odd" if i % 2 else "even") for i in range(1, 9))
    times = lambda **of: [s.at_us for s in history.samples("a", "b", **of)]  # noqa: E731
    assert times(since_us=3, until_us=6) == [3, 4, 5]
    assert times(mesh="odd", limit=2) == [5, 7]
    assert times(limit=3) == [6, 7, 8]
    assert times(limit=100) == list(range(1, 9))
    history.record([sample(3, pair="ba")])
    assert history.latest() == [sample(8, mesh="even"), sample(3, pair="ba")]
    assert history.latest("odd") == [sample(7, mesh="odd")]


def test_hours_and_days_that_are_over_are_summarised(database: Any, store: Any) -> None:
    history = store.history
    at = [DAY_0 + m * MINUTE_US for m in (0, 30, 59, 60, 61)]
    history.record([sample(t, d) for t, d in zip(at, (10, 20, 60, 7, 9), strict=True)])
    history.record([sample(DAY_0 + 40 * MINUTE_US, failed="no")])
    assert history.roll_up(DAY_0 + HOUR_US) == 0  # late ones may still come
    assert history.roll_up(DAY_0 + HOUR_US + 3 * MINUTE_US) == 1
    loss = Stat(0.5, 0.5, 0.5, 3)
    first = Summary(
        "a", "b", DAY_0, HOUR_US, {"delay_us": Stat(10, 30, 60, 3), "loss_pct": loss}, tries=4, failures=1
    )
    assert history.summaries("a", "b", HOUR_US) == [first]
    assert history.roll_up(DAY_0 + HOUR_US + 3 * MINUTE_US) == 0
    assert history.roll_up(DAY_0 + DAY_US + HOUR_US) == 2  # the second hour, and the day
    again = database.open().history
    (day,) = again.summaries("a", "b", DAY_US)
    assert (day.tries, day.failures, day.stats["delay_us"]) == (6, 1, Stat(7, 106 / 5, 60, 5))
    assert [s.start_us for s in again.summaries("a", "b", HOUR_US, since_us=DAY_0 + 1)] == [DAY_0 + HOUR_US]
    assert again.summaries("a", "b", HOUR_US, until_us=DAY_0) == []


def test_what_comes_late_is_summarised_again(store: Any) -> None:
    history = store.history
    history.record([sample(DAY_0, 10)])
    now_us = DAY_0 + 3 * DAY_US
    assert history.roll_up(now_us) == 2
    history.record([sample(DAY_0 + 5, 30), sample(DAY_0 + DAY_US, 5, pair="ba")])  # as from an archive
    assert history.roll_up(now_us) == 4
    assert history.summaries("a", "b", DAY_US)[0].stats["delay_us"] == Stat(10, 20, 30, 2)
    assert history.summaries("b", "a", HOUR_US)[0].stats["delay_us"] == Stat(5, 5, 5, 1)


def test_what_is_old_is_forgotten_but_never_what_is_not_summarised(store: Any) -> None:
    history, keep = store.history, Retention(2 * DAY_US, 10 * DAY_US, 100 * DAY_US)
    history.record(sample(DAY_0 + h * HOUR_US) for h in range(0, 72, 6))
    now_us = DAY_0 + 4 * DAY_US
    assert history.prune(now_us, keep) == 0
    history.roll_up(now_us)
    assert history.prune(now_us, keep) == 8
    assert [s.at_us for s in history.samples("a", "b")] == [DAY_0 + h * HOUR_US for h in range(48, 72, 6)]
    assert len(history.summaries("a", "b", HOUR_US)) == 12
    assert history.record([sample(DAY_0 + 1)]) == 0  # its hour would lose what is summarised of it
    assert history.prune(DAY_0 + 12 * DAY_US, keep) == 4 + 8
    assert len(history.summaries("a", "b", HOUR_US)) == 4
    assert len(history.summaries("a", "b", DAY_US)) == 3
    assert history.prune(DAY_0 + 102 * DAY_US, keep) == 4 + 2
    assert [s.start_us for s in history.summaries("a", "b", DAY_US)] == [DAY_0 + 2 * DAY_US]


def test_a_clock_that_went_back_loses_nothing(store: Any) -> None:
    history = store.history
    ahead = sample(DAY_0 + 9 * DAY_US)
    history.record([ahead, sample(DAY_0)])
    history.roll_up(DAY_0 + 10 * DAY_US)
    history.record([sample(DAY_0 + HOUR_US)])
    history.roll_up(DAY_0 + DAY_US + HOUR_US)
    history.prune(DAY_0 + DAY_US, Retention(HOUR_US, DAY_US, DAY_US))
    assert ahead in history.samples("a", "b")
    assert len(history.summaries("a", "b", HOUR_US)) == 3


def test_a_clock_that_was_far_ahead_for_a_while_stops_nothing(store: Any) -> None:
    history, keep = store.history, Retention()
    history.record([sample(DAY_0 + 400 * DAY_US)])
    history.roll_up(DAY_0 + 401 * DAY_US)
    history.prune(DAY_0 + 401 * DAY_US, keep)
    now_us = DAY_0 + 9 * DAY_US
    history.prune(now_us, keep)
    assert history.record([sample(now_us - HOUR_US), sample(now_us - 3 * DAY_US)]) == 1
    history.roll_up(now_us + 3 * MINUTE_US)
    assert now_us - HOUR_US in [s.start_us for s in history.summaries("a", "b", HOUR_US)]


small = st.integers(0, 24).map(lambda n: DAY_0 + n * 110 * MINUTE_US)
tried = st.builds(
    sample, small, st.integers(0, 9), st.sampled_from(["ab", "ba"]), failed=st.sampled_from(["", "", "no"])
)


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(batches=st.lists(st.tuples(st.lists(tried, max_size=12), small), max_size=3))
def test_however_it_is_rolled_up_the_summaries_are_those_of_all_tries(
    store: Any, batches: list[tuple[list[Sample], int]]
) -> None:
    history, kept = store.history, {}
    number = len(history.latest())  # hosts of its own for every example
    for batch, now_us in batches:
        mine = [replace(s, source=s.source + str(number)) for s in batch]
        history.record(mine)
        for s in mine:
            kept.setdefault((s.source, s.at_us), s)
        history.roll_up(now_us)
    history.roll_up(DAY_0 + 5 * DAY_US)
    hours = summarise(kept.values(), HOUR_US)
    for a, b in ((f"a{number}", "b"), (f"b{number}", "a")):
        own = [s for s in hours if s.source == a]
        assert history.summaries(a, b, HOUR_US) == own
        assert history.summaries(a, b, DAY_US) == merge(own, DAY_US)


def test_the_grid_and_the_meshes(database: Any, store: Any) -> None:
    history = store.history
    one = replace(builders.filled(Cell), mesh="m", check="loss", status=Status.CRITICAL)
    other = replace(one, mesh="n", destination="z")
    history.put_cells([one, other])
    history.put_cells([replace(one, status=Status.OK), replace(one, check="delay")])
    history.put_cells([])
    state = replace(builders.filled(MeshState), mesh="m")
    history.put_mesh_state(state)
    history.put_mesh_state(replace(state, turn=7))
    again = database.open().history
    assert again.cells("m") == [replace(one, check="delay"), replace(one, status=Status.OK)]
    assert len(again.cells()) == 3
    assert again.mesh_states() == [replace(state, turn=7)]
    again.forget_mesh("m")
    assert (again.cells(), again.mesh_states()) == ([other], [])


def change(at_us: int, check: str = "loss", pair: str = "ab", mesh: str = "m") -> Change:
    return Change(mesh, check, pair[0], pair[1], at_us, Status.OK, Status.CRITICAL, "loss 9 %", 9.0)


def test_changes_of_statuses_come_back_as_they_are_asked_for(database: Any, store: Any) -> None:
    one, other = change(5), replace(change(7, "delay", "ba"), value=None, message="\u2028'")
    store.history.put_cells([], [other, one, change(6, mesh="n"), change(8, pair="bc")])
    store.history.put_cells([], [one])  # told twice
    again = database.open().history
    assert again.changes("m") == [one, other, change(8, pair="bc")]
    assert again.changes(limit=2) == [other, change(8, pair="bc")]
    assert again.changes("m", "loss", "a", "b") == [one]
    assert again.changes(source="b", since_us=8) == [change(8, pair="bc")]
    again.forget_mesh("m")
    assert again.changes() == [change(6, mesh="n")]


def test_of_old_days_the_last_change_of_each_cell_is_left(store: Any) -> None:
    history, keep = store.history, Retention(DAY_US, 10 * DAY_US, 100 * DAY_US)
    told = [change(DAY_0 + d * DAY_US + h, pair=p) for d in (0, 1) for h in (1, 2, 3) for p in ("ab", "ba")]
    history.put_cells([], told)
    assert history.prune(DAY_0 + 10 * DAY_US, keep) == 0
    assert history.prune(DAY_0 + 11 * DAY_US + 5, keep) == 4
    assert [c.at_us - DAY_0 for c in history.changes(source="a")] == [3, *(DAY_US + h for h in (1, 2, 3))]
    assert history.prune(DAY_0 + 12 * DAY_US, keep) == 4
    assert history.prune(DAY_0 + 101 * DAY_US + 3, keep) == 2
    assert len(history.changes()) == 2


def test_of_a_host_that_was_forgotten_nothing_is_known(database: Any, store: Any) -> None:
    history = store.history
    cells = [replace(builders.filled(Cell), mesh="m", source=p[0], destination=p[1]) for p in ("ab", "ca")]
    for pair in ("ab", "ba", "cb"):
        history.record([sample(DAY_0, pair=pair)])
    history.put_cells([*cells, replace(cells[0], source="c")], [change(5), change(5, pair="cb")])
    history.roll_up(DAY_0 + 2 * HOUR_US)
    history.record([sample(DAY_0 + 3 * HOUR_US, pair="ba")])
    history.forget_host("a")
    assert (history.cells(), history.changes()) == ([replace(cells[0], source="c")], [change(5, pair="cb")])
    assert history.latest() == [sample(DAY_0, pair="cb")]
    history.record([sample(DAY_0 + 1, pair="ab")])  # another host of that name
    for one in (history, database.open().history):
        assert one.samples("a", "b") == [sample(DAY_0 + 1, pair="ab")]
        assert (one.samples("b", "a"), one.summaries("a", "b", HOUR_US)) == ([], [])
    assert history.roll_up(DAY_0 + 3 * DAY_US) == 4
    assert history.prune(DAY_0 + 400 * DAY_US, Retention(0, 0, 0)) > 0


@pytest.mark.parametrize("count", [2_500])
def test_many_at_once(store: Any, count: int) -> None:
    pairs = [(f"h{i % 50}", f"g{i}") for i in range(count)]
    made = [replace(sample(DAY_0), source=a, destination=b) for a, b in pairs]
    assert store.history.record(made) == count
    assert store.history.roll_up(DAY_0 + 2 * DAY_US) == 2 * count
    assert store.history.prune(DAY_0 + 400 * DAY_US, Retention(0, 0, 0)) == 3 * count
