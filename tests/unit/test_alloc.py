"""The words of `rmx alloc`, and what an `srun` of this machine takes along into an allocation."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from rm.cli.jobs import alloc
from rm.cli.jobs.alloc import OWN, How, how_of, why_gone
from rm.cli.jobs.allocated import environment
from rm.cli.slurm.srun import _job_named, asks_for_terminal, there
from rm.client import attending
from rm.client.connection import Connection
from rm.client.tether import Tether
from rm.errors import NotFound, RmError, UsageError
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


def allocation(**other: Any) -> Any:
    spec = {"name": "train", "user": "ann", "chdir": "/here", "submit_host": "login", "dependency": ""}
    return SimpleNamespace(
        id=7, hosts=["g1", "g2"], spec=SimpleNamespace(**spec, env={"SLURM_SUBMIT_DIR": "/there"})
    )


BY_THE_DAEMON = {
    "SLURM_JOB_ID": "7", "SLURM_JOBID": "7", "RM_JOB_ID": "7", "RM_ALLOCATION": "7",
    "SLURM_JOB_NAME": "train", "SLURM_JOB_USER": "ann", "SLURM_JOB_NODELIST": "g[1-2]",
    "SLURM_NODELIST": "g[1-2]",
    "SLURM_JOB_NUM_NODES": "2", "SLURM_NNODES": "2", "SLURM_SUBMIT_DIR": "/there",
    "SLURM_SUBMIT_HOST": "login", "PATH": "/tmp/p:/bin",
}  # fmt: skip


@pytest.mark.parametrize(
    ("line", "terminal"),
    [
        ("--pty bash", True),
        ("-n 2 --pty bash", True),
        ("-ln2 -N1 --mem 5 --pty", True),
        ("-w h1 --label --exact --pty=0 bash", True),
        ("bash --pty", False),
        ("-n2 tool --pty", False),
        ("-J --pty tool", False),
        ("--job-name --pty tool", False),
        ("-- tool --pty", False),
        ("", False),
    ],
)
def test_a_terminal_is_asked_for_by_an_option_and_by_no_word_of_the_command(
    line: str, terminal: bool
) -> None:
    assert asks_for_terminal(line.split()) is terminal


def test_the_command_finds_the_allocation_and_not_its_first_host() -> None:
    found = {
        "SLURM_JOB_ID": "7",
        "SLURM_NODEID": "0",
        "SLURM_NTASKS": "4",
        "HOME": "/home/ann",
        "RM_RANK": "0",
    }
    session: Any = SimpleNamespace(socket_flag="/run/rm.sock", config_flag=None)
    own = {"PATH": "/bin", "HOME": "/here", "SLURM_NTASKS": "1"}
    made = environment(own, found, allocation(), session, "/tmp/p")
    assert made == {
        **BY_THE_DAEMON, "HOME": "/here", "SLURM_NTASKS": "4", "RM_DAEMON__SOCKET": "/run/rm.sock",
    }  # fmt: skip


def test_in_a_job_the_command_finds_no_programs_of_that_job() -> None:
    own = {"PATH": "/bin:/var/lib/rm/bin:/shims", "RM_BIN": "/var/lib/rm/bin", "RM_STEPS": "/jobs/3.1/steps"}
    session: Any = SimpleNamespace(socket_flag=None, config_flag=None)
    made = environment(own, {}, allocation(), session, "/tmp/p")
    assert made == {**BY_THE_DAEMON, "PATH": "/tmp/p:/bin:/shims"}


def test_no_host_leads_the_command_to_other_places_and_programs() -> None:
    """Slurm's programs and launchers of MPI obey variables; a script goes to its SLURM_SUBMIT_DIR."""
    lies = {
        "SLURM_CONF": "/tmp/evil/slurm.conf",
        "SLURM_STDINMODE": "/home/ann/.ssh/id_ed25519",
        "SLURM_STDOUTMODE": "/home/ann/.bashrc",
        "SLURM_TASK_PROLOG": "/tmp/evil/run",
        "SLURM_SUBMIT_DIR": "/tmp/evil",
        "SLURM_JOB_NODELIST": "evil",
        "SLURM_JOB_ID": "8",
        "SLURM_NTASKS": "a[$(touch /tmp/evil)]",
        "SLURM_TASKS_PER_NODE": "1\n2",
        "LD_PRELOAD": "/tmp/evil.so",
        "BASH_FUNC_ls%%": "() { touch /tmp/evil; }",
    }
    session: Any = SimpleNamespace(socket_flag=None, config_flag=None)
    made = environment({"PATH": "/bin"}, lies, allocation(), session, "/tmp/p")
    assert made == BY_THE_DAEMON


def test_a_host_that_never_ends_its_answer_fills_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def attend(self: attending.Session, streams: attending.Streams) -> None:
        with suppress(OSError):
            while True:
                os.write(streams.stdout, b"A=" * 4096)

    monkeypatch.setattr(attending.Session, "attend", attend)
    made = Tether(lambda: Connection("/nowhere"), 7, lambda: None)
    with pytest.raises(RmError, match="without end"):
        made.environment()
    os.close(made._said)


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


@pytest.mark.parametrize(
    ("state", "ending", "ended_us", "said"),
    [
        ("RUNNING", None, None, "Job 7 is not held any more. The host hung up."),
        ("COMPLETING", "CANCELLED", None, "Job allocation 7 has been revoked."),
        (
            "COMPLETING",
            "TIMEOUT",
            None,
            "Job 7 has exceeded its time limit and its allocation has been revoked.",
        ),
        ("TIMEOUT", None, 1, "Job 7 has exceeded its time limit and its allocation has been revoked."),
        ("CANCELLED", None, 1, "Job allocation 7 has been revoked."),
    ],
)
def test_a_job_that_still_ends_is_revoked(
    state: str, ending: str | None, ended_us: int | None, said: str
) -> None:
    job: Any = SimpleNamespace(id=7, state=state, ending=ending, ended_us=ended_us)
    assert why_gone(job, RmError("The host hung up.")) == said


@pytest.mark.parametrize(
    ("states", "said"),
    [
        (["RUNNING"], ["Granted job allocation 7"]),
        (["CONFIGURING", "RUNNING"], ["Granted job allocation 7"]),
        (
            ["PENDING", "CONFIGURING", "RUNNING"],
            [
                "Pending job allocation 7",
                "job 7 queued and waiting for resources",
                "job 7 has been allocated resources",
                "Granted job allocation 7",
            ],
        ),
    ],
)
def test_only_a_job_without_hosts_waits_for_resources(
    states: list[str], said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Slurm's salloc, also where it takes a while until the hosts have prepared the job."""
    told: list[str] = []
    monkeypatch.setattr(alloc, "FIRST_LOOK_S", -1.0)
    monkeypatch.setattr(alloc, "note", told.append)
    monkeypatch.setattr(alloc.time, "sleep", lambda pause_s: None)
    look = iter([SimpleNamespace(state=state, reason=None, ended_us=None) for state in states])
    session: Any = SimpleNamespace(client=SimpleNamespace(job=lambda job: next(look)))
    signals: Any = SimpleNamespace(ending=lambda: False)
    assert alloc._granted(session, 7, signals, How())
    assert told == said
