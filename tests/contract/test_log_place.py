"""What every place for logs must do: a directory, and the database of PostgreSQL users."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rm.adapters.store.log_database import PART_BYTES
from rm.adapters.store.log_directory import LogDirectory
from rm.core.model.logs import LogName, LogPlace

NAME = LogName(7, 1, 0, "out")


@pytest.fixture(params=["directory", pytest.param("postgres", marks=pytest.mark.postgres)])
def open_place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], LogPlace]]:
    """Opens one place as another daemon would: with a state of its own."""
    if request.param == "directory":
        yield lambda: LogDirectory(tmp_path / "shared")
        return
    made, numbers = request.getfixturevalue("make_postgres")(), iter(range(100))
    stores: list[Any] = []

    def place() -> LogPlace:
        stores.append(made.open())
        found: LogPlace | None = stores[-1].log_place(tmp_path / f"daemon{next(numbers)}")
        assert found is not None
        return found

    yield place
    for store in stores:
        store.close()


def put(place: LogPlace, name: LogName, content: bytes) -> None:
    place.coming(name).parent.mkdir(parents=True, exist_ok=True)
    place.coming(name).write_bytes(content)
    place.keep([name])
    assert not place.coming(name).exists()


@pytest.mark.parametrize("size", [1, PART_BYTES, 2 * PART_BYTES + 5])
def test_another_daemon_reads_what_one_has_kept(open_place: Callable[[], LogPlace], size: int) -> None:
    content = os.urandom(size)
    put(open_place(), NAME, content)
    other = open_place()
    assert other.size(NAME) == size
    assert other.read(NAME, 0, size + 10) == content
    for offset, limit in ((size - 1, 9), (size // 2, 7), (size, 5), (size + PART_BYTES, 5)):
        assert other.read(NAME, offset, limit) == content[offset : offset + limit]
    fd = other.open(NAME)
    try:
        assert os.fstat(fd).st_size == size
        with os.fdopen(os.dup(fd), "rb") as file:
            assert file.read() == content
    finally:
        os.close(fd)


def test_a_log_replaces_the_one_of_its_name_and_no_other(open_place: Callable[[], LogPlace]) -> None:
    place, others = open_place(), [LogName(7, 2, 0, "out"), LogName(7, 1, 1, "out"), LogName(7, 1, 0, "err")]
    for number, name in enumerate(others):
        put(place, name, b"other%d" % number)
    put(place, NAME, b"x" * (PART_BYTES + 1))
    put(open_place(), NAME, b"short")
    assert place.read(NAME, 0, PART_BYTES) == b"short"
    assert [place.read(name, 0, 100) for name in others] == [b"other0", b"other1", b"other2"]


def test_what_is_not_there_has_no_size(open_place: Callable[[], LogPlace]) -> None:
    place = open_place()
    assert place.size(NAME) is None
    assert place.read(NAME, 0, 10) == b""
    place.keep([])
    place.forget(lambda job: False)


def test_logs_of_unknown_jobs_are_forgotten(open_place: Callable[[], LogPlace]) -> None:
    place = open_place()
    for job in (7, 8):
        put(place, LogName(job, 1, 0, "out"), b"said")
    left = place.coming(NAME).with_name("0.out.another.part")  # by a daemon that ended while it gathered
    left.parent.mkdir(parents=True, exist_ok=True)
    left.write_bytes(b"half")
    place.forget(lambda job: job == 8)
    assert place.size(NAME) is None
    assert not left.parent.exists()
    assert place.size(LogName(8, 1, 0, "out")) == 4
