"""A daemon whose service is a fake and the command line that talks to it; real agents, one process each;
tools of hosts that tests write."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from rm.core.model.asked.array import Array
from tests.agent_process import Agent, Start, agents
from tests.command_line import Rmx, caller
from tests.fake_service import Daemon, serving
from tests.slurm_program import Slurm
from tests.slurm_program import caller as slurm_caller
from tests.submitting import submitted


@pytest.fixture(scope="module", autouse=True)
def _usual() -> Iterator[None]:
    """The times that tests expect are written in one zone, and the modes of files under one umask, wherever
    they run."""
    umask = os.umask(0o022)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()
    os.umask(umask)


@pytest.fixture
def rmx(capfd: pytest.CaptureFixture[str]) -> Rmx:
    return caller(capfd)


@pytest.fixture
def slurm(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Slurm:
    return slurm_caller(capfd, monkeypatch)


@pytest.fixture
def a_minute_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs that the fake service has started run for a minute by now, and by whatever is asked next."""
    clock = SimpleNamespace(**vars(time) | {"time_ns": lambda: 65_000_000_000})
    monkeypatch.setattr("rm.cli.shown.time", clock)


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    """The working directory has a script, `train.sh`."""
    (tmp_path / "train.sh").write_text("#!/bin/sh\n#SBATCH --job-name=train --reboot\n#RM -n 2\necho hi\n")
    monkeypatch.chdir(tmp_path)
    with serving(tmp_path / "rm.sock") as daemon:
        monkeypatch.setenv("RM_DAEMON__SOCKET", daemon.socket)
        monkeypatch.setenv("RM_DAEMON__STATE_DIR", str(tmp_path / "state"))  # for the history of playbooks
        yield daemon


@pytest.fixture
def jobs_of_slurm(daemon: Daemon) -> None:
    """1 runs on h1; 2 waits; 3 is an array in a partition, of which 3_1 runs as 4; 5 has failed."""
    submitted(daemon, "--job-name=averylongname", "-n2", "--time=90")
    submitted(daemon, "--job-name=narrow", "-N3", "--mem=100", "--priority=7")
    submitted(daemon, "--job-name=many", "--partition=fast", "--array=0-5%2")
    submitted(daemon, "--job-name=many", "--partition=fast")
    submitted(daemon, "--job-name=bad")
    service = daemon.service
    service.run(1)
    service.put(3, array=Array(waiting="0,2-5", running="1", limit=2))
    service.run(4, "h2")
    service.put(4, array_job=3, array_task=1)
    service.finish(5, 3)


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts agents, each of which ends with the test."""
    with agents() as starter:
        yield starter


@pytest.fixture
def agent(start: Start) -> Agent:
    return start()


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    """Put a shell script of this name before all others; the answer is the file of its calls."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/sbin:/usr/bin:/sbin:/bin")

    def add(name: str, script: str) -> Path:
        log = tmp_path / f"{name}.log"
        log_word, there = shlex.quote(str(log)), shlex.quote(str(tmp_path))
        (folder / name).write_text(f'#!/bin/sh\necho "$*" >> {log_word}\ncd {there}\n{script}\n')
        (folder / name).chmod(0o755)
        return log

    return add
