"""A command that is newer than the daemon: what changes nothing is left out, and the rest is said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import rm.web.wire
from rm.client import Client
from rm.errors import UsageError
from tests.command_line import Rmx
from tests.fake_service import Daemon
from tests.slurm_program import Slurm

Lacks = Callable[..., None]


@pytest.fixture
def lacks(monkeypatch: pytest.MonkeyPatch) -> Lacks:
    """The daemon is from before these fields."""
    real = rm.web.wire._only

    def lack(*names: str) -> None:
        def only(value: Any, known: Any, what: str) -> None:
            real(value, [name for name in known if name not in names], what)

        monkeypatch.setattr(rm.web.wire, "_only", only)

    return lack


def test_what_only_lists_show_is_left_out(daemon: Daemon, rmx: Rmx, slurm: Slurm, lacks: Lacks) -> None:
    rmx("submit", "--wrap=true")
    assert daemon.service.table[1].spec.submit_line == "rmx submit --wrap=true"
    lacks("submit_line", "script_path")
    assert rmx("submit", "--job-name=two", "--wrap=true") == (0, "Submitted batch job 2\n", "")
    assert slurm("sbatch", "--job-name=three", "--wrap=true") == (0, "Submitted batch job 3\n", "")
    assert [daemon.service.table[job].spec.name for job in (2, 3)] == ["two", "three"]
    assert daemon.service.table[2].spec.submit_line == ""
    specs = [
        {"name": "x", "script": "#!/bin/sh\n", "submit_line": "y"},
        {"name": "z", "script": "#!/bin/sh\n"},
    ]
    with Client() as client:
        assert list(client.submit_many(specs)) == [4, 5]


def test_what_changes_the_job_is_refused_by_a_sentence(
    daemon: Daemon, rmx: Rmx, slurm: Slurm, lacks: Lacks
) -> None:
    rmx("submit", "--wrap=true")
    lacks("prefer", "submit_line", "qos")
    older = "The daemon does not know the field 'prefer': it is older than this rm."
    for done in (
        rmx("submit", "--prefer=a100", "--wrap=true"),
        slurm("sbatch", "--prefer=a100", "--wrap=true"),
    ):
        assert done.code
        assert older in done.err
        assert "Upgrade the daemon" in done.err
    for done in (rmx("set", "1", "qos=high"), slurm("scontrol", "update", "JobId=1", "QOS=high")):
        assert done.code
        assert "The daemon does not know the field 'qos'" in done.err
    assert list(daemon.service.table) == [1]


def test_a_field_that_nobody_knows_is_still_a_mistake(daemon: Daemon) -> None:
    with Client() as client, pytest.raises(UsageError, match="Unknown field 'nmae' in the job") as raised:
        client.submit({"nmae": "x", "script": "#!/bin/sh\n"})
    assert raised.value.hint == "Did you mean 'name'?"
