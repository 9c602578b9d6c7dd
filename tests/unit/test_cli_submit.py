"""`rmx submit` against the real HTTP API: what it sends, waits for and refuses."""

import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rm.client import connection as client_module
from rm.core.model.asked.array import Array
from rm.core.model.job import Job, JobSpec, JobState, Task
from rm.errors import Conflict, StoreUnavailable
from tests.command_line import Rmx
from tests.fake_service import Daemon, FakeService, serving
from tests.slurm_program import Slurm
from tests.submitting import submitted


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


@pytest.mark.parametrize(
    "words", [(), ("-n4", "--gpus=1"), ("--job-name", "a b", "-H", "--mem=1G", "--array=0-5%2", "-w", "h1")]
)
def test_jobs_of_other_tests_are_as_it_submits_them(daemon: Daemon, rmx: Rmx, words: tuple[str, ...]) -> None:
    assert rmx("submit", *words, "--wrap=true").code == 0
    number = submitted(daemon, *words)
    assert daemon.service.table[number].spec == daemon.service.table[1].spec


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
        (None, "cannot be read: No such file or directory. To run a command, use: --wrap 'COMMAND'."),
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


def test_submit_imports_nothing_heavy(daemon: Daemon) -> None:
    code = (
        "import sys; from rm.cli.main import run; run(['submit', 'train.sh'])\n"
        "heavy = {'aiohttp', 'msgspec', 'rich', 'asyncio', 'numpy', 'yaml', 'sqlalchemy', 'rm.core'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "Submitted batch job 1\n[]\n"


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
        shown = rmx("status").out
        assert "waiting   The daemon has waited 3 s" in shown
        assert "jobs      not known while the daemon waits" in shown


class Unheard(FakeService):
    """It cancels, and its answer is that it waits for its database."""

    async def cancel(self, job_id: int, *more: Any) -> Job:
        was = (await self.job(job_id)).state
        job = await super().cancel(job_id, *more)
        if was is JobState.PENDING:
            raise StoreUnavailable("The daemon has waited 7 s for its database.", "It goes on by itself.")
        return job


def test_a_cancellation_of_which_nobody_heard_is_none_of_an_ended_job(
    rmx: Rmx, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "PAUSE_S", 0.001)
    with serving(tmp_path / "rm.sock", kind=Unheard) as daemon:
        monkeypatch.setenv("RM_DAEMON__SOCKET", daemon.socket)
        rmx("submit", "--wrap", "true")
        first, again = rmx("cancel", "1"), rmx("cancel", "1")
        assert (first.code, first.out) == (0, "Job 1 is CANCELLED\n")
        assert first.err.count("has waited 7 s") == 1
        assert again.code == Conflict.exit_code
        assert "has already ended" in again.err
