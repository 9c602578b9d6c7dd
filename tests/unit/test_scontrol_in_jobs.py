"""scontrol inside a job: what the job's environment says, without the daemon."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import until

sys.path.insert(0, str(Path(__file__).parents[2] / "agents"))
import rm_scontrol

AGENTS = Path(rm_scontrol.__file__).parent
SIGNALS = (signal.SIGINT, signal.SIGPIPE)


@pytest.fixture(autouse=True)
def _signals() -> Iterator[None]:
    """The command lets them end its process, which is the one of the tests here."""
    before = [signal.getsignal(number) for number in SIGNALS]
    yield
    for number, handler in zip(SIGNALS, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.parametrize(
    ("name", "value"), [("JOB_START_TIME", "9" * 20), ("JOB_END_TIME", "soon"), ("JOB_CPUS_PER_NODE", "many")]
)
def test_an_environment_that_was_changed_is_a_sentence(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")  # where no scontrol of Slurm's is
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_" + name, value)
    assert rm_scontrol.main(["show", "job", "7"]) == 1
    assert "scontrol: the job's environment was changed: " in capsys.readouterr().err


def test_a_group_that_no_machine_has_has_no_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_JOB_GID", "9" * 14)
    assert rm_scontrol.main(["show", "job", "7"]) == 0
    assert " GroupId=(null)(" + "9" * 14 + ")" in capsys.readouterr().out


def test_lists_of_hosts_may_have_several_ranges(capsys: pytest.CaptureFixture[str]) -> None:
    assert rm_scontrol.main(["show", "hostnames", "r[1-2]n[01-02]"]) == 0
    assert capsys.readouterr().out.split() == ["r1n01", "r1n02", "r2n01", "r2n02"]


@pytest.mark.parametrize("words", [["rm_scontrol.py", "requeue", "7"], ["rm_iteration.py", "requeue"]])
def test_a_job_whose_own_requeue_ends_it_sees_no_failure(words: list[str], tmp_path: Path) -> None:
    reports = tmp_path / "reports"
    os.mkfifo(reports)
    pipe = os.open(reports, os.O_RDWR | os.O_NONBLOCK)
    full = 0
    try:
        while True:
            full += os.write(pipe, b"x")
    except BlockingIOError:  # so that the program waits in the midst of its request
        pass
    environment = {"RM_REPORTS": str(reports), "SLURM_JOB_ID": "7"}
    program = subprocess.Popen([sys.executable, str(AGENTS / words[0]), *words[1:]], env=environment)
    files = Path(f"/proc/{program.pid}/fd")
    until(lambda: any(file.is_fifo() and file.samefile(reports) for file in files.iterdir()), "it asks")
    program.terminate()
    said = b""
    while not said.endswith(b'["requeue"]\n'):
        with contextlib.suppress(BlockingIOError):
            said += os.read(pipe, full)
    os.close(pipe)
    assert program.wait() == 0
