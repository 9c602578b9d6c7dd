"""A damaged row of the network's history is left out, one of the cluster itself is named. In SQLite, which
keeps anything in any column; PostgreSQL takes neither text in a number nor bytes that are no text."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rm.adapters.store import opening
from rm.adapters.store.sql import SqlStore
from rm.core.model.asked.array import Array
from rm.core.monitoring.cells import Cell, Change, Status
from rm.core.monitoring.history import Retention, Sample
from rm.core.monitoring.mesh import MeshState
from rm.core.store import Batch
from rm.errors import StoreError
from rm.units import DAY_US, HOUR_US
from tests import builders
from tests.contract.opened import open_store
from tests.contract.test_store_sql import run_sql

DAYS = 3
BYTES, WORDS = "CAST(x'fffe' AS TEXT)", "'yesterday'"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A history of three days, an hour's try each, summarised; two meshes, cells and changes."""
    file = tmp_path_factory.mktemp("sound") / "rm.sqlite3"
    store = opening.open_store(f"sqlite:///{file}")
    history = store.history
    tries = [Sample("a", "b", hour * HOUR_US, "good", {"delay_us": 1.0}) for hour in range(24 * DAYS)]
    history.record(tries)
    history.roll_up(DAYS * DAY_US + HOUR_US)
    for mesh in ("bad", "good"):
        change = Change(mesh, "loss", "a", "b", DAY_US, Status.OK, Status.CRITICAL)
        history.put_cells([Cell(mesh, "loss", "a", "b")], [change])
        history.put_mesh_state(MeshState(mesh))
    store.close()
    return file


@pytest.fixture
def url(sound: Path, tmp_path: Path) -> str:
    return f"sqlite:///{shutil.copy(sound, tmp_path / 'rm.sqlite3')}"


READS: dict[str, tuple[str, str, Callable[[Any], list[Any]]]] = {
    "tries": ("network_samples", "WHERE at_us = 0", lambda history: history.samples("a", "b")),
    "hours": ("network_summaries", "WHERE start_us = 0 AND span_us = 3600000000",
              lambda history: history.summaries("a", "b", HOUR_US)),
    "cells": ("network_cells", "WHERE mesh = 'bad'", lambda history: history.cells()),
    "changes": ("network_changes", "WHERE mesh = 'bad'", lambda history: history.changes()),
    "meshes": ("meshes", "WHERE mesh = 'bad'", lambda history: history.mesh_states()),
}  # fmt: skip


@pytest.mark.parametrize("what", READS)
def test_bytes_that_are_no_text_hide_one_row_of_the_history(url: str, what: str) -> None:
    table, row, read = READS[what]
    store = open_store(url)
    before = read(store.history)
    run_sql(url, f"UPDATE {table} SET body = {BYTES} {row};")
    assert read(store.history) == before[1:]
    store.close()


@pytest.mark.parametrize("what", ["tries", "hours", "changes"])
def test_a_time_that_is_none_hides_one_row_of_the_history(url: str, what: str) -> None:
    table, row, read = READS[what]
    column = "start_us" if what == "hours" else "at_us"
    store = open_store(url)
    before = read(store.history)
    run_sql(url, f"UPDATE {table} SET {column} = {WORDS} {row};")
    assert read(store.history) == before[1:]
    store.close()


@pytest.mark.parametrize("value", [BYTES, WORDS])
@pytest.mark.parametrize(
    ("table", "column"),
    [("history_marks", "at_us"), ("network_summaries", "start_us"), ("network_samples", "at_us")],
)
def test_a_damaged_time_does_not_stop_what_follows_from_growing_old(
    url: str, table: str, column: str, value: str
) -> None:
    store = open_store(url)
    run_sql(url, f"UPDATE {table} SET {column} = {value} WHERE rowid = 1;" if table == "history_marks" else
            f"UPDATE {table} SET {column} = {value} WHERE {column} = 0;")  # fmt: skip
    history, now_us = store.history, (DAYS + 2) * DAY_US
    later = Sample("a", "b", DAYS * DAY_US + HOUR_US, "good", {"delay_us": 5.0})
    assert history.record([later]) == 1
    history.roll_up(now_us)
    told = history.summaries("a", "b", DAY_US)
    assert told[-1].start_us == DAYS * DAY_US
    history.prune(now_us, Retention(raw_us=DAY_US, hourly_us=DAY_US))
    assert history.samples("a", "b", until_us=DAY_US) == []
    store.close()


def led(store: SqlStore) -> Any:
    return store.acquire_lease("a", 0, 1)


@pytest.mark.parametrize("do", [led, SqlStore.lease, SqlStore.epoch, SqlStore.load])
@pytest.mark.parametrize("value", [WORDS, "''", "-1", "x'fffe'", BYTES])
def test_a_damaged_row_of_the_cluster_is_named(url: str, do: Callable[[SqlStore], Any], value: str) -> None:
    store = open_store(url)
    run_sql(url, f"UPDATE cluster SET epoch = {value};")
    with pytest.raises(StoreError, match="epoch"):
        do(store)
    store.close()


@pytest.mark.parametrize(
    "damage",
    [
        "'$.array.waiting', 'x'",
        "'$.array.running', '9-1'",
        "'$.array.completed', '3'",  # which waits as well
        "'$.array.held', '7'",
        "'$.array.waiting', '', '$.array.held', ''",  # it has no elements any more
        "'$.array.waiting', '0-5'",
        "'$.array_task', -1, '$.array_job', 5",
        "'$.array_task', 1099511627776, '$.array_job', 5",
        "'$.attempt', -1",
        '\'$.dependencies\', json(\'[{"job":1180591620717411303424,"kind":"afterok"}]\')',
    ],
)
def test_a_damaged_array_or_dependency_is_one_damaged_job(tmp_path: Path, damage: str) -> None:
    """Each ended the daemon at its start, or took its memory, before a row was looked at more closely."""
    url = f"sqlite:///{tmp_path / 'rm.sqlite3'}"
    store = open_store(url)
    store.acquire_lease("a", 0, 1)
    array = replace(builders.job(6, array="0-4"), array=Array(waiting="0-4", held="1"))
    store.commit(Batch(jobs=(array, builders.job(7))), 0)
    run_sql(url, f"UPDATE jobs SET body = json_set(body, {damage}) WHERE id = 6;")
    loaded = store.load()
    assert [(one.kind, *one.key) for one in loaded.damaged] == [("job", "6")]
    assert [job.id for job in loaded.jobs] == [7]
    store.close()
