"""The lines of `rmx queue` in a file or a pipe: what many jobs have in common is written once, unseen."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from rm.api.job_rows import JobRow
from rm.cli.jobs.queue_columns import COLUMNS
from rm.cli.jobs.queue_view import View
from rm.cli.output import aligned, printable
from tests.examples import seeds

NOW_US = 5_000_000_000


def drawn(chance: random.Random, number: int) -> JobRow:
    """A job of any state, array or element."""
    waits, some = chance.random() < 0.6, chance.random()
    state, short = ("PENDING", "PD") if waits else chance.choice((("RUNNING", "R"), ("FAILED", "F")))
    array = some < 0.1
    return JobRow(
        number, chance.choice(("", "a", "a,b")), chance.choice(("train", "e\x1bvil", "", "naïve  ")),
        chance.choice(("ann", "bob")), state, short, 5, None if waits else chance.choice((7, 9_000_000)),
        NOW_US if state == "FAILED" else None, chance.choice((None, 60_000_000)), chance.choice((1, 200)),
        chance.choice((1, 8)), chance.choice((0, 16)), chance.choice((0, 1 << 30)),
        chance.choice(("host", "task", "")), 0, [] if waits else chance.choice((["h1"], ["h1", "h2"], [])),
        chance.choice(("", "Resources", "Priority")), "/there", chance.choice(("", "note")),
        3 if 0.1 <= some < 0.2 else 0, number if 0.1 <= some < 0.2 else None,
        "1-3" if array else None, 2 if array else 0, 1, chance.choice((None, NOW_US)), 0,
    )  # fmt: skip


def plainly(view: View, rows: Sequence[JobRow], header: bool) -> list[str]:
    """Each cell by itself."""
    cells = [[printable(column.text(row)) for column in view.columns] for row in rows]
    right = [column.header for column in view.columns if column.right]
    return list(aligned([column.header for column in view.columns], cells, right, header))


@pytest.mark.parametrize("seed", seeds(40))
def test_lines_are_those_of_cells_written_one_by_one(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time_ns", lambda: 1000 * NOW_US)
    chance = random.Random(seed)
    rows = [drawn(chance, number) for number in range(1, chance.choice((0, 1, 2, 30)) + 1)]
    some = ",".join(chance.sample(sorted(COLUMNS), chance.randint(1, 8)))
    for options in ({}, {"wide": True}, {"form": some}):
        header = chance.random() < 0.7
        view = View(noheader=not header, **options)
        assert list(view.lines(rows)) == plainly(view, rows, header), options


def test_what_jobs_have_in_common_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(1)
    first = drawn(chance, 1)._replace(state="PENDING", hosts=[], array_rest=None, array_task=None)
    asked: list[int] = []
    view = View()
    place = next(place for place, column in enumerate(view.columns) if column.name == "where")
    text = view.columns[place].text

    def noted(row: JobRow) -> str:
        asked.append(row.id)
        return str(text(row))

    view.columns = [*view.columns[:place], view.columns[place]._replace(text=noted)]
    rows = [first._replace(id=number) for number in range(1, 101)]
    assert len(list(view.lines([*rows, first._replace(id=200, reason="Priority")]))) == 102
    assert asked == [1, 200]
