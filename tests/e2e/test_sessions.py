"""Programs in jobs with somebody at their streams: `rmx run`, `rmx shell`, by the daemon's channels alone."""

from __future__ import annotations

import fcntl
import hashlib
import os
import pty
import select
import signal
import socket
import struct
import subprocess
import termios
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from tests.cluster import RMX, WAIT_S, Cluster, until
from tests.e2e.conftest import MakeCluster

pytestmark = pytest.mark.lab
EVERY_BYTE = bytes(range(256))


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster) -> Cluster:
    return make_cluster(zones=1, hosts=2, gpus_per_host=1)


@pytest.fixture(autouse=True)
def tidy(cluster: Cluster) -> Iterator[None]:
    yield
    cluster.tidy()


def process(cluster: Cluster, *words: Any, **more: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [RMX, "--socket", cluster.socket, *map(str, words)], cwd=cluster.directory, **more
    )


def run(cluster: Cluster, *words: Any, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [RMX, "--socket", cluster.socket, *map(str, words)]
    return subprocess.run(command, input=data, capture_output=True, timeout=WAIT_S, cwd=cluster.directory)


class Terminal:
    """rmx at a terminal of its own."""

    def __init__(self, cluster: Cluster, *words: Any) -> None:
        self.far, near = pty.openpty()
        self.resize(24, 80)
        self.said = b""
        self.process = process(
            cluster, *words, stdin=near, stdout=near, stderr=near, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        os.close(near)

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.far, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))

    def type(self, text: bytes) -> None:
        os.write(self.far, text)

    def until_said(self, text: bytes) -> None:
        def has_come() -> bool:
            if select.select([self.far], [], [], 0.05)[0]:
                try:
                    self.said += os.read(self.far, 65536)
                except OSError:
                    return text in self.said
            return text in self.said

        try:
            until(has_come, f"{text!r} was said")
        except AssertionError:
            raise AssertionError(f"{text!r} was not said, but {self.said!r}") from None
        self.said = self.said.split(text, 1)[1]

    def close(self) -> None:
        os.close(self.far)
        self.far = -1


@contextmanager
def terminal(cluster: Cluster, *words: Any) -> Iterator[Terminal]:
    made = Terminal(cluster, *words)
    try:
        yield made
    finally:
        if made.process.poll() is None:
            made.process.kill()
        made.process.wait()
        if made.far >= 0:
            os.close(made.far)


def newest(cluster: Cluster) -> int:
    return max(int(job["id"]) for job in cluster.client.get("jobs", all=1)["jobs"])


def test_every_byte_goes_both_ways_and_the_code_comes_back(cluster: Cluster) -> None:
    done = run(cluster, "run", "sh", "-c", "cat; echo aside >&2; exit 7", data=EVERY_BYTE * 300)
    assert done.stdout == EVERY_BYTE * 300, done.stderr
    assert b"aside\n" in done.stderr
    assert done.returncode == 7
    job = cluster.wait(newest(cluster))
    assert (job["state"], job["exit"]) == ("FAILED", "7:0")


def test_all_tasks_run_and_the_largest_code_comes_back(cluster: Cluster) -> None:
    done = run(cluster, "run", "-N2", "-n2", "-l", "sh", "-c", "echo at $SLURM_PROCID; exit $SLURM_PROCID")
    assert sorted(done.stdout.splitlines()) == [b"0: at 0", b"1: at 1"], done.stderr
    assert done.returncode == 1


def test_what_a_command_leaves_in_the_background_keeps_nobody(cluster: Cluster) -> None:
    job = cluster.submit("--wrap", "sleep 1000")
    cluster.all_started(job)
    for words, tasks in ((("run", "-N1"), 1), (("run", "-n2"), 2), (("shell", str(job)), 1)):
        done = run(cluster, *words, "sh", "-c", "sleep 1000 & head -c 60000 /dev/zero; exit 3")
        assert (done.returncode, {*done.stdout}, len(done.stdout)) == (3, {0}, 60000 * tasks), done.stderr


def test_what_waits_and_is_refused_is_said(cluster: Cluster) -> None:
    blocker = cluster.submit("-N2", "--gpus-per-node=1", "--wrap", "sleep 600")
    cluster.all_started(blocker)
    waiting = process(cluster, "run", "--gpus=1", "true", stderr=subprocess.PIPE)
    assert waiting.stderr is not None
    assert b"waits: " in waiting.stderr.readline()
    cluster.rmx("cancel", blocker)
    while b"runs on " not in (line := waiting.stderr.readline()):
        assert b"waits: " in line  # for something else, while the other ends
    assert waiting.wait(WAIT_S) == 0
    waiting.stderr.close()
    for words, why in (
        (("run", "--pty", "true"), b"A terminal is wanted"),
        (("run",), b"No command is given"),
        (("run", "--array=0-3", "true"), b"takes no --array"),
        (("shell", blocker, "true"), b"does not run"),
        (("shell", 999_999, "true"), b"There is no job 999999"),
        (("attach", blocker), b"does not run"),
    ):
        done = run(cluster, *words)
        assert done.returncode, words
        assert why in done.stderr, (words, done.stderr)


def test_a_terminal_has_a_size_and_keys(cluster: Cluster) -> None:
    with terminal(cluster, "run", "--pty", "sh") as at:
        at.type(b"stty size; tty; echo he''re=$SLURM_JOB_ID\n")
        at.until_said(b"24 80")
        at.until_said(b"/dev/pts/")
        at.until_said(b"here=")
        at.resize(50, 132)
        at.type(b"until [ \"$(stty size)\" = '50 132' ]; do sleep 0.02; done; echo se''en: 50\n")
        at.until_said(b"seen: 50")
        at.type(b"echo sle''eps; sleep 1000\n")
        at.until_said(b"sleeps")
        until(lambda: cluster.alive(cluster.job(newest(cluster))["hosts"][0], "^sleep 1000"), "it sleeps")
        at.type(b"\x03")
        at.until_said(b"$ ")
        at.type(b"echo af''ter=$?\n")
        at.until_said(b"after=130")
        at.type(b"sleep 1001\n")
        until(lambda: cluster.alive(cluster.job(newest(cluster))["hosts"][0], "^sleep 1001"), "it sleeps")
        at.type(b"\x1a")
        at.until_said(b"$ ")
        at.type(b"jobs; kill %1; echo sta''te\n")
        at.until_said(b"Stopped")
        at.until_said(b"state")
        at.type(b"exit 5\nexit 5\n")  # a shell with a stopped job wants it twice
        assert at.process.wait(WAIT_S) == 5
    job = cluster.wait(newest(cluster))
    assert job["exit"] == "5:0"


def test_terminals_and_shells_are_steps_of_the_accounting(cluster: Cluster) -> None:
    def told(job: int) -> list[tuple[Any, ...]]:
        steps = cluster.client.get("jobs", "steps", jobs=str(job))["steps"]
        return [(step["step"], step["name"], step["state"], step["exit_code"]) for step in steps]

    with terminal(cluster, "run", "--pty", "sh") as at:
        at.type(b"echo he''re\n")
        at.until_said(b"here")
        job = newest(cluster)
        until(lambda: told(job) == [(0, "sh", "RUNNING", None)], "it is told")
        assert run(cluster, "shell", job, "sh", "-c", "exit 4").returncode == 4
        at.type(b"srun -n1 true; exit 5\n")
        assert at.process.wait(WAIT_S) == 5
    cluster.wait(job)
    ended = [(0, "sh", "FAILED", 5), (1, "sh", "FAILED", 4), (2, "true", "COMPLETED", 0)]
    until(lambda: told(job) == ended, "the steps came home")


def test_a_closed_terminal_ends_the_job(cluster: Cluster) -> None:
    with terminal(cluster, "run", "--pty", "sh") as at:
        at.type(b"echo re''ady\n")
        at.until_said(b"ready")
        at.close()
        at.process.wait(WAIT_S)
    assert cluster.wait(newest(cluster))["state"] == "CANCELLED"


def test_a_session_outlives_the_daemon(cluster: Cluster) -> None:
    with terminal(cluster, "run", "--pty", "sh") as at:
        at.type(b"echo pi''d=$$\n")
        at.until_said(b"pid=")
        cluster.kill()
        at.until_said(b"trying to attend it again")
        cluster.start()
        at.until_said(b"attended again")
        at.type(b"echo still=$((40+2))\n")
        at.until_said(b"still=42")
        job = newest(cluster)
        at.process.send_signal(signal.SIGKILL)
        at.process.wait()
        with terminal(cluster, "attach", job) as again:
            again.type(b"echo back=$((50+2))\n")
            again.until_said(b"back=52")
            again.type(b"exit\n")
            assert again.process.wait(WAIT_S) == 0
    assert cluster.wait(job)["state"] == "COMPLETED"


def test_much_costs_no_memory(cluster: Cluster) -> None:
    count, limit = 64 << 20, 250 << 10
    command = f"yes 0123456789 | head -c {count}"
    going = process(cluster, "run", "sh", "-c", command, stdout=subprocess.PIPE)
    assert going.stdout is not None
    digest, came, most = hashlib.sha256(), 0, 0
    assert cluster.daemon is not None
    while data := going.stdout.read(1 << 20):
        digest.update(data)
        came += len(data)
        most = max(most, resident_kib(going.pid), resident_kib(cluster.daemon.pid))
    assert going.wait(WAIT_S) == 0
    wanted = (b"0123456789\n" * (count // 11 + 1))[:count]
    assert (came, digest.hexdigest()) == (count, hashlib.sha256(wanted).hexdigest())
    assert most < limit, f"{most} KiB"


def resident_kib(pid: int) -> int:
    with open(f"/proc/{pid}/status") as file:
        return next((int(line.split()[1]) for line in file if line.startswith("VmRSS")), 0)


SERVER = """python3 -S -c '
import hashlib, socket, threading
def answer(near):
    digest = hashlib.sha256()
    while data := near.recv(65536):
        digest.update(data)
    near.sendall(digest.hexdigest().encode() + b" " + bytes(range(256)) * 4096)
    near.close()
at = socket.create_server(("127.0.0.1", 7311))
while True:
    threading.Thread(target=answer, args=(at.accept()[0],)).start()
'"""


def test_a_port_is_forwarded_until_the_job_ends(cluster: Cluster) -> None:
    job = cluster.submit("--launch=batch", "--wrap", SERVER)
    cluster.all_started(job)
    going = process(cluster, "forward", job, "7311:0", stderr=subprocess.PIPE)
    assert going.stderr is not None
    said = going.stderr.readline()
    assert b"is port 7311 of" in said, said
    here = int(said.split(b" is port")[0].rsplit(b":", 1)[1])
    data = os.urandom(1 << 20)

    def asked() -> bytes:
        with socket.create_connection(("127.0.0.1", here), WAIT_S) as far:
            try:
                far.sendall(data)
                far.shutdown(socket.SHUT_WR)
                with far.makefile("rb") as file:
                    return file.read()
            except ConnectionError:  # nothing listens there yet
                return b""

    until(lambda: asked() != b"", "the program listens")
    with ThreadPoolExecutor(8) as pool:
        answers = [task.result() for task in [pool.submit(asked) for _ in range(8)]]
    head = f"{hashlib.sha256(data).hexdigest()} ".encode()
    assert all(answer == head + EVERY_BYTE * 4096 for answer in answers)
    refused = run(cluster, "forward", job, f"7311:{here}")
    assert refused.returncode
    assert b"cannot be listened at" in refused.stderr
    cluster.rmx("cancel", job)
    assert going.wait(WAIT_S) == 0
    assert b"nothing is forwarded any more" in going.stderr.read()
    going.stderr.close()
    assert b"does not run" in run(cluster, "forward", job, 7311).stderr


TALKER = """python3 -S -c '
import socket, threading
def talk(near):
    try:
        while True:
            near.sendall(bytes(65536))
    except OSError:
        print("closed", flush=True)
at = socket.create_server(("127.0.0.1", 7312))
print("listens", flush=True)
while True:
    threading.Thread(target=talk, args=(at.accept()[0],)).start()
'"""


def test_a_connection_that_is_not_read_costs_no_memory_and_one_that_is_closed_ends_there(
    cluster: Cluster,
) -> None:
    job = cluster.submit("--launch=batch", "--wrap", TALKER)
    until(lambda: "listens" in cluster.said(job), "the program listens")
    going = process(cluster, "forward", job, "7312:0", stderr=subprocess.PIPE)
    assert going.stderr is not None
    here = int(going.stderr.readline().split(b" is port")[0].rsplit(b":", 1)[1])
    assert cluster.daemon is not None
    with socket.create_connection(("127.0.0.1", here), WAIT_S) as far:
        came = 0
        while came < 64 << 20:  # then it is read no more
            came += len(far.recv(1 << 20))
        assert max(resident_kib(going.pid), resident_kib(cluster.daemon.pid)) < 250 << 10
    until(lambda: "closed" in cluster.said(job), "the far end is closed")
    going.send_signal(signal.SIGINT)
    assert going.wait(WAIT_S) == 128 + signal.SIGINT
    going.stderr.close()


def test_a_shell_is_in_the_job(cluster: Cluster) -> None:
    job = cluster.submit("-N2", "-n2", "--launch=batch", "--wrap", "sleep 600")
    cluster.all_started(job)
    hosts = cluster.job(job)["hosts"]
    said = run(cluster, "shell", "--host", hosts[1], job, "sh", "-c", "hostname; id -un; echo $SLURM_JOB_ID")
    assert said.stdout.split() == [hosts[1].encode(), b"rmjob", str(job).encode()], said.stderr
    refused = run(cluster, "shell", "--host", "elsewhere", job, "true")
    assert b"does not run on elsewhere" in refused.stderr


def test_a_job_whose_script_runs_in_each_task_is_entered_as_any_other(cluster: Cluster) -> None:
    job = cluster.submit("-N2", "-n2", "--gpus-per-task=1", "--launch=tasks", "--wrap", "sleep 600")
    cluster.all_started(job)
    hosts = cluster.job(job)["hosts"]
    asks = "hostname; id -un; echo $SLURM_JOB_ID ${RANK-none} ${WORLD_SIZE-none} $SLURM_PROCID"
    asks += "; cat /proc/self/cgroup"
    for host in hosts:
        done = run(cluster, "shell", "--host", host, job, "sh", "-c", asks)
        said = done.stdout.decode().splitlines()
        assert said[:3] == [host, "rmjob", f"{job} none none 0"], done.stderr
        if any(line.startswith("0::/rm") for line in said):
            assert any(f"/job_{job}_1/session_" in line for line in said)
    # as Slurm's srun of a job that runs: a step beside the tasks, over all hosts of the job
    shims = cluster.directory / "slurm-bin"
    cluster.rmx("slurm-shims", str(shims))
    asks = "echo $(hostname) $SLURM_PROCID $RANK $WORLD_SIZE $SLURM_GPUS_ON_NODE"
    words = [str(shims / "srun"), f"--jobid={job}", "--overlap", "-l", "sh", "-c", asks]
    environment = dict(os.environ, RM_DAEMON__SOCKET=str(cluster.socket))
    done = subprocess.run(words, env=environment, capture_output=True, timeout=WAIT_S)
    found = sorted(done.stdout.decode().splitlines())
    assert found == [f"{n}: {hosts[n]} {n} {n} 2 1" for n in range(2)], done.stderr
    with terminal(cluster, "shell", job) as inside:
        inside.type(b"echo in-$SLURM_JOB_ID-here\r")
        inside.until_said(b"in-%d-here" % job)
        cluster.rmx("cancel", job)
        assert inside.process.wait(WAIT_S) != 0  # it ends with the job
    assert cluster.wait(job)["state"] == "CANCELLED"


def test_an_element_of_a_slice_is_entered_and_the_next_ones_run_on(cluster: Cluster) -> None:
    script = "test $SLURM_ARRAY_TASK_ID != 1 || sleep 600"
    host = sorted(cluster.hosts())[0]
    array = cluster.submit("--array=0-7", "-t1:00:00", "--launch=tasks", "-w", host, "--wrap", script)
    until(lambda: run(cluster, "shell", f"{array}_1", "true").returncode == 0, "the element is entered")
    said = run(cluster, "shell", f"{array}_1", "sh", "-c", "echo $SLURM_ARRAY_TASK_ID")
    assert said.stdout.split() == [b"1"], said.stderr
    run(cluster, "shell", f"{array}_1", "pkill", "-x", "sleep")
    assert cluster.wait(array)["state"] == "FAILED"  # of the one whose program was killed


def test_a_shell_in_a_step_finds_what_its_task_has(cluster: Cluster) -> None:
    script = "export FROM=script SLURM_EXPORT_ENV=ALL; cd /var/tmp; "
    script += "srun -n1 -N1 true; srun -J named -N2 -n2 sleep 600"
    job = cluster.submit("-N2", "-n2", "--launch=batch", "--wrap", script)
    cluster.all_started(job)
    hosts = cluster.job(job)["hosts"]
    places: tuple[tuple[str, ...], ...] = ((), ("--host", hosts[1]))
    for words in places:  # a host may begin its task later than another

        def runs(words: tuple[str, ...] = words) -> bool:
            return run(cluster, "shell", *words, f"{job}.1", "true").returncode == 0

        until(runs, "the second step runs")
    asks = "hostname; id -un; pwd; echo $FROM $SLURM_JOB_NAME $SLURM_STEP_ID.$SLURM_PROCID"
    asks += "; cat /proc/self/cgroup"
    for rank, (host, words) in enumerate(zip(hosts, places, strict=True)):
        done = run(cluster, "shell", *words, f"{job}.1", "sh", "-c", asks)
        said = done.stdout.decode().splitlines()
        assert said[:4] == [host, "rmjob", "/var/tmp", f"script named 1.{rank}"], done.stderr
        if any(line.startswith("0::/rm") for line in said):
            assert any(f"/job_{job}_1/step_1/session_" in line for line in said)
    for step, why in ((0, f"Step {job}.0 does not run"), (7, f"Step {job}.7 does not run")):
        assert why.encode() in run(cluster, "shell", f"{job}.{step}", "true").stderr
    with terminal(cluster, "shell", f"{job}.1") as inside:
        inside.type(b"echo $FROM-$SLURM_STEP_ID-here\r")
        inside.until_said(b"script-1-here")
        cluster.rmx("cancel", job)
        assert inside.process.wait(WAIT_S) != 0  # it ends with the step
    assert cluster.wait(job)["state"] == "CANCELLED"
