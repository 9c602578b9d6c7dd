"""No log is discarded on its host before it would survive a power cut: the calls of the file system as they
came, and what of them is on the disk at each moment."""

import os
import threading
import time
from pathlib import Path

import pytest

from rm.adapters.store.log_directory import Disk, LogDirectory, Together, log_path
from rm.core.jobs import events as ev
from rm.core.jobs.actions import Collect
from rm.core.model.logs import KeptLog, LogName
from tests.executing import House, text
from tests.fakes import PATIENCE_S


class CutDisk(Disk):
    """A disk whose power can be cut: only bytes and names that were synced are on it then."""

    def __init__(self) -> None:
        self.bytes: dict[int, bytes] = {}  # by inode
        self.names: dict[Path, dict[str, int]] = {}  # by directory: inodes
        self.fails = False

    def sync(self, path: Path) -> None:
        if self.fails:
            raise OSError(5, "Input/output error")
        if path.is_dir():
            self.names[path] = {entry.name: entry.stat().st_ino for entry in path.iterdir()}
        else:
            self.bytes[path.stat().st_ino] = path.read_bytes()

    def after_a_cut(self, root: Path, log: LogName) -> bytes | None:
        """The log as it is found when the machine is up again; None when its name leads nowhere."""
        path = log_path(root, log)
        folder = self.names.get(root, {}).get(path.parent.name)
        if folder is None or folder != path.parent.stat().st_ino:
            return None
        inode = self.names.get(path.parent, {}).get(path.name)
        return None if inode is None else self.bytes.get(inode, b"")


@pytest.fixture
def disk() -> CutDisk:
    return CutDisk()


@pytest.fixture
def house(tmp_path: Path, disk: CutDisk) -> House:
    return House(tmp_path, place=LogDirectory(tmp_path, disk), later_s=0.01)


def give(house: House, rank: int, data: str) -> None:
    house.hosts.take("logs").answer(**text(data))
    house.hosts.take("logs").answer(**text(""))


def test_the_host_discards_only_what_a_power_cut_would_leave(house: House, disk: CutDisk) -> None:
    house.connect()
    house.submit(Collect(1, 1, "h1", (0, 1)))
    for rank in (0, 1):
        give(house, rank, f"rank {rank}\n")
    discard = house.hosts.take("discard")
    for rank in (0, 1):
        assert disk.after_a_cut(house.logs, LogName(1, 1, rank, "out")) == f"rank {rank}\n".encode()
    discard.answer()
    assert house.outcome(1) == tuple(KeptLog(LogName(1, 1, rank, "out"), 7, 7) for rank in (0, 1))
    house.executor.close()


def test_a_disk_that_cannot_sync_leaves_the_log_on_its_host(house: House, disk: CutDisk) -> None:
    house.connect()
    disk.fails = True
    house.submit(Collect(1, 1, "h1", (0,)))
    give(house, 0, "said\n")
    assert house.hosts.untaken("discard") == []
    disk.fails = False
    house.hosts.take("discard").answer()  # it is tried again, and not fetched again
    assert house.outcome(1) == (KeptLog(LogName(1, 1, 0, "out"), 5, 5),)
    assert disk.after_a_cut(house.logs, LogName(1, 1, 0, "out")) == b"said\n"
    house.executor.close()


def test_what_is_lost_is_recorded_and_told(house: House) -> None:
    house.connect()
    house.submit(Collect(1, 1, "h1", (0,)))
    house.hosts.take("logs").refuse("no-such-attempt")
    (lost,) = house.outcome(1)
    assert (lost.name, lost.kept_bytes) == (LogName(1, 1, 0, "out"), 0)
    assert lost.why.startswith("h1 did not give it")
    assert "logs of attempt 1 are lost" in house.inbox.wait(ev.Noted).what
    house.executor.close()


def test_a_collection_that_was_cut_short_after_the_discard_finds_its_logs(house: House) -> None:
    log = log_path(house.logs, LogName(1, 1, 0, "out"))
    log.parent.mkdir()
    log.write_bytes(b"said\n")
    house.connect()
    house.submit(Collect(1, 1, "h1", (0, 1)))
    house.hosts.take("logs").refuse("discarded")
    assert house.outcome(1) == (KeptLog(LogName(1, 1, 0, "out"), 5, 5),)  # rank 1's was empty
    house.executor.close()


def test_a_log_that_cannot_be_read_is_no_empty_one(house: House) -> None:
    house.connect()
    house.submit(Collect(1, 1, "h1", (0,)))
    house.hosts.take("logs").refuse("no-log")
    house.hosts.take("logs").answer(**text(""))
    house.hosts.take("discard").answer()
    assert house.outcome(1) == (KeptLog(LogName(1, 1, 0, "out"), why="no"),)
    house.executor.close()


def test_logs_of_a_host_that_is_removed_are_lost_not_empty(house: House) -> None:
    house.submit(Collect(1, 1, "h1", (0,)))
    assert [one.host for one in house.executor.collecting(1, 1)] == ["h1"]
    house.executor.forget("h1")
    assert house.outcome(1)[0].why == "host h1 was removed before it was collected"
    assert house.executor.collecting(1, 1) == []
    house.executor.close()


def test_a_log_takes_the_place_of_what_an_ended_daemon_left(tmp_path: Path) -> None:
    name = LogName(1, 1, 0, "out")
    for content in (b"from another life", b"new"):
        place = LogDirectory(tmp_path)
        place.coming(name).parent.mkdir(exist_ok=True)
        place.coming(name).with_name("0.out.dead.part").write_bytes(b"half")
        place.coming(name).write_bytes(content)
        place.keep([name])
        assert place.read(name, 0, 100) == content
        assert os.listdir(tmp_path / "1.1") == ["0.out"]


def test_many_that_sync_at_once_share_the_sync(tmp_path: Path) -> None:
    begun, goes_on, calls = threading.Semaphore(0), threading.Semaphore(0), []

    def work() -> None:
        calls.append(len(calls))
        begun.release()
        goes_on.acquire()

    together = Together(work)
    first = threading.Thread(target=together)
    first.start()
    begun.acquire()
    others = [threading.Thread(target=together) for _ in range(20)]
    for other in others:
        other.start()
    while len(together._changed._waiters) < 20:  # type: ignore[attr-defined]
        time.sleep(0.001)
    goes_on.release(2)
    for thread in (first, *others):
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    assert len(calls) == 2  # the first began before the others came, so it is not theirs


def test_a_sync_that_fails_is_tried_by_the_next() -> None:
    outcomes = [OSError("bad"), None]

    def work() -> None:
        outcome = outcomes.pop(0)
        if outcome is not None:
            raise outcome

    together = Together(work)
    with pytest.raises(OSError, match="bad"):
        together()
    together()
    assert outcomes == []
