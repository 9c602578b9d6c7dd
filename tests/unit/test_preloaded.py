"""Programs that begin in a process which has loaded rm do what `rmx` does, and tell of it as it does."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import preloaded
from tests.cluster import until

RMX = Path(sys.executable).with_name("rmx")
WORDS = [("--version",), ("nonsense",), ("--help",), ("queue",), ("submit", "job.sh"), ("config", "show")]


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_a_command_does_what_the_program_does(words: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "rm.toml").write_text(f'[daemon]\nsocket = "{tmp_path}/none.sock"\n')
    (tmp_path / "job.sh").write_text("#!/bin/sh\n#SBATCH --nonsense\n")
    env = {**os.environ, "RM_CONFIG": "rm.toml"}
    real = subprocess.run([RMX, *words], env=env, cwd=tmp_path, input="", capture_output=True, text=True)
    done = preloaded.run([RMX, *words], env=env, cwd=tmp_path)
    assert real.stdout or real.stderr
    assert (done.returncode, done.stdout, done.stderr) == (real.returncode, real.stdout, real.stderr)


def test_a_command_reads_what_it_is_given(tmp_path: Path) -> None:
    words = [RMX, "--socket", tmp_path / "none.sock", "submit"]
    given = "#!/bin/sh\n#SBATCH --nonsense\n"
    real = subprocess.run(words, input=given, capture_output=True, text=True)
    assert "--nonsense" in real.stderr
    assert preloaded.run(words, input=given).stderr == real.stderr


def test_a_daemon_is_waited_for_and_its_end_is_told(tmp_path: Path) -> None:
    config, log = tmp_path / "rm.toml", tmp_path / "log"
    config.write_text(f'[daemon]\nsocket = "{tmp_path}/rm.sock"\nstate_dir = "{tmp_path}/state"\n')
    for number, code in ((signal.SIGTERM, 0), (signal.SIGINT, 0), (signal.SIGKILL, -signal.SIGKILL)):
        daemon = preloaded.daemon(RMX, config, log)
        until(lambda: not preloaded.run([RMX, "--config", config, "status"]).returncode, "it answers")
        assert os.readlink(f"/proc/{daemon.pid}/cwd") == "/"
        assert Path(f"/proc/{daemon.pid}/comm").read_text() == "rmx\n"
        assert daemon.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            daemon.wait(0)
        daemon.send_signal(number)
        assert daemon.wait(60) == daemon.poll() == code
        daemon.kill()  # it has gone: nobody else hears it
    assert "leads with epoch 3" in log.read_text()


def test_workers_of_a_run_share_the_process_that_has_loaded_rm(tmp_path: Path) -> None:
    """It ends with the run, and not with the worker that was the first to need it."""
    worker = """
import os, sys
from pathlib import Path
from tests import preloaded
preloaded.share(Path(sys.argv[1]), int(sys.argv[2]))
program = preloaded.Program(["rmx", "--version"], os.environ, "/", (0, 1, 2))
print(Path(f"/proc/{program.pid}/stat").read_text().rpartition(")")[2].split()[1], program.wait(60))
"""
    with subprocess.Popen(["sleep", "1000"]) as run:
        argv = [sys.executable, "-P", "-c", worker, tmp_path, str(run.pid)]
        env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        ways = {"env": env, "stdout": subprocess.PIPE, "text": True, "cwd": "/"}
        workers = [subprocess.Popen(argv, **ways) for _ in range(2)]
        said = [worker.communicate(timeout=60)[0].splitlines()[-1] for worker in workers]
        assert len({*said}) == 1, said
        number, code = map(int, said[0].split())
        assert code == 0
        assert subprocess.run(argv, **ways).stdout.splitlines()[-1] == said[0]
        handle = os.pidfd_open(number)
        run.kill()
    with os.fdopen(handle):
        assert select.select([handle], [], [], 60)[0], "it does not end with the run"
