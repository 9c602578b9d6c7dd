"""Slurm's commands on a real daemon and real hosts."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster import WAIT_S, Cluster, until
from tests.e2e.conftest import MakeCluster
from tests.shared_directory import share

pytestmark = pytest.mark.lab
SUBMITIT = Path(__file__).parents[2] / ".venv-submitit"
SUBMITIT_S = 300  # of patience
SNAKEMAKE_S = 300  # of patience until the next rule ends: on a busy machine all of them take longer


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster) -> Cluster:
    if os.geteuid():
        pytest.skip("sharing a directory with the hosts needs root")
    settings = {"jobs": {"run_root_as": "", "allow_root": True}}  # whose files jobs read and write
    return make_cluster(settings, zones=1, hosts=2)


class Shell:
    """Slurm's commands in PATH, in a directory that the hosts share with this machine."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        for host in cluster.hosts():
            share(cluster.lab, host, directory)
        cluster.rmx("slurm-shims", str(directory / "bin"))
        self.directory = directory
        shared = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        socket = {"RM_DAEMON__SOCKET": cluster.socket}
        self.environment = shared | socket | {"PATH": f"{directory / 'bin'}:{os.environ['PATH']}"}

    def __call__(self, line: str, code: int = 0, wait_s: float = WAIT_S) -> str:
        done = subprocess.run(
            ["bash", "-c", line], capture_output=True, text=True, timeout=wait_s,
            cwd=self.directory, env=self.environment,
        )  # fmt: skip
        assert done.returncode == code, (line, done.stdout, done.stderr)
        return done.stdout.strip()

    def follow(self, line: str, progress: Callable[[], int], wait_s: float) -> int:
        """Exit code of a program that makes progress every `wait_s`; its output is in the file `out`."""
        with (self.directory / "out").open("w") as out:
            program = subprocess.Popen(
                line.split(), stdout=out, stderr=out, cwd=self.directory, env=self.environment
            )
        try:
            while program.poll() is None:
                before = progress()

                def went_on(before: int = before) -> bool:
                    return program.poll() is not None or progress() != before

                until(went_on, f"{line} goes on after {before}", wait_s)
            return program.returncode
        finally:
            program.kill()
            program.wait()

    def ended(self, job: str) -> list[str]:
        """State and code of the job and its elements, once all have ended."""

        def found() -> list[str]:
            if self(f"squeue -h -t PD,R,CG,CF -o %i -j {job}"):
                return []
            return self(f"sacct -X -n -P -o State,ExitCode -j {job}").splitlines()

        states: list[str] = until(found, f"job {job} ends")
        return states


@pytest.fixture
def shell(cluster: Cluster, tmp_path: Path) -> Shell:
    return Shell(cluster, tmp_path)


def test_jobs_live_their_life_by_slurms_commands(shell: Shell) -> None:
    (shell.directory / "job.sh").write_text(
        "#!/bin/bash\n#SBATCH -n 2 -J life\necho once on $SLURM_JOB_NODELIST\nexit $1\n"
    )
    good, bad = shell("sbatch --parsable job.sh 0"), shell("sbatch job.sh 3").rpartition(" ")[2]
    assert shell.ended(good) == ["COMPLETED|0:0"]
    assert shell.ended(bad) == ["FAILED|3:0"]
    host = shell(f"sacct -X -n -P -o NodeList -j {good}")
    assert (shell.directory / f"slurm-{good}.out").read_text() == f"once on {host}\n"
    assert host in shell("sinfo -h -N -o %N").split()

    array = shell("sbatch --parsable -H --array=0-3%2 --wrap 'test $SLURM_ARRAY_TASK_ID != 2'")
    assert shell(f"squeue -h -o '%i %t %r' -j {array}") == f"{array}_[0-3%2] PD JobHeldUser"
    shell(f"scancel {array}_3 && scontrol release {array}")
    assert sorted(shell.ended(array)) == ["CANCELLED|0:0", "COMPLETED|0:0", "COMPLETED|0:0", "FAILED|1:0"]
    assert (shell.directory / f"slurm-{array}_1.out").exists()


@pytest.mark.skipif(
    not (SUBMITIT / ".installed").exists(), reason="submitit is not installed: `make frameworks` installs it"
)
def test_submitit_maps_fails_and_resumes_from_checkpoints(shell: Shell) -> None:
    session = Path(__file__).with_name("submitit_session.py")
    (shell.directory / session.name).write_text(session.read_text())  # its functions are imported by jobs
    said = shell(f"{SUBMITIT}/bin/python {session.name} {shell.directory}", wait_s=SUBMITIT_S)
    assert said.splitlines()[-1] == "done"


def installed(package: str) -> pytest.MarkDecorator:
    there = any(SUBMITIT.glob(f"lib/python3*/site-packages/{package}"))
    why = f"{package} is not installed: `make frameworks` installs it"
    return pytest.mark.skipif(not there, reason=why)


@installed("hydra_plugins/hydra_submitit_launcher")
def test_hydra_sweeps_by_its_submitit_launcher(shell: Shell) -> None:
    program = Path(__file__).with_name("hydra_session.py")
    (shell.directory / program.name).write_text(program.read_text())
    (shell.directory / "found").mkdir()
    sweep = "-m hydra/launcher=submitit_slurm hydra.launcher.timeout_min=5 hydra.launcher.mem_gb=1"
    runs = f"+rate=1,2,3 +depth=4,5 +out={shell.directory}/found"
    shell(f"{SUBMITIT}/bin/python {program.name} {sweep} {runs}", wait_s=SUBMITIT_S)
    found = sorted(path.name for path in (shell.directory / "found").iterdir())
    assert found == sorted(f"{rate}-{depth}" for rate in (1, 2, 3) for depth in (4, 5))


def rules_done(shell: Shell) -> int:
    """Rules whose end snakemake has noticed."""
    return (shell.directory / "out").read_text().count("Finished jobid")


@installed("snakemake_executor_plugin_slurm")
@pytest.mark.timeout(1800)  # a busy machine needs more than the usual
def test_snakemake_runs_thirty_rules_with_failures_and_retries(shell: Shell) -> None:
    (shell.directory / "Snakefile").write_text(Path(__file__).with_name("clients.smk").read_text())
    (shell.directory / "counts").mkdir()
    run = (
        f"{SUBMITIT}/bin/snakemake --executor slurm --jobs 16 --latency-wait 20"
        " --seconds-between-status-checks 2 --slurm-init-seconds-before-status-checks 2 --slurm-no-account"
    )
    code = shell.follow(run, lambda: rules_done(shell), SNAKEMAKE_S)
    assert not code, (shell.directory / "out").read_text()
    assert (shell.directory / "sum.txt").read_text() == f"{sum(range(28))}\n"
    assert len(list((shell.directory / "counts").glob("*.tried"))) == 9
    shell(f"{run} never.txt > out 2>&1", code=1, wait_s=SNAKEMAKE_S)
