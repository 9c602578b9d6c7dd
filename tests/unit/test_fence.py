"""What a job is kept to on its host, by the agent on this machine's own kernel."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import os
import pwd
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agent_process import AGENTS, Agent, agents, agents_without_programs, until
from tests.stand_in_gpus import CLOSED, NVIDIA, OPENED, UVM, nvidia
from tests.unit.test_srun import run as run_script

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="needs root")
Start = Callable[..., Agent]
SH = "#!/bin/sh\n"
NODES = {"nvidia0": (NVIDIA, 0), "nvidia1": (NVIDIA, 1), "nvidiactl": (NVIDIA, 255), "nvidia-uvm": (UVM, 0)}


@pytest.fixture
def start() -> Iterator[Start]:
    # not below /tmp, of which a job may have its own
    with agents("/var/tmp") as starter:
        yield starter


def gpus_below(start: Start, root: Path, **more: Any) -> Agent:
    """An agent that finds two GPUs, with their device files in /dev/shm."""
    root.mkdir()
    root.chmod(0o711)
    nvidia(root, [0, 1])
    mounts = [
        f"mount --bind {root}/proc/devices /proc/devices",
        "mount -t tmpfs none /proc/driver",
        f"cp -r {root}/proc/driver/nvidia /proc/driver/",
        "mount -t tmpfs none /dev/shm",
        *(f"mknod -m 666 /dev/shm/{name} c {major} {minor}" for name, (major, minor) in NODES.items()),
    ]
    agent: Agent = start(mounts="\n".join(mounts), **more)
    return agent


def opened(agent: Agent, job: int, gpus: list[str], **more: Any) -> dict[str, bool]:
    """Which of the device files a job with these GPUs can open, whatever it says it sees."""
    script = SH + "export CUDA_VISIBLE_DEVICES=0,1\n"
    script += "".join(f"(: <>/dev/shm/{name}) 2>&1 | sed 's/^/{name} /'\n" for name in NODES)
    agent.launch(script, job=job, tasks=[{"rank": 0, "gpus": gpus, "env": {}}], **more)
    assert agent.event("exit", job=job)["code"] == 0
    said = agent.log(job)
    found = {}
    for name in NODES:
        (line,) = [line for line in said.splitlines() if line.startswith(name + " ")]
        assert OPENED in line or CLOSED in line or "Permission denied" in line, line
        found[name] = OPENED in line
    return found


@pytest.mark.parametrize("means", ["bpf", "devices", "cover"])
def test_a_job_opens_its_own_gpus_only(start: Start, tmp_path: Path, means: str) -> None:
    more: dict[str, Any] = {}
    if means == "devices":
        # a kernel that takes no programs: the agent runs under our own filter of system calls
        more["files"] = agents_without_programs(tmp_path)
    elif means == "cover":
        more["cgroups"] = "none"
    agent = gpus_below(start, Path(start_root(start)), **more)
    if agent.hello["features"]["enforced"]["gpus"] != means:
        pytest.skip(f"this kernel does not take {means}")
    nothing = dict.fromkeys(NODES, False)
    first = {"nvidia0": True, "nvidia1": False, "nvidiactl": True, "nvidia-uvm": True}
    second = {**first, "nvidia0": False, "nvidia1": True}
    assert opened(agent, 1, []) == nothing
    assert opened(agent, 2, ["GPU-0"]) == first
    assert opened(agent, 3, ["1"]) == second
    assert opened(agent, 4, ["0", "GPU-1"]) == dict.fromkeys(NODES, True)
    assert opened(agent, 5, [], fence={"gpus": False}) == dict.fromkeys(NODES, True)


def named_for_cuda(agent: Agent, job: int, gpus: list[list[str]], **more: Any) -> list[tuple[str, str]]:
    """(CUDA_VISIBLE_DEVICES, CUDA_DEVICE_ORDER) of tasks with these GPUs."""
    tasks = [{"rank": rank, "gpus": own, "env": {}} for rank, own in enumerate(gpus)]
    script = SH + 'echo "$CUDA_VISIBLE_DEVICES:$CUDA_DEVICE_ORDER"\n'
    agent.launch(script, job=job, tasks=tasks, **more)
    for rank in range(len(gpus)):
        agent.event("exit", job=job, rank=rank, code=0)
    logs = [agent.log(job, rank).strip() for rank in range(len(gpus))]
    return [(log.partition(":")[0], log.partition(":")[2]) for log in logs]


def test_indices_are_counted_among_the_gpus_that_the_driver_shows(start: Start) -> None:
    agent = gpus_below(start, Path(start_root(start)))
    if not agent.hello["features"]["enforced"]["gpus"]:
        pytest.skip("this kernel closes no devices")
    by_bus = "PCI_BUS_ID"
    assert named_for_cuda(agent, 1, [["1"]]) == [("0", by_bus)]  # the fence hides GPU 0
    assert named_for_cuda(agent, 2, [["1"]], fence={"gpus": False}) == [("1", by_bus)]
    assert named_for_cuda(agent, 3, [["0"], ["1"]]) == [("0", by_bus), ("1", by_bus)]
    assert named_for_cuda(agent, 4, [["0", "1"]] * 2) == [("0,1", by_bus)] * 2
    assert named_for_cuda(agent, 5, [["GPU-1"]]) == [("GPU-1", "")]
    assert named_for_cuda(agent, 6, [[]]) == [("", "")]


def start_root(start: Start) -> str:
    """A folder that every user can enter, taken away with the agents' state."""
    return str(start().state / "stand-in")


def test_a_gpu_that_the_driver_does_not_know_is_told(start: Start) -> None:
    agent = gpus_below(start, Path(start_root(start)))
    tasks = [{"rank": 0, "gpus": ["GPU-9"], "env": {}}]
    reply = agent.launch(SH, tasks=tasks)
    assert "GPU-9" in reply["result"]["note"]
    agent.event("exit", job=1, code=0)
    refused = agent.launch(SH, job=2, tasks=tasks, fence={"unenforced": "refuse"})
    assert (refused["ok"], refused["code"]) == (False, "not-enforced")


def test_a_fork_bomb_ends_at_the_jobs_own_number_of_processes(start: Start) -> None:
    agent = start()
    if not agent.hello["features"]["enforced"]["pids"]:
        pytest.skip("this host offers no pids controller")
    code = (
        "import os\n"
        "for n in range(400):\n"
        "    try:\n        pid = os.fork()\n"
        "    except BlockingIOError:\n        break\n"
        "    if not pid:\n        os.execlp('sleep', 'sleep', '600')\n"
        "print(n)\n"
    )
    agent.launch(
        SH + 'exec python3 -c "$1"', args=[code], env={"PATH": os.environ["PATH"]}, fence={"processes": 30}
    )
    agent.event("exit", job=1, code=0)
    assert 20 < int(agent.log()) < 30


def test_memory_that_cannot_be_limited_is_told_or_refused(start: Start) -> None:
    agent = start("none")
    assert agent.hello["features"]["enforced"]["memory"] == ""
    reply = agent.launch(SH, mem_bytes_per_task=1 << 30)
    assert "cannot keep the job to its memory" in reply["result"]["note"]
    agent.event("exit", job=1, code=0)
    refused = agent.launch(SH, job=2, mem_bytes_per_task=1 << 30, fence={"unenforced": "refuse"})
    assert (refused["ok"], refused["code"]) == (False, "not-enforced")
    assert "memory" in refused["error"]
    assert agent.launch(SH, job=3, fence={"unenforced": "refuse"})["ok"]  # it asked for none


def test_a_job_gets_the_limits_of_its_control_groups(start: Start) -> None:
    agent = start()
    enforced = agent.hello["features"]["enforced"]
    if enforced["memory"] != "v1" or enforced["cpu"] != "v1":
        pytest.skip("not this layout of control groups")
    agent.launch(
        SH + "exec sleep 600", ranks=2, cpus_per_task=3, mem_bytes_per_task=64 << 20, fence={"cpus": "limit"}
    )
    group = Path(agent.call("tasks") and agent.ask("start", job=1, attempt=1)["result"]["cgroup"])
    parts = "/".join(group.parts[-2:])
    wanted = {
        "memory/{}/memory.limit_in_bytes": 128 << 20,
        "memory/{}/memory.memsw.limit_in_bytes": 128 << 20,  # swap included
        "cpu/{}/cpu.cfs_quota_us": 600_000,
    }
    for path, value in wanted.items():
        file = Path("/sys/fs/cgroup", path.format(parts))
        if "memsw" not in path or file.exists():
            assert int(file.read_text()) == value
    agent.call("stop", job=1, attempt=1, grace_us=0, why="cancel")
    agent.event("exit", job=1, rank=0)
    agent.event("exit", job=1, rank=1)
    assert not Path("/sys/fs/cgroup/cpu", parts).exists()


@pytest.mark.parametrize("kind", ["tmpfs", "directory"])
def test_each_job_has_its_own_tmp_which_goes_with_it(start: Start, kind: str) -> None:
    agent = start()
    where = agent.state / "temporary"
    where.mkdir()
    fence = {"private_tmp": "tmpfs" if kind == "tmpfs" else str(where)}
    script = SH + (
        "ls -A /tmp /dev/shm\n"
        'echo mine >"/tmp/rm-test-$RM_RANK"; echo mine >"/dev/shm/rm-test-$RM_RANK"\n'
        'until [ -e /tmp/rm-test-0 ] && [ -e "/dev/shm/rm-test-1" ]; do sleep 0.02; done\n'  # one for both
        "echo both; exec sleep 600\n"
    )
    tasks = [{"rank": r, "gpus": [], "env": {"RM_RANK": str(r)}} for r in range(2)]
    agent.launch(script, tasks=tasks, fence=fence)
    until(lambda: agent.log().endswith("both\n"), "they share it")
    assert not list(Path("/tmp").glob("rm-test-*")) + list(Path("/dev/shm").glob("rm-test-*"))
    assert [path.stat().st_mode & 0o777 for path in where.iterdir()] == (
        [0o700] if kind == "directory" else []
    )
    agent.call("stop", job=1, attempt=1, grace_us=0, why="cancel")
    agent.event("exit", job=1, rank=0)
    agent.event("exit", job=1, rank=1)
    assert list(where.iterdir()) == []
    agent.launch(SH + "ls -A /tmp /dev/shm", job=2, fence=fence)
    agent.event("exit", job=2, code=0)
    assert agent.log(2) == "/dev/shm:\n\n/tmp:\n"


def test_a_jobs_tmp_goes_however_deep_its_directories_are(start: Start) -> None:
    agent = start()
    where = agent.state / "temporary"
    where.mkdir()
    deep = (
        "import os\nos.chdir('/tmp')\nos.symlink('/etc', 'link')\n"
        "for _ in range(3000):\n    os.mkdir('d', 0o700); os.chdir('d')\n"
        "open('left', 'w').close()\n"
    )
    agent.launch("#!/usr/bin/env python3\n" + deep, fence={"private_tmp": str(where)})
    agent.event("exit", job=1, code=0)
    assert list(where.iterdir()) == []
    assert Path("/etc/passwd").exists()


def test_what_a_killed_supervisor_left_of_a_jobs_tmp_is_removed(start: Start) -> None:
    agent = start()
    where = agent.state / "temporary"
    where.mkdir()
    launched = agent.launch(
        SH + "touch /tmp/left; echo $PPID; exec sleep 600", fence={"private_tmp": str(where)}
    )
    assert launched["ok"]
    os.kill(int(until(agent.log, "its supervisor is known")), signal.SIGKILL)
    agent.event("exit", job=1, code=None)
    assert [file.name for file in where.rglob("left")] == ["left"]
    agent.call("discard", job=1, attempt=1)
    until(lambda: not list(where.iterdir()), "it is removed")


def test_a_launch_whose_own_tmp_cannot_be_made_is_refused(start: Start) -> None:
    agent = start()
    reply = agent.launch(SH, fence={"private_tmp": "/nonexistent/here"})
    assert (reply["ok"], reply["code"]) == (False, "not-enforced")
    assert "/nonexistent/here" in reply["error"]
    assert list((agent.state / "jobs").iterdir()) == []


@pytest.mark.parametrize("of", ["the user", "everybody"])
def test_no_jobs_tmp_is_made_where_a_user_could_exchange_it(start: Start, of: str) -> None:
    """Else root makes, in its place, whatever a link leads to everybody's."""
    agent = start()
    where = agent.state / "theirs"
    (where / "below").mkdir(parents=True)
    if of == "the user":
        os.chown(where, pwd.getpwnam("nobody").pw_uid, -1)
    else:
        where.chmod(0o777)
    reply = agent.launch(SH, fence={"private_tmp": str(where / "below")})
    assert (reply["ok"], reply["code"]) == (False, "not-enforced")
    assert f"{where}: others than root may change what lies there" in reply["error"]
    where.chmod(0o1777)
    os.chown(where, 0, -1)
    assert agent.launch(SH, job=2, fence={"private_tmp": str(where / "below")})["ok"]
    agent.event("exit", job=2, code=0)


def test_an_output_in_tmp_is_one_in_the_hosts_tmp(start: Start) -> None:
    agent = start()
    folder = agent.state / "open"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    mounted = start(mounts=f"mount --bind {folder} /tmp")
    mounted.launch(SH + "echo to the log; ls -A /tmp", output="/tmp/log", fence={"private_tmp": "tmpfs"})
    mounted.event("exit", job=1, code=0)
    assert (folder / "log").read_text() == "to the log\n"
    assert mounted.log() == "to the log\n"


@pytest.mark.parametrize("stream", ["input", "output", "error"])
def test_no_stream_leads_out_of_the_jobs_own_mounts(start: Start, stream: str) -> None:
    """Which are what closes the GPUs of others where a kernel has no other way."""
    agent = start()
    folder = agent.state / "open"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    mounted = start(mounts=f"mount --bind {folder} /tmp\nmknod -m 666 /tmp/zero c 1 5")
    for job, path in enumerate(("/tmp", "/tmp/zero", "/dev/zero"), 1):
        tasks = [{"rank": 0, "gpus": [], "env": {}, stream: path}]
        mounted.launch(SH, job=job, tasks=tasks, fence={"private_tmp": "tmpfs"})
        ended = mounted.event("exit", job=job)
        assert (ended["code"], ended["signal"]) == ((0, 0) if path == "/dev/zero" else (0, 53))
        assert (path in ended["why"]) == (path != "/dev/zero")


OUT = "cat " + "../" * 16 + "tmp/outside"
OPEN_HERE = range(3, 24)  # descriptors that a supervisor may have


@pytest.fixture
def mounted(start: Start) -> Agent:
    """An agent on a host whose /tmp holds the file `outside`."""
    folder = start().state / "host"
    folder.mkdir()
    folder.chmod(0o777)
    (folder / "outside").write_text("seen\n")
    return start(mounts=f"mount --bind {folder} /tmp")


def test_no_directory_leads_out_of_the_jobs_own_mounts(mounted: Agent) -> None:
    """Such as one that root has open on the way to the job's program."""
    mounted.launch(SH + OUT, job=1, chdir="/")
    assert mounted.event("exit", job=1)["code"] == 0
    assert mounted.log(1) == "seen\n"
    for fd in OPEN_HERE:
        mounted.launch(SH + OUT, job=fd, chdir=f"/proc/self/fd/{fd}", fence={"private_tmp": "tmpfs"})
    for fd in OPEN_HERE:
        assert mounted.event("exit", job=fd)["code"] == 1
        assert "seen" not in mounted.log(fd)


def test_no_directory_of_a_step_leads_out_of_the_jobs_own_mounts(mounted: Agent) -> None:
    steps = "".join(f"srun -n1 --chdir=/proc/self/fd/{fd} {OUT}\n" for fd in OPEN_HERE)
    code, lines = run_script(mounted, steps + "true", fence={"private_tmp": "tmpfs"})
    assert code == 0
    assert "seen" not in lines
    assert sum("No such file or directory" in line and "/outside" in line for line in lines) == len(OPEN_HERE)


def test_limits_of_a_login_and_of_rm_toml(start: Start) -> None:
    if not Path("/etc/security/limits.conf").exists():
        pytest.skip("this machine has no limits.conf")
    agent = start()
    conf = agent.state / "limits.conf"
    conf.write_text("* - nofile 300\n* soft core 0\n* hard core 4\n")
    agent = start(mounts=f"mount --bind {conf} /etc/security/limits.conf")
    show = SH + "ulimit -Sn; ulimit -Hn; ulimit -Sc; ulimit -Ss\n"
    agent.launch(show, fence={"limits": [["stack", 512 << 10, -1]]})
    agent.event("exit", job=1, code=0)
    assert agent.log().split() == ["300", "300", "0", "512"]
    agent.launch(show, job=2, fence={"login_limits": False, "limits": [["nofile", 200, 400]]})
    agent.event("exit", job=2, code=0)
    assert agent.log(2).split()[:2] == ["200", "400"]


def test_no_new_privileges_and_the_filter_of_system_calls(start: Start) -> None:
    agent = start()
    script = SH + (
        "grep -E 'NoNewPrivs|Seccomp:' /proc/self/status\n"
        "unshare --user --map-root-user true || echo no namespaces\n"
        "python3 -c 'import threading as t; t.Thread(target=print, args=(\"threads\",)).start()'\n"
        "sh -c 'echo processes'\n"
    )
    seen = {}
    for job, fence in enumerate(({}, {"seccomp": True}, {"no_new_privs": True, "seccomp": True}), 1):
        agent.launch(script, job=job, fence=fence, env={"PATH": os.environ["PATH"]})
        agent.event("exit", job=job, code=0)
        seen[job] = agent.log(job)
        assert "threads\nprocesses\n" in seen[job]
    assert "NoNewPrivs:\t0\nSeccomp:\t0\n" in seen[1]
    assert "NoNewPrivs:\t0\nSeccomp:\t2\n" in seen[2]
    assert "NoNewPrivs:\t1\nSeccomp:\t2\n" in seen[3]
    assert "no namespaces" in seen[2]
    assert "no namespaces" in seen[3]


@pytest.mark.parametrize(
    "fence",
    [
        {"gpus": "yes"}, {"unknown": True}, {"cpus": "some"}, {"processes": -1}, {"processes": True},
        {"private_tmp": "here"}, {"limits": ["nofile"]}, {"limits": [["nofile", "1", 1]]},
        {"limits": [["files", 1, 1]]}, {"unenforced": ""}, 5,
    ],
    ids=str,
)  # fmt: skip
def test_settings_that_cannot_be_meant_are_refused(start: Start, fence: Any) -> None:
    reply = start().launch(SH, fence=fence)
    assert (reply["ok"], reply["code"]) == (False, "bad-request")


def test_what_v2_is_asked_for(tmp_path: Path) -> None:
    """On a stand-in tree: this kernel's controllers may all belong to v1."""
    sys.path.insert(0, str(AGENTS))
    try:
        from rm_cgroup import Hierarchy
        from rm_fence import Fences, checked_settings
    finally:
        sys.path.remove(str(AGENTS))
    for folder in (tmp_path, tmp_path / "rm-1"):
        folder.mkdir(exist_ok=True)
        (folder / "cgroup.controllers").write_text("cpu memory pids\n")
        (folder / "cgroup.subtree_control").write_text("cpu memory pids\n")
    state = "/somewhere"
    (tmp_path / "rm-1").rename(tmp_path / Hierarchy(state, str(tmp_path / "none")).parent)
    hierarchy = Hierarchy(state, str(tmp_path))
    assert [hierarchy.version(name) for name in ("memory", "cpu", "pids", "devices")] == [2, 2, 2, 0]
    request = {"tasks": [{"gpus": []}] * 2, "mem_bytes": 0, "mem_bytes_per_task": 1 << 30, "cpus_per_task": 4}
    asked = {}
    for how in ("weight", "limit", "off"):
        request["fence"] = checked_settings({"cpus": how, "login_limits": False})
        limits = Fences(hierarchy, str(tmp_path)).of(request, None).limits
        asked[how] = {file: value for _, file, value, _ in limits}
    assert asked["off"].keys() == {"memory.max", "memory.swap.max", "pids.max"}
    assert (asked["off"]["memory.max"], asked["off"]["memory.swap.max"]) == (str(2 << 30), "0")
    request["mem_bytes"] = 3 << 30
    at_once = {file: value for _, file, value, _ in Fences(hierarchy, str(tmp_path)).of(request, None).limits}
    assert at_once["memory.max"] == str(3 << 30)  # of all tasks here, however many
    assert asked["weight"]["cpu.weight"] == "800"
    assert asked["limit"]["cpu.max"] == "800000 100000"


def test_a_jobs_tmp_with_many_files_takes_no_memory_of_roots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(AGENTS))
    mounts = importlib.import_module("rm_fence_mounts")
    home = Path(mounts.make_temporary(str(tmp_path), "1.1"))
    for number in range(4_000):
        (home / "tmp" / f"file-{number}").touch()
        (home / "tmp" / f"folder-{number}").mkdir()
    (home / "tmp" / "folder-7" / "inside").mkdir()
    most = 0
    islice = itertools.islice

    def some(found: Any, number: int) -> list[Any]:
        nonlocal most
        entries = list(islice(found, number))
        most = max(most, len(entries))
        return entries

    monkeypatch.setattr(mounts.itertools, "islice", some)
    mounts.remove_temporary(str(home))
    assert 0 < most <= 1_000
    assert os.listdir(tmp_path) == []


def test_nothing_is_left_of_a_jobs_tmp_though_others_of_its_user_hold_it_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job handed its open directories to another one, which put more into them while they were removed."""
    monkeypatch.syspath_prepend(str(AGENTS))
    mounts = importlib.import_module("rm_fence_mounts")
    account = pwd.getpwnam("nobody")
    home = Path(mounts.make_temporary(str(tmp_path), "1.1"))
    own = home / "tmp" / "own"
    own.mkdir()
    os.chown(own, account.pw_uid, account.pw_gid)
    held = [os.open(path, os.O_RDONLY) for path in (own, home / "tmp")]
    refused = []
    scandir = os.scandir

    def scanned(folder: int) -> Any:
        """What is there now; then the user puts something into each directory."""
        found = list(scandir(folder))
        for fd in held:
            os.seteuid(account.pw_uid)
            try:
                os.mkdir(f"late{len(refused)}", dir_fd=fd)
            except OSError:
                refused.append(fd)
            finally:
                os.seteuid(0)
        return contextlib.nullcontext(found)

    monkeypatch.setattr(mounts.os, "scandir", scanned)
    mounts.remove_temporary(str(home))
    for fd in held:
        os.close(fd)
    monkeypatch.undo()
    assert os.listdir(tmp_path) == []
