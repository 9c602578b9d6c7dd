"""Programs that submit jobs of their own by Slurm's commands: dask-jobqueue, parsl, toil, simple_slurm,
PSI/J, clusterfutures, qtoolkit.

They are in an environment of their own, which `make frameworks` makes. What nextflow, cromwell and others ask
is asked here word for word.
"""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path

import pytest

from tests.cluster import Cluster, until
from tests.e2e.conftest import MakeCluster
from tests.e2e.test_slurm_clients import Shell

pytestmark = pytest.mark.lab
HERE = Path(__file__).parent
CLIENTS = HERE.parents[1] / ".venv-workflows"
PATIENCE_S = 300
installed = pytest.mark.skipif(
    not (CLIENTS / ".installed").exists(), reason="they are not installed: `make frameworks` installs them"
)


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster) -> Cluster:
    if os.geteuid():
        pytest.skip("sharing a directory with the hosts needs root")
    settings = {"jobs": {"run_root_as": "", "allow_root": True}}  # whose files jobs read and write
    return make_cluster(settings, zones=1, hosts=2)


@pytest.fixture
def shell(cluster: Cluster, tmp_path: Path) -> Shell:
    made = Shell(cluster, tmp_path)
    made.environment["PATH"] = f"{tmp_path / 'bin'}:{CLIENTS / 'bin'}:{os.environ['PATH']}"
    return made


def address(cluster: Cluster) -> str:
    """This machine's, as the hosts know it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.connect((cluster.lab.hosts[0].address, 9))
        return str(asking.getsockname()[0])


def run(shell: Shell, program: str, *words: object) -> None:
    (shell.directory / program).write_text((HERE / program).read_text())  # jobs import it
    line = f"{CLIENTS}/bin/python {program} {' '.join(map(str, words))} > out 2>&1 || {{ cat out; exit 1; }}"
    shell(line, wait_s=PATIENCE_S)
    assert (shell.directory / "out").read_text().splitlines()[-1] == "done"


@installed
def test_workers_of_dask_are_jobs(shell: Shell, cluster: Cluster) -> None:
    run(shell, "dask_session.py", shell.directory, address(cluster))
    until(lambda: not shell("squeue -h -o %i"), "dask has cancelled its workers")


@installed
def test_a_block_of_parsl_spans_hosts(shell: Shell, cluster: Cluster) -> None:
    run(shell, "parsl_session.py", shell.directory, address(cluster))


@installed
def test_a_workflow_of_toil_runs_as_jobs(shell: Shell) -> None:
    where = f"--workDir {shell.directory} --batchLogsDir {shell.directory} {shell.directory}/store"
    run(shell, "toil_session.py", f"--batchSystem slurm --disableCaching --logError {where}")


@installed
def test_simple_slurm_submits_arrays_and_chains(shell: Shell) -> None:
    run(shell, "simple_slurm_session.py", shell.directory)


@installed
def test_jobs_of_psij_complete_fail_and_are_cancelled(shell: Shell) -> None:
    shell.environment["HOME"] = str(shell.directory)  # where it keeps what its jobs read and write
    run(shell, "psij_session.py", shell.directory)


@installed
def test_futures_of_clusterfutures_are_jobs(shell: Shell) -> None:
    run(shell, "cfut_session.py")


@installed
def test_qtoolkit_submits_looks_and_cancels(shell: Shell) -> None:
    run(shell, "qtoolkit_session.py", shell.directory)


def test_what_other_clients_ask_is_answered_as_they_read_it(shell: Shell) -> None:
    """nextflow, cromwell, AiiDA, batchspawner, PSI/J, Open OnDemand, ReFrame: from their sources."""
    header = ["#!/bin/bash", "#SBATCH -J nf-hello_(1)", f"#SBATCH -o {shell.directory}/.command.log",
              "#SBATCH --no-requeue", "#SBATCH --signal B:USR2@30", "#SBATCH -c 1", "#SBATCH -t 00:10:00",
              "#SBATCH --mem 50M", "sleep 1000"]  # fmt: skip
    (shell.directory / ".command.run").write_text("\n".join(header) + "\n")
    told = shell("sbatch .command.run")
    nextflow = re.search(r"Submitted batch job (\d+)", told)
    assert nextflow, told
    job = nextflow[1]
    until(lambda: shell(f"squeue -h -j {job} -o %T") == "RUNNING", "the job runs")
    cromwell = shell(
        f"sbatch -J cromwell_1 -D {shell.directory} -o out -e err -t 10 -c 1 --mem-per-cpu 10"
        " -H --wrap '/bin/bash script'"
    )
    assert re.fullmatch(r"Submitted batch job (\d+).*", cromwell)
    held = cromwell.rpartition(" ")[2]
    assert {*shell("squeue --noheader -o '%i %t' -t all -u $(id -un)").splitlines()} >= {
        f"{job} R",
        f"{held} PD",
    }
    host = shell(f"squeue -h -j {job} -o %N")
    assert re.fullmatch(r"RUNNING\s+((?:[\w_-]+\.?)+)", shell(f'squeue -h -j {job} -o "%T %B"'))
    aiida = "%i^^^%t^^^%r^^^%B^^^%u^^^%D^^^%C^^^%R^^^%P^^^%M^^^%l^^^%S^^^%V^^^%j^^^"
    fields = shell(f"SLURM_TIME_FORMAT=standard squeue --noheader -o '{aiida}' --jobs={job},{job}").split(
        "^^^"
    )
    assert (fields[0], fields[1], fields[3], fields[10], fields[13]) == (
        job,
        "R",
        host,
        "10:00",
        "nf-hello_(1)",
    )
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", fields[11])
    psij = shell(f"squeue -O JobArrayID,StateCompact,Reason -t all -j {job}").splitlines()
    assert psij[1].split() == [job, "R", "None"]
    separated = shell("squeue --all --states=all --noconvert -o $'\\x1e%i\\x1f%t\\x1f%j' --noheader")
    assert f"{job}\x1fR\x1fnf-hello_(1)" in [one.strip("\n") for one in separated.split("\x1e")]
    reframe = shell(f"sacct -S 2020-01-01 -P -j {job} -o jobid,state,exitcode,end,nodelist").splitlines()
    assert reframe[0] == "JobID|State|ExitCode|End|NodeList"
    assert reframe[1] == f"{job}|RUNNING|0:0|Unknown|{host}"
    record = shell(f"scontrol show jobid -dd {job}")
    assert re.search(r"JobState=(\w+)", record)[1] == "RUNNING"  # type: ignore[index]
    assert shell("sinfo -aho %A/%D/%C").startswith("1/1/2/1/")
    assert shell(f"squeue -h -p '(null)' -j {job} -o %i") == job  # as listed, where hosts have no partition
    shell(f"sbatch -p '(null)' --test-only --wrap true && scancel {job} {held}")
    until(lambda: not shell(f"squeue -h -j {job},{held} -o %i"), "both are gone")
    shell(f"squeue -j {job}")  # cromwell: alive, as long as the code is 0
    assert shell(f"sacct -n -X -P -j {job},{held} -o State").splitlines() == ["CANCELLED", "CANCELLED"]
    gone = shell("squeue -j 999999 2>&1", code=1)
    assert "Invalid job id specified" in gone
