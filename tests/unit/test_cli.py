"""The command line against the real HTTP API: output, exit codes, and sentences instead of tracebacks."""

import asyncio
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rm.cli.heartbeat import Heartbeat
from rm.cli.main import JOB_VERBS, VERBS, run
from rm.client import connection as client_module
from rm.core.jobs.chain import Chain, Link
from rm.core.model.asked.array import Array
from rm.core.model.asked.dependency import Dependency, Standing
from rm.core.model.earlier_attempt import EarlierAttempt
from rm.core.model.job import JobSpec, JobState, Task
from rm.core.scheduling.queue_position import QueuePosition
from rm.errors import StoreUnavailable
from tests import builders
from tests.command_line import Rmx
from tests.fake_service import CARD, Daemon, FakeService, serving
from tests.fakes import PATIENCE_S
from tests.slurm_program import Slurm


def test_submit_prints_what_slurm_prints(daemon: Daemon, rmx: Rmx, tmp_path: Path) -> None:
    first = rmx("submit", "-n", "3", "train.sh", "--epochs", "2")
    assert (first.code, first.out) == (0, "Submitted batch job 1\n")
    assert (
        first.err
        == "rmx: Warning: --reboot (#SBATCH in line 2 of train.sh) is not supported and was ignored.\n"
    )
    spec = daemon.service.table[1].spec
    assert (spec.name, spec.ntasks, spec.script_args) == ("train", 3, ("--epochs", "2"))
    assert (spec.chdir, spec.script) == (str(tmp_path), (tmp_path / "train.sh").read_text())
    assert rmx("submit", "--parsable", "--file=train.sh").out == "2\n"
    assert rmx("submit", "--json", "--wrap", "sleep 1").json == {"version": 1, "job": 3}
    assert daemon.service.table[3].spec.script.endswith("\nsleep 1\n")


def test_a_task_requeues_its_own_job_without_the_daemon(
    rmx: Rmx, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports = tmp_path / "reports.jsonl"
    reports.touch()
    monkeypatch.setenv("RM_REPORTS", str(reports))
    monkeypatch.setenv("RM_JOB_ID", "12")
    result = rmx("requeue", "12")
    assert (result.code, result.out) == (0, "Job 12 is put back into the queue\n")
    assert reports.read_text().split() == ['["requeue"]']


def test_everything_that_a_script_asks_in_vain_is_told_at_once(
    daemon: Daemon, rmx: Rmx, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ("--batch=a", "--gres=gpu:1,nvme:1", "--time=soon", "--frobnicate")
    (tmp_path / "bad.sh").write_text("#!/bin/sh\n" + "".join(f"#SBATCH {line}\n" for line in lines))
    monkeypatch.setenv("SBATCH_NETWORK", "ours")
    result = rmx("submit", "--begin=later", "bad.sh")
    assert (result.code, daemon.service.table) == (2, {})
    assert "for 6 reasons" in result.err
    for said in ("--batch", "nvme:1", "'soon'", "--frobnicate", "SBATCH_NETWORK", "'later'"):
        assert said in result.err
    assert rmx("submit", "--wrap", " ").err == "rmx: --wrap is empty. Write: rmx submit --wrap 'COMMAND'.\n"


def test_the_environment_is_stronger_than_the_script_and_weaker_than_flags(
    daemon: Daemon, rmx: Rmx, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "p.sh").write_text("#!/bin/sh\n#SBATCH -p short -t 5\n#RM -J mine\ntrue\n")
    monkeypatch.setenv("SBATCH_PARTITION", "long")
    monkeypatch.setenv("SBATCH_TIMELIMIT", "60")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "3")
    assert rmx("submit", "--exclusive", "p.sh").code == 0
    assert rmx("submit", "-t", "7", "p.sh").code == 0
    first, second = (daemon.service.table[job].spec for job in (1, 2))
    assert (first.name, first.partition, first.time_limit_us) == ("mine", "long", 3_600_000_000)
    assert (first.exclusive, second.exclusive) == (True, False)
    assert (second.partition, second.time_limit_us) == ("long", 420_000_000)
    assert dict(first.env)["SLURM_SUBMIT_DIR"] == str(tmp_path)
    assert "SLURM_ARRAY_TASK_ID" not in dict(first.env)


def test_a_dry_run_submits_nothing(daemon: Daemon, rmx: Rmx) -> None:
    fits = rmx("submit", "--dry-run", "train.sh")
    assert (fits.code, "would start now on h1" in fits.out, "97.5" in fits.out) == (0, True, True)
    too_large = rmx("submit", "--test-only", "-c9", "train.sh")
    assert too_large.code == 3
    assert "(Resources) No host has 9 free processors. [wanted=9, free=8]" in too_large.out
    assert rmx("submit", "--test-only", "--json", "train.sh").json["placement"]["tasks"][0]["host"] == "h1"
    assert daemon.service.table == {}


def test_submit_and_wait_exits_with_the_jobs_code(daemon: Daemon, rmx: Rmx) -> None:
    daemon.call(lambda: daemon.service.finish(1, 3), waiting=1)
    result = rmx("submit", "--wait", "train.sh")
    assert (result.code, result.out) == (3, "Submitted batch job 1\n")
    assert "Job 1 ended FAILED (3:0)" in result.err
    rmx("submit", "train.sh")
    assert rmx("wait", "--timeout=20ms", "2").code == 124
    daemon.service.finish(2, 0, 9)
    assert rmx("wait", "--job=1,2").code == 137
    assert rmx("wait", "2", "--json").json["jobs"][0]["exit"] == "0:9"
    rmx("submit", "train.sh")
    rmx("cancel", "3")
    assert rmx("wait", "3").code == 1
    rmx("submit", "train.sh")
    elsewhere = "/data cannot be entered on h1 (No such file or directory); the job runs in /root there."
    tasks = tuple(Task(rank, "h1", note=elsewhere) for rank in (0, 1))
    daemon.service.put(4, state=JobState.COMPLETED, ended_us=9_000_000, exit_code=0, tasks=tasks)
    assert rmx("wait", "4").err == f"rmx: Job 4: {elsewhere}\n"  # its output is there, too
    rmx("submit", "--array=0-9", "train.sh")
    daemon.service.put(5, array=Array(completed="0-2", failed="3-9"))
    daemon.service.finish(5, 1)
    failed = "Job 5 ended FAILED (1:0). Failed: 3-9. `rmx show 5_3` tells why the first of them did.\n"
    assert rmx("wait", "5").err == f"rmx: {failed}"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (
            b"#!/bin/sh\r\ntrue\r\n",
            "contains DOS line breaks (\\r\\n). Convert it with: sed -i 's/\\r$//' bad",
        ),
        (b"\x7fELF\x00\x01", "is not a text script"),
        (b"#!/bin/sh\n# caf\xe9\n", "not UTF-8 text: line 2 has the byte 0xE9. If it is Latin-1, convert"),
        (b"echo hi\n", "The first line must start with #! followed by the path"),
        (b"", "is empty"),
        (
            b"#!/bin/sh\n#SBATCH --network=x\n",
            "--network (#SBATCH in line 2 of bad) is not supported",
        ),
        (None, "cannot be read: No such file"),
    ],
)
def test_a_bad_script_is_one_sentence(
    daemon: Daemon, rmx: Rmx, tmp_path: Path, content: bytes | None, sentence: str
) -> None:
    if content is not None:
        (tmp_path / "bad").write_bytes(content)
    result = rmx("submit", "bad")
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
    assert sentence in result.err
    assert daemon.service.table == {}


def test_all_mistakes_of_a_command_line_and_its_script_are_told_at_once(
    daemon: Daemon, rmx: Rmx, slurm: Slurm, tmp_path: Path
) -> None:
    (tmp_path / "bad.sh").write_text("#!/bin/sh\n#SBATCH --network=x\n#SBATCH --mem=lots\ntrue\n")
    assert rmx("submit", "--time=1", "--mem").err == "rmx: --mem (a flag) needs a value.\n"
    told = ("Unknown option --ntask (a flag)", "--network (#SBATCH in line 2", "'lots'", "'soon'")
    for said in (
        rmx("submit", "--ntask=4", "--time=soon", "bad.sh"),
        rmx("submit", "--time=soon", "--ntask", "bad.sh"),
        rmx("submit", "--time=soon", "--ntask", "4", "bad.sh", "argument"),
        rmx("submit", "--ntask", "4", "--time=soon", "--file=bad.sh", "--json"),
        slurm("sbatch", "--ntask=4", "--time=soon", "bad.sh"),
    ):
        assert (said.code, said.out) == (2 if said.err.startswith("rm") else 255, "")
        assert [sentence for sentence in told if sentence not in said.err] == []
        assert "for 4 reasons" in said.err
    assert daemon.service.table == {}


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["submit", "--wibble"], 2, "Unknown option --wibble (a flag)."),
        (["submit", "--network=x", "train.sh"], 2, "the job would do something else"),
        (["submit", "-n", "101", "train.sh"], 3, "The cluster has 2 hosts. Ask for less."),
        (["submit", "."], 2, "Is a directory"),
        (["sumbit"], 2, "Did you mean `rmx submit`?"),
        (["show", "99"], 4, "There is no job 99."),
        (["show", "x"], 2, "'x' is not a job id."),
        (["cancel"], 2, "No job is named."),
        (["cancel", "1,2.0"], 2, "'2.0' is a step, and this command cancels jobs. `scancel 2.0` ends a step"),
        (["cancel", "1", "--signal=NOPE"], 2, "There is no signal 'NOPE'."),
        (["queue", "--state=RUNING"], 2, "Did you mean 'RUNNING'?"),
        (["logs", "99"], 4, "There is no job 99."),
        (["resume", "h1"], 2, "'h1' is not a job id. Of a host: rmx host resume h1"),
        (["hold", "1,h1"], 2, "Of a host: rmx host drain h1"),
        (["release", "1x"], 2, "A job id is the number"),
        (["show", "h1"], 2, "Of a host: rmx host show h1"),
        (["host", "hold", "h1"], 2, "There is no command 'host hold'. Here it is: rmx host drain HOST"),
        (["host", "release", "h1"], 2, "Here it is: rmx host resume HOST"),
        (["host", "list"], 2, "Here it is: rmx hosts"),
        (["host", "resmue", "h1"], 2, "Did you mean `rmx host resume`?"),
        (["host", "wibble"], 2, "`rmx host --help` lists the commands."),
        (["host", "drain", "h9"], 4, "There is no host h9."),
        (["host", "accept-key", "h1", "--fingerprint=SHA256:zzz"], 6, "another key"),
        (["--config", "/nonexistent", "config", "show"], 8, "cannot be read"),
    ],
)
def test_mistakes_are_sentences_with_documented_codes(
    daemon: Daemon, rmx: Rmx, words: list[str], code: int, sentence: str
) -> None:
    result = rmx(*words)
    assert (result.code, result.out) == (code, "")
    assert sentence in result.err
    documented = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    assert f"| {code} |" in documented


def test_no_daemon_is_told_with_how_to_start_one(
    rmx: Rmx, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RM_DAEMON__SOCKET", raising=False)
    result = rmx("--socket", str(tmp_path / "none.sock"), "queue")
    assert result.code == 7
    assert "No daemon listens on" in result.err
    assert "rmx daemon" in result.err
    (tmp_path / "rm.toml").write_text(f"[daemon]\nsocket = '{tmp_path}/from-file.sock'\n")
    assert "from-file.sock" in rmx("--config", str(tmp_path / "rm.toml"), "queue").err
    (tmp_path / "rm.toml").write_text("[daemon\n")
    assert rmx("--config", str(tmp_path / "rm.toml"), "queue").code == 8


def test_a_defect_is_told_without_a_traceback(
    daemon: Daemon, rmx: Rmx, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rm.cli.jobs.queue.table", lambda *_, **__: 1 / 0)
    monkeypatch.delenv("RM_DEBUG", raising=False)
    result = rmx("queue")
    assert result.code == 70
    assert "ZeroDivisionError" in result.err
    assert "Traceback" not in result.err


def test_queue_keeps_long_names_and_tames_hostile_ones(daemon: Daemon, rmx: Rmx) -> None:
    rmx("submit", "-J", "a-name-longer-than-eight-characters", "--wrap=true")
    rmx("submit", "-J", "red\x1b[31m", "--hold", "--wrap=true")
    daemon.service.run(1)
    listed = rmx("queue").out
    assert listed.splitlines()[0].split() == [
        "JOBID", "PARTITION", "NAME", "USER", "ST", "TIME", "GPUS", "TASKS", "HOSTS(REASON)",
    ]  # fmt: skip
    assert "a-name-longer-than-eight-characters" in listed
    assert "\x1b" not in listed
    assert [job["id"] for job in rmx("queue", "--json").json["jobs"]] == [1, 2]
    rmx("queue", "--me", "--state=PD", "--job-name=x", "--limit=3", "--all")
    _, states, user, name, limit, everything = daemon.service.log[-1]
    assert (states, bool(user), name, limit, everything) == ({"PENDING"}, True, "x", 4, True)


def test_show_tells_the_story(daemon: Daemon, rmx: Rmx) -> None:
    rmx("submit", "train.sh")
    rmx("submit", "--period=196ms", "--duty-cycle=0.5", "--bandwidth=80Mbit", "--mem=4G", "--wrap=true")
    daemon.service.run(2)
    daemon.service.put(2, history=((1_000_000, "submitted by ann"),))
    text = rmx("show", "2").out
    for line in (
        "State:       RUNNING",
        "MemPerHost:  4 GiB",
        "Traffic:     every 196ms: 98ms at 80Mbps from 0s",
        "Schedule:    shifted by 40ms, an iteration every 200ms, 4ms idle added",
        "Remaining:   59:00, by its iterations",
    ):
        assert line in text
    assert "submitted by ann" in text
    assert rmx("show", "--job=1", "--json").json["job"]["spec"]["name"] == "train"
    assert "Mean:        201ms" in rmx("iterations", "2").out
    assert rmx("iterations", "2", "--json").json["count"] == 7
    assert "GpusPerTask" not in text
    assert "PROCESSORS" not in text
    task = daemon.service.table[2].tasks[0]
    daemon.service.put(2, tasks=(replace(task, cores=(0, 1, 2, 8)),))
    assert "0-2,8" in rmx("show", "2").out
    rmx("submit", "--gpus=a100:1", "--gpu-mem=16G", "--expect=2h", "--iterations=6000", "--wrap=true")
    spec = daemon.service.table[3].spec
    assert (spec.gpu_mem_bytes, spec.expected_us, spec.iterations) == (16 << 30, 7_200_000_000, 6000)
    text = rmx("show", "3").out
    for line in (
        "GpusPerTask: a100:1, shared, 16 GiB of each",
        "Expected:    2:00:00",
        "Iterations:  6000",
    ):
        assert line in text


def test_show_says_which_file_of_which_host_the_output_is(daemon: Daemon, rmx: Rmx) -> None:
    rmx(
        "submit",
        "-o",
        "out/%x-%4j.txt",
        "-e",
        "/var/tmp/%t.err",
        "-D",
        "/data",
        "-n2",
        "-Jfit",
        "--wrap=true",
    )
    rmx("submit", "-o", "/dev/null", "--wrap=true")
    assert "Output:      out/%x-%4j.txt\n" in rmx("show", "1").out  # no task is anywhere yet
    daemon.service.run(1)
    daemon.service.run(2)
    assert (
        "Output:      /data/out/fit-0001.txt on h1\nError:       /var/tmp/0.err on h1\n"
        in rmx("show", "1").out
    )
    assert "Output:      /dev/null\n" in rmx("show", "2").out
    first = daemon.service.table[1].tasks[0]
    daemon.service.put(1, tasks=(first, replace(first, rank=1, host="h2")))
    shown = rmx("show", "1").out
    assert "Output:      /data/out/fit-0001.txt on h[1-2]\nError:       /var/tmp/%t.err on h[1-2]\n" in shown


def test_show_names_the_file_to_which_the_log_of_a_job_without_output_is_copied(
    daemon: Daemon, rmx: Rmx
) -> None:
    def output_of(job: int, **fields: Any) -> str:
        spec = daemon.service.table[job].spec
        given = {"chdir": "/home/ann", "deliver": "rm-%j.out", "submit_host": "login", **fields}
        daemon.service.put(job, spec=replace(spec, **given))
        said = re.findall(r"^Output: *(.*)", rmx("show", str(job)).out, re.M)
        return said[0] if said else ""

    for tasks in ("1", "2"):
        rmx("submit", "-n", tasks, "--wrap=true")
    copy = "on login (a copy of the log, made at the end)"
    assert output_of(1) == f"/home/ann/rm-1.out {copy}"
    daemon.service.run(1)
    assert output_of(1, deliver="%N.out") == f"/home/ann/h1.out {copy}"
    assert output_of(1, output="/dev/null") == "/dev/null"
    assert output_of(1, deliver="", output="") == ""
    assert output_of(2, launch="tasks") == f"/home/ann/rm-2.%t.out {copy}"
    assert output_of(2, launch="batch") == f"/home/ann/rm-2.out {copy}"


def test_of_very_many_cancelled_jobs_their_number_is_said(daemon: Daemon, rmx: Rmx) -> None:
    for _ in range(101):
        rmx("submit", "train.sh")
    assert rmx("cancel", "--job-name=train").out == "101 jobs are CANCELLED\n"


def test_jobs_are_changed_one_by_one(daemon: Daemon, rmx: Rmx) -> None:
    for _ in range(3):
        rmx("submit", "train.sh")
    assert rmx("hold", "1").out == "Job 1 is held\n"
    assert daemon.service.table[1].held
    assert rmx("release", "--job=1").code == 0
    assert not daemon.service.table[1].held
    assert rmx("cancel", "1", "--signal=USR1").out == "Job 1 got signal 10\n"
    several = rmx("cancel", "2", "99", "3")
    assert (several.code, several.out) == (4, "Job 2 is CANCELLED\nJob 3 is CANCELLED\n")
    assert rmx("cancel", "2").code == 6
    assert [job["id"] for job in rmx("cancel", "--job-name=train", "--json").json["jobs"]] == [1]
    assert rmx("requeue", "1").out == "Job 1 is put back into the queue\n"


WORDS = ("hello", "world")


def test_logs_are_bytes_and_can_be_followed(daemon: Daemon, rmx: Rmx) -> None:
    rmx("submit", "train.sh")
    assert rmx("logs", "1").out == "hello\nworld\n"
    assert rmx("logs", "--job=1", "--task=1", "--offset=6").out == "world\n"
    assert rmx("logs", "1", "--stderr").out == "oops\n"
    assert rmx("logs", "1", "--task=9").code == 4
    daemon.call(daemon.service.finish, 1, waiting=1)
    assert rmx("logs", "1", "--follow").out == "hello\nworld\nmore\n"


def test_why_names_every_blocker_with_its_numbers(daemon: Daemon, rmx: Rmx) -> None:
    rmx("submit", "train.sh")
    text = rmx("why", "1").out
    assert "Job 1 is PENDING.\n  (Resources) No host has 9 free processors. [wanted=9, free=8]\n" in text
    assert rmx("why", "1", "--json").json["verdicts"][0]["host"] == "h1"


@pytest.mark.parametrize(
    ("jobs_ahead", "named", "told"),
    [
        (0, (), "Position 1 in the queue."),
        (1, (7,), "Position 2 in the queue. Ahead of it: job 7 (alice)."),
        (2, (7, 8), "Position 3 in the queue. Ahead of it: jobs 7 (alice), 8 (alice)."),
        (9, (7, 8), "Position 10 in the queue. Ahead of it: jobs 7 (alice), 8 (alice) and 7 more."),
        (1, (), "Position 2 in the queue. Ahead of it: 1 job."),
        (3, (), "Position 4 in the queue. Ahead of it: 3 jobs."),
    ],
)
def test_why_of_a_waiting_job_tells_who_is_ahead_of_it(
    daemon: Daemon,
    rmx: Rmx,
    monkeypatch: pytest.MonkeyPatch,
    jobs_ahead: int,
    named: tuple[int, ...],
    told: str,
) -> None:
    place = QueuePosition(jobs_ahead, tuple(builders.job(number) for number in named))
    monkeypatch.setattr("tests.fake_service.POSITION", place)
    rmx("submit", "train.sh")
    assert f"Job 1 is PENDING.\n  {told}\n" in rmx("why", "1").out


def test_why_of_a_job_that_waits_for_others_shows_the_chain(
    daemon: Daemon, rmx: Rmx, monkeypatch: pytest.MonkeyPatch
) -> None:
    rmx("submit", "-J", "prepare", "--wrap", "true")
    assert rmx("submit", "-d", "afterok:1", "--wrap", "true").out == "Submitted batch job 2\n"
    assert daemon.service.table[2].spec.dependency == "afterok:1"
    links = (
        Link(2, "afterok", 1, Standing.UNFULFILLED, JobState.RUNNING, "prepare"),
        Link(2, "afterany", 77, Standing.FULFILLED, None, None, "3-9"),
    )
    why = FakeService.why

    async def with_chain(self: FakeService, job: int) -> Any:
        return {**await why(self, job), "chain": Chain(links, 3)}

    monkeypatch.setattr(FakeService, "why", with_chain)
    told = rmx("why", "2").out
    assert "The chain in front of it:" in told
    lines = [line.split() for line in told.splitlines()]
    assert ["2", "afterok", "1", "RUNNING", "unfulfilled", "prepare"] in lines
    assert ["2", "afterany", "77_[3-9]", "not", "known", "fulfilled", "-"] in lines
    assert "  and 3 more" in told.splitlines()
    assert rmx("why", "2", "--json").json["chain_left_out"] == 3


def test_show_has_each_dependency_with_what_came_of_it(daemon: Daemon, rmx: Rmx) -> None:
    rmx("submit", "-d", "after:1+5?singleton", "--wrap", "true")
    dependencies = (
        Dependency("after", 1, 300_000_000, Standing.FULFILLED, 9),
        Dependency("singleton", standing=Standing.UNFULFILLED),
    )
    daemon.service.table[1] = replace(daemon.service.table[1], dependencies=dependencies)
    told = "after:1+5(fulfilled)?singleton(unfulfilled)"
    assert f"Dependency:  {told}\n" in rmx("show", "1").out


def test_why_of_a_placed_job_tells_the_decision_as_it_was_taken(daemon: Daemon, rmx: Rmx) -> None:
    rmx("submit", "train.sh")
    daemon.call(daemon.service.finish, 1)
    lines = rmx("why", "1").out.splitlines()
    placed = next(line for line in lines if "Placed on 1 host at " in line)
    assert placed.endswith(" by the policy zone.")
    assert "  Hosts refused then: 4. Hosts that fitted but were not chosen: 2." in lines
    at = lines.index("Candidates compared: 3")
    assert [line.split()[:4] for line in lines[at + 1 : at + 3]] == [
        ["HOSTS", "SCORE", "COMPATIBILITY", "TAKEN"],
        ["h1", "87.5", "-", "taken"],
    ]


def test_why_says_when_a_placement_was_not_recorded(
    daemon: Daemon, rmx: Rmx, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.fake_service.CHOICE", None)
    rmx("submit", "train.sh")
    daemon.call(daemon.service.finish, 1)
    assert "There is no record of how it was placed" in rmx("why", "1").out


def test_hosts_and_their_administration(daemon: Daemon, rmx: Rmx, tmp_path: Path) -> None:
    assert rmx("hosts").out.splitlines()[1].split() == [
        "h1",
        "z1",
        "UP",
        "6/8",
        "32/32",
        "GiB",
        "1/2",
        "1Gbps",
        "eth0",
        "1",
    ]
    shown = rmx("host", "show", "h1").out
    assert "Address:   root@h1.test:22" in shown
    assert "eth0       10.0.0.1  1Gbps  9000     1  mlx5_0       1" in shown
    assert rmx("host", "show", "nowhere").code == 4
    assert [host["name"] for host in rmx("hosts", "--zone=z2", "--json").json["hosts"]] == ["h2"]
    added = rmx(
        "host", "add", "h3", "--cpus=4", "--mem=8G", "--gpus=h100:2", "--bandwidth=10Gbps", "--partition=p"
    )
    assert added.code == 0
    host = daemon.service.inventory["h3"]
    assert (host.cpus, host.mem_bytes, len(host.gpus), host.nic_bps, host.partitions) == (
        4,
        2**33,
        2,
        10**10,
        ("p",),
    )
    assert rmx("host", "drain", "--host=h3", "--reason=cable").code == 0
    assert "cable" in rmx("hosts").out
    assert rmx("host", "resume", "h3").code == 0
    assert rmx("host", "add", "h4").out == "Host h4 is added.\n"
    assert rmx("host", "add", "h4").out == "Host h4 is already known, and updated.\n"
    before = daemon.service.inventory["h3"]
    rmx("host", "add", "h3", "--zone=z9", "--address=10.0.0.3", "--port=23", "--login=ops", "--feature=fast")
    rmx("host", "add", "h3", "--partition=q", "--partition=r")  # of what is not named nothing is changed
    changed = {"zone": "z9", "address": "10.0.0.3", "port": 23, "login": "ops", "features": ("fast",)}
    assert daemon.service.inventory["h3"] == replace(before, partitions=("q", "r"), **changed)
    both = rmx("host", "drain", "h[3-4]", "nowhere", "--reason=rack")
    assert both.code == 4
    assert both.out == "Host h3 takes no new jobs.\nHost h4 takes no new jobs.\n"
    assert "nowhere" in both.err
    assert rmx("host", "resume", "h3", "--host=h4").code == 0
    taken = rmx("host", "adopt", "h[3-4]", "nowhere", "--stop-jobs")
    assert (taken.code, taken.out.count("belongs to this cluster now.")) == (4, 2)
    assert [host["name"] for host in rmx("host", "adopt", "h3,h4", "--json").json["hosts"]] == ["h3", "h4"]
    assert rmx("host", "remove", "h3,h4").code == 0
    assert "No host is named" in rmx("host", "drain").err
    assert "presented: ssh-ed25519 SHA256:abc\npinned:    none" in rmx("host", "show-key", "h1").out
    assert rmx("host", "accept-key", "h1", "--fingerprint=SHA256:abc").code == 0
    (tmp_path / "hosts.ini").write_text("[gpu]\ng[1:2] ansible_host=10.0.0.1 rm_zone=east rm_cpus=2\n")
    assert rmx("host", "import", "hosts.ini").out == "2 hosts are added.\n"
    assert rmx("host", "import", "hosts.ini").out == "2 hosts are already known, and updated.\n"
    assert daemon.service.inventory["g2"].zone == "east"


def test_interfaces_as_fast_as_the_jobs_one_are_counted_as_rails(daemon: Daemon, rmx: Rmx) -> None:
    host = daemon.service.inventory["h1"]
    others = (replace(CARD, name="eth1"), replace(CARD, name="slow", speed_bps=CARD.speed_bps - 1))
    for nics, shown in (((CARD,), "eth0"), ((CARD, *others), "eth0 +1")):
        daemon.service.inventory["h1"] = replace(host, interface="eth0", nic_bps=CARD.speed_bps, nics=nics)
        (line,) = [line for line in rmx("hosts").out.splitlines() if line.startswith("h1")]
        assert re.search(rf" {re.escape(shown)}  ", line + "  ")
    assert re.search(r"^eth1 .* mlx5_0 ", rmx("host", "show", "h1").out, re.M)


def test_one_inventory_for_jobs_and_playbooks(daemon: Daemon, rmx: Rmx, tmp_path: Path) -> None:
    (tmp_path / "hosts.ini").write_text(
        "[web]\ng1 rm_zone=east color='[\"red\", 1]' ansible_become_password=hunter2\n"
        "[rack]\n[rack:children]\nweb\n[rack:vars]\nrow=7\n"
    )
    told = rmx("host", "import", "hosts.ini")
    assert "ansible_become_password stay out of the database" in told.err
    assert "hunter2" not in str(daemon.service.inventory)
    rmx("host", "add", "g2", "--address=10.0.0.2", "--group=web")
    before = dict(daemon.service.inventory)
    for form in ("yaml", "ini"):
        assert "2 hosts" not in rmx("host", "export", f"--format={form}").out
        assert rmx("host", "export", f"--format={form}", "-o", f"again.{form}").code == 0
        assert (tmp_path / f"again.{form}").stat().st_mode & 0o077 == 0
        daemon.service.inventory.clear()
        assert rmx("host", "import", f"again.{form}").code == 0
        again = daemon.service.inventory
        assert [again[name] for name in ("g1", "g2")] == [before[name] for name in ("g1", "g2")]
        assert (again["h1"].zone, again["h1"].gpus) == (before["h1"].zone, before["h1"].gpus)
    os.mkfifo(tmp_path / "pipe")
    end = os.open(tmp_path / "pipe", os.O_RDWR)
    assert rmx("host", "export", "-o", "pipe").code == 0
    assert b"g1" in os.read(end, 1 << 16)
    os.close(end)
    assert (tmp_path / "pipe").is_fifo()
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars/web.yml").write_text("row: 1\ncolumn: 2\n")
    (tmp_path / "play.yml").write_text(
        "- hosts: rack:web\n  connection: local\n  gather_facts: false\n  tasks:\n"
        "  - debug: {msg: '{{ rm_zone }} {{ color | default(0) }} {{ row }} {{ column }}'}\n"
    )
    ran = rmx("playbook", "run", "play.yml", "--json")
    results = json.loads(ran.out)["results"]
    assert {name: one[0]["message"] for name, one in results.items()} == {
        "g1": "east ['red', 1] 7 2",
        "g2": "default 0 1 2",
    }


def test_a_bare_word_is_a_playbook_that_comes_with_rm_whatever_lies_here(
    daemon: Daemon, rmx: Rmx, tmp_path: Path
) -> None:
    planted = (
        "- hosts: localhost\n  gather_facts: false\n  tasks:\n"
        f"  - file: {{path: {tmp_path}/pwned, state: touch}}\n"
    )
    for name in ("drain", "drain.yml", "site"):
        (tmp_path / name).write_text(planted)
    told = rmx("playbook", "run", "drain", "--list-tasks")
    assert "Drain, and wait for the jobs" in told.out
    assert "the file drain here is ignored (./drain names it)" in told.err
    assert "the file drain.yml here is ignored" in told.err
    for named in ("./drain", "drain.yml", str(tmp_path / "site")):
        assert "Drain" not in rmx("playbook", "run", named, "--list-tasks").out
    refused = rmx("playbook", "run", "site")
    assert refused.code == 2
    assert "For the file here write ./site." in refused.err
    assert not (tmp_path / "pwned").exists()


def test_a_measurement_that_takes_long_is_not_silent(
    daemon: Daemon, rmx: Rmx, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rm.cli.heartbeat.EVERY_S", 0.0)
    monkeypatch.setattr("rm.cli.heartbeat.LOOK_S", 0.001)
    said = threading.Event()
    beat, measure = Heartbeat.beat, daemon.service.measure

    def beaten(self: Heartbeat) -> None:
        beat(self)
        said.set()

    async def slow(zone: str | None) -> Mapping[str, Any]:
        assert await asyncio.to_thread(said.wait, PATIENCE_S)
        return await measure(zone)

    monkeypatch.setattr(Heartbeat, "beat", beaten)
    monkeypatch.setattr(daemon.service, "measure", slow)
    assert "the pairs of hosts are measured" in rmx("network", "--measure").err


def test_network_links_and_status(daemon: Daemon, rmx: Rmx) -> None:
    assert rmx("links").out.splitlines()[1].split() == [
        "h1",
        "100Mbps",
        "1,2",
        "100",
        "200ms",
        "2:14/72",
        "12.5ms",
    ]
    measured = rmx("network", "--measure", "--pairs")
    assert "left out: h3, UNKNOWN: its agent has not answered yet" in measured.err
    assert measured.out.splitlines()[1].split() == [
        "h1",
        "h2",
        "0.5%",
        "350us",
        "94Mbps",
        "1m1s",
        "-",
    ]
    assert ("measure", None) in daemon.service.log
    told = rmx("status").out
    assert "jobs      PENDING 2" in told
    assert "agents    another version than this rm's on h[2-3]: run `rmx playbook run agents`\n" in told
    for verb in ("links", "network", "status"):
        assert rmx(verb, "--json").json["version"] == 1


def test_config_show_tells_the_origin(rmx: Rmx, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rm.toml").write_text("[jobs]\ngrace_s = 5\n")
    monkeypatch.setenv("RM_JOBS__RECENT_S", "7")
    text = rmx("--config", str(tmp_path / "rm.toml"), "config", "show", "--origin").out
    assert f"# {tmp_path}/rm.toml:2" in text
    assert "# RM_JOBS__RECENT_S" in text
    assert rmx("config", "show", "--json").json["config"]["jobs.recent_s"] == 7


def test_all_that_is_wrong_with_the_configuration_is_said_at_once(
    rmx: Rmx, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "rm.toml"
    file.write_text(
        "[policies]\nqueue = 'fivo'\n[alerts]\ndrain_on = ['fire']\n[monitor]\ntimezone = 'Mars/Olympus'\n"
        "[web]\nproxy_header = 'X-User'\n[hosts]\ninventory = '/nowhere.yml'\n"
        "[jobs]\nmail = 'pager'\n[daemon]\ndatabase = 'mysql://db/rm'\n"
    )
    told = rmx("--config", str(file), "config", "check")
    assert (told.code, told.out) == (8, "")
    words = (
        "Did you mean 'fifo'?", "there is no 'fire'", "Mars/Olympus", "proxy_addresses", "/nowhere.yml",
        "jobs.mail is 'pager'", "neither a SQLite file nor PostgreSQL (mysql)",
    )  # fmt: skip
    assert len(told.err.splitlines()) == len(words)
    assert all(word in told.err for word in words)
    monkeypatch.setenv("RM_DAEMON__DATABASE", "postgresql://rm@db:port/rm")
    assert "The database's URL cannot be read" in rmx("--config", str(file), "config", "check").err
    monkeypatch.delenv("RM_DAEMON__DATABASE")
    assert len(rmx("--config", str(file), "config", "check", "--json").json["complaints"]) == len(words)
    shown = rmx("--config", str(file), "config", "show")
    assert shown.code == 0
    assert shown.err == told.err
    file.write_text("[[monitor.mesh]]\nname = 'm'\nschedule = '99 * * * *'\n")
    assert "99 * * * *" in rmx("--config", str(file), "config", "check").err
    shipped = Path(__file__).parents[2] / "rm.toml"
    assert rmx("--config", str(shipped), "config", "check") == (
        0,
        "Nothing is wrong with the configuration.\n",
        "",
    )


def test_every_verb_can_be_helped(rmx: Rmx) -> None:
    assert all(verb in rmx("--help").out for verb in VERBS)
    for verb in (*JOB_VERBS, "host", "daemon", "config", "shell-init"):
        result = rmx(verb, "--help")
        assert (result.code, "Usage: rmx" in result.out) == (0, True)


def test_submit_imports_nothing_heavy(daemon: Daemon) -> None:
    code = (
        "import sys; from rm.cli.main import run; run(['submit', 'train.sh'])\n"
        "heavy = {'aiohttp', 'msgspec', 'rich', 'asyncio', 'numpy', 'yaml', 'sqlalchemy', 'rm.core'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "Submitted batch job 1\n[]\n"


def test_a_reader_that_goes_away_is_no_error(daemon: Daemon) -> None:
    daemon.service.output["out"] = b"x" * 10_000_000
    run(["submit", "train.sh"])
    program = "import sys; from rm.cli.start import main; sys.exit(main())"
    script = f'"{sys.executable}" -c "{program}" logs 1 | head -c 5'
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, env=dict(os.environ))
    assert (done.stdout, done.stderr) == ("xxxxx", "")


def test_a_submission_waits_for_a_daemon_that_restarts(
    rmx: Rmx, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rm.sock"
    monkeypatch.setenv("RM_DAEMON__SOCKET", str(path))
    Path(f"{path}.lock").touch()  # a daemon was here
    pauses: list[float] = []
    with ExitStack() as stack:

        def pause(seconds: float) -> None:
            pauses.append(seconds)
            stack.enter_context(serving(path))

        monkeypatch.setattr(client_module, "time", SimpleNamespace(monotonic=time.monotonic, sleep=pause))
        result = rmx("submit", "--wrap", "true")
    assert (result.code, len(pauses)) == (0, 1)
    assert "Trying again" in result.err
    assert result.out.startswith("Submitted batch job")


class Waiting(FakeService):
    """Its database is away for the first two questions after a submission."""

    def __init__(self) -> None:
        super().__init__()
        self.refusals = 2

    async def submit(self, specs: Sequence[JobSpec], key: str = "", *more: Any) -> list[int]:
        if self.refusals:
            self.refusals -= 1
            self.keys.append(key)
            raise StoreUnavailable("The daemon has waited 3 s for its database.", "It goes on by itself.")
        return await super().submit(specs, key)

    def status(self) -> dict[str, Any]:
        return {**super().status(), "jobs": {}, "waiting": "The daemon has waited 3 s for its database."}


def test_a_submission_waits_with_the_daemon_for_its_database_and_asks_for_one_job(
    rmx: Rmx, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "PAUSE_S", 0.001)
    with serving(tmp_path / "rm.sock", kind=Waiting) as daemon:
        monkeypatch.setenv("RM_DAEMON__SOCKET", daemon.socket)
        result = rmx("submit", "--wrap", "true")
        assert (result.code, result.out) == (0, "Submitted batch job 1\n")
        assert result.err.count("has waited 3 s") == 1
        assert isinstance(daemon.service, Waiting)
        assert len(daemon.service.keys) == 3
        assert len(set(daemon.service.keys)) == 1
        assert "waiting   The daemon has waited 3 s" in rmx("status").out


def test_logs_of_all_tasks_carry_their_ranks(daemon: Daemon, rmx: Rmx) -> None:
    rmx("submit", "--ntasks=3", "--wrap=true")
    assert rmx("logs", "1", "-l").out == "".join(f"{rank}: {word}\n" for rank in range(3) for word in WORDS)
    daemon.service.output["out"] = b"no end"
    assert rmx("logs", "1", "--label", "--stderr").out == "0: oops\n1: oops\n2: oops\n"
    assert rmx("logs", "1", "--label").out == "0: no end\n1: no end\n2: no end\n"
    daemon.call(daemon.service.finish, 1, waiting=3)
    followed = rmx("logs", "1", "-l", "-f").out.splitlines()
    assert sorted(followed) == sorted(f"{rank}: no endmore" for rank in range(3))


def test_a_log_that_is_lost_fails_and_hides_no_other(daemon: Daemon, rmx: Rmx) -> None:
    rmx("submit", "--ntasks=5", "--wrap=true")
    found = rmx("logs", "1", "-l")
    assert (found.code, found.err) == (4, "rmx: The log of task 3 of job 1, attempt 1 is lost: a fire.\n")
    assert [line[0] for line in found.out.splitlines()] == list("00112244")
    assert rmx("logs", "1", "--task=3").code == 4


def test_logs_of_an_attempt_and_their_last_lines(daemon: Daemon, rmx: Rmx) -> None:
    rmx("submit", "train.sh")
    daemon.service.notes[2] = "The log of task 0 of job 1, attempt 2 is not complete: its end is missing – é."
    found = rmx("logs", "1", "--attempt=2", "--tail=1")
    assert (found.code, found.out) == (0, "world\n")
    assert found.err == f"rmx: {daemon.service.notes[2]}\n"
    assert daemon.service.log[-1] == ("logs", 1, 0, "out", 0, False, 1, 2)
    assert rmx("logs", "1", "--tail=1", "--offset=3").code == 2
    assert rmx("logs", "1", "--label", "--task=0").code == 2


def test_lines_of_a_shared_file_cannot_be_labelled(daemon: Daemon, rmx: Rmx) -> None:
    rmx("submit", "--ntasks=2", "--output=all.out", "--wrap=true")
    refused = rmx("logs", "1", "-l")
    assert (refused.code, refused.out) == (2, "")
    assert "share the file all.out" in refused.err
    rmx("submit", "--ntasks=2", "--output=%x.%4t", "--wrap=true")
    assert len(rmx("logs", "2", "-l").out.splitlines()) == 4


def test_show_of_a_failed_job_ends_with_the_last_lines_of_the_task_that_failed(
    daemon: Daemon, rmx: Rmx
) -> None:
    rmx("submit", "--ntasks=3", "--wrap=false")
    daemon.service.output["out"] = "".join(f"line {n}\n" for n in range(100)).encode() + b"bad \x1b[31m\xff\n"
    ends = ((9, 0, 0), (8, 1, 0), (7, 0, 9))
    tasks = [
        Task(i, "h1", started_us=1, ended_us=at, exit_code=c, exit_signal=s)
        for i, (at, c, s) in enumerate(ends)
    ]
    daemon.service.put(1, tasks=tuple(tasks), attempt=1)
    assert "last lines" not in rmx("show", "1").out
    daemon.service.finish(1, code=1)
    shown = rmx("show", "1").out
    assert "\nThe last lines that task 2 wrote:\n" in shown
    assert "  line 99\n  bad ?[31m\ufffd\n" in shown
    assert "line 90\n" not in shown
    assert daemon.service.log[-1] == ("logs", 1, 2, "out", 0, False, 10, 0)


@pytest.mark.parametrize(
    ("said", "program"),
    [
        ("/var/lib/rm/jobs/1.1/script: line 3: scontrol: command not found", "scontrol"),
        ("script: line 2: exec: my prog: not found", "my prog"),
        ("/x/script: 4: srun: not found", "srun"),
        ("/x/script: 4: exec: srun: not found", "srun"),
        ("sh: foo: not found", "foo"),
        ("/x/script: 4: foo: Permission denied", "foo"),
        ("script:3: command not found: module", "module"),
        ("/usr/bin/env: \u2018python\u2019: No such file or directory", "python"),
        ("python: Command not found.", "python"),
        ("the result was not found", ""),
    ],
)
def test_show_names_the_program_that_a_shell_did_not_find(
    daemon: Daemon, rmx: Rmx, said: str, program: str
) -> None:
    rmx("submit", "--wrap=x")
    daemon.service.output["out"] = f"begins\n{said}\n".encode()
    for code in (127, 1):
        daemon.service.put(1, tasks=(Task(0, "h1", started_us=1, exit_code=code),), attempt=1)
        daemon.service.finish(1, code=code)
        named = f"The program {program} was not found on h1: install it there" in rmx("show", "1").out
        assert named == (code == 127 and bool(program))


def test_show_of_a_job_that_never_started_asks_for_no_log(daemon: Daemon, rmx: Rmx) -> None:
    rmx("submit", "--wrap=true")
    daemon.service.put(1, tasks=(Task(0, "h1", exit_code=1, note="no /bin/csh"),), attempt=1)
    daemon.service.finish(1, code=1)
    shown = rmx("show", "1")
    assert (shown.code, shown.err) == (0, "")
    assert "no /bin/csh" in shown.out
    assert all(entry[0] != "logs" for entry in daemon.service.log)


def test_show_of_a_failed_job_does_not_say_who_wrote_what_tasks_share(daemon: Daemon, rmx: Rmx) -> None:
    rmx("submit", "--ntasks=2", "--output=all.out", "--wrap=false")
    daemon.service.put(
        1, tasks=(Task(0, "h1", started_us=1), Task(1, "h2", started_us=1, exit_code=1)), attempt=1
    )
    daemon.service.finish(1, code=1)
    assert "\nThe last lines of the file on h2 that the tasks share:\n  hello\n" in rmx("show", "1").out


def test_show_tells_the_earlier_attempts(daemon: Daemon, rmx: Rmx) -> None:
    rmx("submit", "train.sh")
    assert "ATTEMPT" not in rmx("show", "1").out
    earlier = EarlierAttempt(1, ("h1", "h2"), 5_000_000, 9_000_000, 0, 15, "host h1 was lost")
    daemon.service.put(1, attempt=2, earlier=(earlier,))
    shown = rmx("show", "1").out
    (line,) = [line for line in shown.splitlines() if line.lstrip().startswith("1  h[1-2]")]
    assert line.endswith("0:15  host h1 was lost")
    assert rmx("show", "1", "--json").json["job"]["earlier"][0]["hosts"] == ["h1", "h2"]


def test_the_expected_starts_of_waiting_jobs(rmx: Rmx, daemon: Daemon) -> None:
    rmx("submit", "--wrap=true", "--job-name=a")
    rmx("submit", "--wrap=true", "--job-name=b", "--hold")
    lines = rmx("queue", "--start").out.splitlines()
    assert lines[0].split() == [
        "JOBID",
        "PARTITION",
        "NAME",
        "USER",
        "EARLIEST",
        "LIKELY",
        "LATEST",
        "EXPECTED",
        "ON",
        "REASON",
    ]
    told = [word[:11] for word in lines[1].split() if word[0] in "2h"]
    assert told == ["2030-03-17T", "2031-10-17T", "2032-06-04T", "2033-05-18T", "h1"]
    assert lines[2].split().count("N/A") == 4
    assert [one["job"] for one in rmx("queue", "--start", "--json").json["starts"]] == [1]
    assert "Expected to start at 2033-05-18" in rmx("why", "1").out
    held = rmx("why", "2").out
    assert "Expected to start" not in held
    assert "No start can be foreseen: it is held." in held
    said = rmx("submit", "--test-only", "--cpus-per-task=9", "--wrap=true")
    assert "Expected to start at 2033-05-18" in said.out
    for option, why in (("--hold", "it is held."), ("--dependency=afterany:1", "it waits for other jobs.")):
        said = rmx("submit", "--test-only", "--cpus-per-task=9", "--wrap=true", option)
        assert f"No start can be foreseen: {why}" in said.out
    assert "columns and an order of its own" in rmx("queue", "--start", "--long").err
