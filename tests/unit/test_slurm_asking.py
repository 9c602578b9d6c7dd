"""What Slurm's lists ask: quickly of a daemon of this machine, with the same answers as by a Client."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from rm.arrays import JobId
from rm.cli.slurm import asking
from rm.cli.slurm.asking import Asking
from rm.client import Client
from rm.core.model.asked.array import Array
from rm.errors import NotFound
from tests.fake_service import Daemon
from tests.submitting import submitted


@pytest.fixture(autouse=True)
def jobs(daemon: Daemon) -> None:
    for number in range(5):
        submitted(daemon, f"--job-name=job{number}", "--comment=c")
    submitted(daemon, "--array=0-5%2")
    daemon.service.run(1)
    daemon.service.finish(2, 3)
    daemon.service.put(6, array=Array(waiting="0-5", limit=2))


def plain(value: Any) -> Any:
    return msgspec.to_builtins(value)


def test_the_answers_are_those_of_a_client(daemon: Daemon) -> None:
    with Client() as client, Asking() as quick:
        assert quick.hosts() == plain(client.hosts())
        assert quick.jobs(ended=True) == plain(client.jobs(ended=True))
        assert quick.jobs(state="PENDING,R", mine=True) == plain(client.jobs(state="PENDING,R", mine=True))
        assert quick.job(JobId(1)) == plain(client.job(1))
        assert quick.job(JobId(6, "2")) == client.job("6_2")
        assert quick.partitions() == plain(client.sharing.partitions())
        assert plain(quick.accounts()).keys() >= plain(client.sharing.accounts()).keys()
        assert quick.status().settings == plain(client.status().settings)
        assert quick.job_steps([1, 2]) == plain(client.job_steps([1, 2]))
        assert quick.starts().starts == plain(client.starts().starts)
        assert quick.job(JobId(1)).spec.name == "job0"
        assert quick.job(JobId(1)).schedule is None  # what is not told


def test_long_lists_come_in_pages(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "PAGE", 2)
    with Asking() as quick:
        assert [job.id for job in quick.jobs(ended=True)] == [1, 2, 3, 4, 5, 6]


def test_what_went_wrong_a_client_says(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    with Asking() as quick:
        with pytest.raises(NotFound):
            quick.job(JobId(99))
        monkeypatch.setattr(quick, "_path", "/nowhere")  # as where another machine is asked
        assert [job.id for job in quick.jobs(ended=True)] == [1, 2, 3, 4, 5, 6]
        assert len(quick.hosts()) > 1
