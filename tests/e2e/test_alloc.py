"""`rmx alloc` and `salloc`: an allocation while a command runs here, and `srun` in it from here."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import RMX, WAIT_S, Cluster, until
from tests.e2e.conftest import MakeCluster
from tests.e2e.test_sessions import newest, terminal

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster) -> Cluster:
    return make_cluster(zones=1, hosts=2)


@pytest.fixture(autouse=True)
def tidy(cluster: Cluster) -> Iterator[None]:
    yield
    cluster.tidy()


@pytest.fixture(scope="module")
def shims(cluster: Cluster) -> Path:
    folder = cluster.directory / "slurm"
    cluster.rmx("slurm-shims", folder)
    return folder


def start(cluster: Cluster, *words: Any, **more: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [RMX, "--socket", cluster.socket, *map(str, words)], cwd=cluster.directory, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more,
    )  # fmt: skip


def ended(going: subprocess.Popen[str]) -> tuple[int, list[str], list[str]]:
    out, said = going.communicate(timeout=WAIT_S)
    return going.returncode, out.splitlines(), said.splitlines()


def test_steps_run_from_here_while_the_command_runs(cluster: Cluster) -> None:
    script = """
        echo $SLURM_JOB_NUM_NODES $SLURM_NTASKS $SLURM_TASKS_PER_NODE ${SLURM_NODEID-no place}
        export COLOUR=blue
        srun -l sh -c 'echo $SLURM_PROCID $(hostname) $COLOUR' | sort
        cd /tmp
        srun -n1 pwd
        echo words | srun -n1 cat
        srun -n1 sh -c 'exit 9'; echo $?
        srun --pty -n1 tty < /dev/null
        exit 4
    """
    code, out, said = ended(start(cluster, "alloc", "-N2", "--ntasks-per-node=2", "sh", "-c", script))
    job = newest(cluster)
    hosts = cluster.job(job)["hosts"]
    places = [f"{r}: {r} {hosts[r // 2]} blue" for r in range(4)]
    assert out == ["2 4 2(x2) no place", *places, "/tmp", "words", "9", "not a tty"], said
    assert "srun: error: Not using a pseudo-terminal, disregarding --pty option" in said
    assert code == 4
    assert f"rmx: Granted job allocation {job}" in said  # behind others, where it was pending at first
    assert said[-1] == f"rmx: Relinquishing job allocation {job}"
    assert cluster.wait(job)["exit"] == "4:0"


def test_an_allocation_is_revoked_by_a_cancel(cluster: Cluster) -> None:
    going = start(cluster, "alloc", "-K", "sh", "-c", "echo ready; exec sleep 1000")
    assert going.stdout is not None
    assert going.stdout.readline() == "ready\n"
    cluster.rmx("cancel", newest(cluster))
    code, _, said = ended(going)
    assert said[-1] == f"rmx: Job allocation {newest(cluster)} has been revoked."
    assert code == 1  # by SIGTERM


def test_one_that_waits_can_be_given_up(cluster: Cluster, shims: Path) -> None:
    holder = start(cluster, "alloc", "-N2", "--exclusive", "sh", "-c", "echo ready; read -r line",
                   stdin=subprocess.PIPE)  # fmt: skip
    assert holder.stdout is not None
    assert holder.stdout.readline() == "ready\n"
    code, _, said = ended(start(cluster, "alloc", "-I", "-N1", "true"))
    assert code == 1
    assert "Unable to allocate resources" in said[-1]
    environ = {**os.environ, "RM_DAEMON": cluster.socket}
    done = subprocess.run(
        [shims / "srun", "-I", "-n1", "true"], env=environ, capture_output=True, text=True, timeout=WAIT_S
    )
    assert (done.returncode, done.stderr[:42]) == (1, "srun: error: Unable to allocate resources:"), (
        done.stderr
    )
    assert cluster.wait(newest(cluster))["state"] == "CANCELLED"
    waits = start(cluster, "alloc", "-N1", "true")
    assert waits.stderr is not None
    job = newest(cluster) if waits.stderr.readline().startswith("rmx: Pending job allocation") else 0
    waits.send_signal(signal.SIGINT)
    code, _, said = ended(waits)
    assert (code, said[-1]) == (1, f"rmx: Job allocation {job} has been revoked.")
    assert cluster.wait(job)["state"] == "CANCELLED"
    code, _, said = ended(holder)
    assert code == 1  # `read` met the end of its input


def test_an_allocation_ends_with_who_holds_it(cluster: Cluster) -> None:
    going = start(cluster, "alloc", "--no-bell", "sh", "-c", "echo ready; exec sleep 1001")
    assert going.stdout is not None
    assert going.stdout.readline() == "ready\n"
    going.send_signal(signal.SIGTERM)  # the command gets it
    assert ended(going)[0] == 1
    assert cluster.wait(newest(cluster))["state"] == "FAILED"


def test_a_shell_at_a_terminal(cluster: Cluster) -> None:
    with terminal(cluster, "alloc", "-n2", "sh") as at:
        at.until_said(b"Granted job allocation")
        at.type(b"srun -l echo st''ep | sort\n")
        at.until_said(b"1: step")
        at.type(b"srun --pty -n1 sh -c 'tty -s && stty size; exit 6'; echo $? ag''ain\n")
        at.until_said(b"24 80")
        at.until_said(b"6 again")  # from here on keys go to the shell
        at.type(b"exit 3\n")
        at.until_said(b"Relinquishing job allocation")
        assert at.process.wait(WAIT_S) == 3


def test_salloc_speaks_as_slurms_and_leaves_an_allocation_for_srun(cluster: Cluster, shims: Path) -> None:
    environ = {**os.environ, "RM_DAEMON": cluster.socket, "SALLOC_TIMELIMIT": "7"}

    def run(program: str, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [shims / program, *words], env=environ, cwd=cluster.directory, capture_output=True, text=True,
            timeout=WAIT_S,
        )  # fmt: skip

    kept = run("salloc", "--no-shell", "-N2", "-J", "kept")
    job = newest(cluster)
    assert (kept.returncode, kept.stderr.splitlines()[-1]) == (0, f"salloc: Granted job allocation {job}")
    assert cluster.job(job)["spec"]["time_limit_us"] == 7 * 60_000_000
    hosts = cluster.job(job)["hosts"]
    assert sorted(run("srun", f"--jobid={job}", "hostname").stdout.split()) == hosts
    done = run("scancel", str(job))
    assert done.returncode == 0, done.stderr
    until(lambda: cluster.job(job)["state"] == "CANCELLED", "it is cancelled")
    assert "does not run" in run("srun", f"--jobid={job}", "hostname").stderr
    missing = run("salloc", "no-such-command")
    assert (missing.returncode, "no-such-command" in missing.stderr) == (1, True)
    assert cluster.job(job)["spec"]["script_path"] == ""  # as in Slurm, `Command` of `srun` alone
    assert run("srun", "-Q", "hostname").returncode == 0
    assert cluster.job(newest(cluster))["spec"]["script_path"] == "hostname"
    done = run("salloc", "-Q", "-D", "/usr", "pwd")
    assert (done.returncode, done.stdout, done.stderr) == (0, "/usr\n", "")
    assert "There is no directory /nowhere here." in run("salloc", "-D", "/nowhere", "pwd").stderr
    done = run("salloc", "-n2", "-Q", "srun", "hostname")
    assert (done.returncode, done.stderr, len(done.stdout.split())) == (0, "", 2)


def test_a_step_is_attended_beside_its_srun(cluster: Cluster, shims: Path) -> None:
    step = "srun -n2 sh -c 'read x; echo $SLURM_PROCID got $x; exit 3'"
    going = start(cluster, "alloc", "-N2", "-n2", "sh", "-c", f"echo ready; {step}", stdin=subprocess.PIPE)
    assert going.stdout is not None
    assert going.stdout.readline() == "ready\n"
    job = newest(cluster)
    environ = {**os.environ, "RM_DAEMON": cluster.socket}

    def attended() -> subprocess.CompletedProcess[str] | None:
        command = [shims / "sattach", "-l", f"{job}.0"]
        done = subprocess.run(
            command, input="words\n", env=environ, capture_output=True, text=True, timeout=WAIT_S
        )
        return None if "No srun runs step 0" in done.stderr else done

    done = until(attended, "the step runs")
    assert sorted(done.stdout.splitlines()) == ["0: 0 got words", "1: 1 got words"], done.stderr
    assert done.returncode == 3
    code, out, _ = ended(going)
    assert (code, sorted(out)) == (3, ["0 got words", "1 got words"])
    cluster.wait(job)
    late = start(cluster, "attach", f"{job}.0")
    assert "does not run: it is FAILED" in ended(late)[2][0]


def test_one_step_is_cancelled_and_another_gets_a_signal(cluster: Cluster, shims: Path) -> None:
    trap = "trap 'echo got it; exit 7' USR1; echo here; while :; do sleep 0.1; done"
    steps = f'srun --overlap -n2 sleep 1000 & srun --overlap -n1 sh -c "{trap}" & '
    steps += "wait %1; echo $?; wait %2; echo $?"
    going = start(cluster, "alloc", "-N2", "-n2", "sh", "-c", steps)
    assert going.stdout is not None
    assert going.stdout.readline() == "here\n"
    job = newest(cluster)
    environ = {**os.environ, "RM_DAEMON": cluster.socket}

    def numbers() -> dict[str, int]:
        told = cluster.client.get("jobs", "steps", jobs=str(job))["steps"]
        return {one["submit_line"].split()[3]: one["step"] for one in told}

    until(lambda: len(numbers()) == 2, "both steps are known")

    def scancel(*words: str) -> str:
        command = [shims / "scancel", *words]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=WAIT_S)
        return done.stderr

    assert scancel(f"{job}.{numbers()['sleep']}") == ""
    assert going.stdout.readline() == "143\n"
    assert "No srun runs step 7." in scancel(f"{job}.7")
    assert scancel("-s", "USR1", f"{job}.{numbers()['sh']}") == ""
    assert ended(going)[1] == ["got it", "7"]
    states = {
        one["submit_line"].split()[3]: one["state"]
        for one in cluster.client.get("jobs", "steps", jobs=str(job))["steps"]
    }
    assert states == {"sleep": "CANCELLED", "sh": "FAILED"}
