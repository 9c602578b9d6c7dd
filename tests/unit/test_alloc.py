"""The words of `rmx alloc`, and what an `srun` of this machine takes along into an allocation."""

from __future__ import annotations

import signal
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from rm.cli.jobs.alloc import OWN, How, how_of
from rm.cli.jobs.allocated import environment
from rm.cli.slurm.srun import _job_named, there
from rm.client.connection import Connection
from rm.client.tether import Tether
from rm.errors import NotFound, UsageError
from rm.submission.directives import with_optional_values

PLAIN: dict[str, Any] = {
    "no_shell": False, "immediate": None, "kill_command": None, "quiet": False, "bell": False,
}  # fmt: skip


def test_how() -> None:
    assert how_of(**PLAIN) == How()
    assert how_of(**{**PLAIN, "immediate": ""}).immediate_s == 1
    assert how_of(**{**PLAIN, "immediate": "60"}).immediate_s == 60
    assert how_of(**{**PLAIN, "kill_command": ""}) == How(kills=True)
    for name in ("TERM", "sigterm", "15"):
        assert how_of(**{**PLAIN, "kill_command": name}).kill_by == signal.SIGTERM


@pytest.mark.parametrize(
    "given", [{"immediate": "soon"}, {"kill_command": "LOUD"}, {"kill_command": "99"}, {"kill_command": "²"}]
)
def test_what_cannot_be_read_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        how_of(**{**PLAIN, **given})


def test_a_letter_has_its_value_right_behind_it() -> None:
    words = ["-I", "-K9", "-n", "2", "srun", "-I"]
    assert with_optional_values(words, OWN) == ["--immediate=", "--kill-command=9", "-n", "2", "srun", "-I"]


def test_a_step_takes_along_what_has_changed_here() -> None:
    known = {"PATH": "/bin", "HOME": "/home/ann", "COLOUR": "red", "OLD": "1"}
    own = {**known, "PATH": "/tmp/rm-alloc-x:/bin", "RM_ALLOCATION": "7", "SLURM_JOB_ID": "7"}
    assert there(["-n1", "ls"], own, known, "/w", "/w") == ["srun", "-n1", "ls"]
    assert there(["ls"], own, known, "/elsewhere", "/w") == ["srun", "--chdir", "/elsewhere", "ls"]
    own |= {"COLOUR": "blue", "NEW": "a b", "HOME": "/root", "SLURM_NTASKS": "9"}
    del own["OLD"]
    assert there(["ls"], own, known, "/w", "/w") == [
        "env",
        "-u",
        "OLD",
        "COLOUR=blue",
        "NEW=a b",
        "srun",
        "ls",
    ]
    own["PATH"] = "/tmp/rm-alloc-x:/opt/bin:/bin"
    argv = there(["ls"], own, known, "/w", "/w")
    assert (argv[5:7], argv[8:]) == (["sh", "-c"], ["srun", "/opt/bin:/bin", "", "ls"])
    del own["RM_ALLOCATION"]
    assert there(["ls"], own, known, "/w", "/w")[9] == "/tmp/rm-alloc-x:/opt/bin:/bin"


@pytest.mark.parametrize(
    ("words", "job", "rest"),
    [
        (["--jobid=7", "ls"], "7", ["ls"]),
        (["-l", "--jobid", "7", "ls"], "7", ["-l", "ls"]),
        (["ls", "--jobid=7"], "", ["ls", "--jobid=7"]),
        (["--jobid"], "", ["--jobid"]),
    ],
)
def test_the_job_that_is_named(words: list[str], job: str, rest: list[str]) -> None:
    assert _job_named(words) == (job, rest)


def test_the_command_finds_the_allocation_and_not_its_first_host() -> None:
    found = {
        "SLURM_JOB_ID": "7",
        "SLURM_NODEID": "0",
        "SLURM_NTASKS": "4",
        "HOME": "/home/ann",
        "RM_RANK": "0",
    }
    session: Any = SimpleNamespace(socket_flag="/run/rm.sock", config_flag=None)
    made = environment({"PATH": "/bin", "HOME": "/here", "SLURM_NTASKS": "1"}, found, 7, session, "/tmp/p")
    assert made == {
        "PATH": "/tmp/p:/bin", "HOME": "/here", "SLURM_NTASKS": "4", "SLURM_JOB_ID": "7", "RM_JOB_ID": "7",
        "RM_ALLOCATION": "7", "RM_DAEMON__SOCKET": "/run/rm.sock",
    }  # fmt: skip


def test_who_is_told_of_the_end_finds_that_it_holds_no_more() -> None:
    def nowhere() -> Connection:
        raise NotFound("There is no such job.")

    told: list[bool] = []
    heard = threading.Event()

    def on_end() -> None:
        made.wait()
        told.append(tether.holds)
        heard.set()

    made = threading.Event()
    tether = Tether(nowhere, 7, on_end)
    made.set()
    assert heard.wait(60)
    assert told == [False]
