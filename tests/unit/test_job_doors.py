"""The sockets of clients that run for programs of jobs, and what a killed daemon leaves of them."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from rm.core.people.rights import Scope
from rm.web.callers.identity import OfJob
from rm.web.doors.job_door import PREFIX, JobDoors, folder_of_doors
from tests.fake_service import Daemon, serving
from tests.fakes import PATIENCE_S

KILLED = """
import os, signal, socket, sys
from rm.web.doors.job_door import folder_of_doors
with folder_of_doors(sys.argv[1]) as folder:
    socket.socket(socket.AF_UNIX).bind(folder + "/0")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def killed(place: Path) -> Path:
    """The folder of a daemon that was killed while a client had a door."""
    subprocess.run([sys.executable, "-c", KILLED, str(place)], timeout=PATIENCE_S, check=False)
    (folder,) = place.iterdir()
    assert stat.S_ISSOCK((folder / "0").stat().st_mode)
    return folder


def test_a_door_is_gone_with_its_client_and_the_folder_with_the_daemon(tmp_path: Path) -> None:
    async def doors(daemon: Daemon, folder: str) -> list[str]:
        opened = JobDoors(daemon.runner, folder)
        job = OfJob("ann", Scope.READ, "job 7 on h1")
        async with opened.open(job) as one, opened.open(job) as another:
            assert sorted(os.listdir(folder)) == sorted(os.path.basename(door) for door in (one, another))
        return os.listdir(folder)

    with serving(tmp_path / "rm.sock") as daemon, folder_of_doors(str(tmp_path)) as folder:
        assert os.stat(folder).st_mode & 0o077 == 0
        left = asyncio.run_coroutine_threadsafe(doors(daemon, folder), daemon.loop).result(PATIENCE_S)
        assert left == []
    assert not os.path.exists(folder)


def test_the_next_daemon_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    left = killed(tmp_path)
    with folder_of_doors(str(tmp_path)) as folder:
        assert [str(one) for one in tmp_path.iterdir()] == [folder] != [str(left)]


def test_a_daemon_starts_where_nothing_can_be_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(fd: int, how: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("rm.web.doors.job_door.fcntl", SimpleNamespace(**{**vars(fcntl), "flock": refuse}))
    with folder_of_doors(str(tmp_path)) as folder:
        assert [str(one) for one in tmp_path.iterdir()] == [folder]
    assert not list(tmp_path.iterdir())


def test_folders_of_living_daemons_and_of_others_stay(tmp_path: Path) -> None:
    others, elsewhere = tmp_path / "others", tmp_path / "elsewhere"
    others.mkdir()
    elsewhere.mkdir()
    (elsewhere / "kept").touch()
    (others / f"{PREFIX}link").symlink_to(elsewhere)
    (others / f"{PREFIX}file").touch()
    (others / "rm-somebody").mkdir()
    if os.geteuid() == 0:
        (others / f"{PREFIX}anns").mkdir()
        os.chown(others / f"{PREFIX}anns", 54321, 54321)
    before = set(others.iterdir())
    with folder_of_doors(str(others)) as living, folder_of_doors(str(others)) as second:
        door = socket.socket(socket.AF_UNIX)
        door.bind(f"{living}/0")
        with folder_of_doors(str(others)) as third:
            assert set(others.iterdir()) - before == {Path(living), Path(second), Path(third)}
        assert os.listdir(living) == ["0"]
        door.close()
    assert set(others.iterdir()) == before
    assert list(elsewhere.iterdir()) == [elsewhere / "kept"]
