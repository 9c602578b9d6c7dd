"""System V IPC and POSIX message queues of a job, by the agent on this machine's own kernel."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agent_process import Agent, agents, launch_request, until

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="needs root")
Start = Callable[..., Agent]
SH = "#!/bin/sh\n"
KEY = 0x726D0000 | os.getpid() & 0xFFFF
QUEUE = f"/rm-test-{os.getpid()}"
PYTHON = f"""#!/usr/bin/env python3
import ctypes, os, time
libc = ctypes.CDLL(None if hasattr(ctypes.CDLL(None), "mq_open") else "librt.so.1")
libc.shmat.restype = ctypes.c_void_p
KEY, QUEUE, CREATE = {KEY}, b"{QUEUE}", 0o1600
def found():
    ids = [libc.shmget(KEY, 0, 0), libc.semget(KEY, 0, 0), libc.msgget(KEY, 0)]
    return [one >= 0 for one in [*ids, libc.mq_open(QUEUE, os.O_RDWR)]]
"""
LEAVES = PYTHON + (
    "print(found())\n"
    "made = [libc.shmget(KEY, 4096, CREATE), libc.semget(KEY, 1, CREATE), libc.msgget(KEY, CREATE)]\n"
    "made.append(libc.mq_open(QUEUE, os.O_RDWR | os.O_CREAT, 0o600, None))\n"
    "print(min(made) >= 0)\n"
)
TOLD = "[False, False, False, False]\nTrue\n"


@pytest.fixture
def agent(start: Start) -> Agent:
    return start()


@pytest.fixture
def start() -> Iterator[Start]:
    # not below /tmp, of which a job may have its own
    with agents("/var/tmp") as starter:
        yield starter


def on_the_host() -> list[str]:
    """The System V memory, semaphores and message queues outside of jobs that have our key."""
    lines = "".join(Path("/proc/sysvipc", kind).read_text() for kind in ("shm", "sem", "msg")).splitlines()
    return [line for line in lines if line.split()[0] in (str(KEY), str(KEY - (1 << 32)))]


@pytest.mark.parametrize(
    "fence", [{}, {"private_tmp": "tmpfs"}, {"no_new_privs": True, "seccomp": True}], ids=str
)
def test_nothing_that_a_job_makes_outlives_it_or_is_seen_by_the_next(
    agent: Agent, fence: dict[str, Any]
) -> None:
    for job in (1, 2):
        agent.launch(LEAVES, job=job, fence=fence, env={"PATH": os.environ["PATH"]})
        agent.event("exit", job=job, code=0)
        assert agent.log(job) == TOLD
        assert on_the_host() == []


def test_each_element_of_a_slice_begins_with_nothing(agent: Agent) -> None:
    first = launch_request(LEAVES, env={"PATH": os.environ["PATH"]}, not_after_us=1 << 60)
    followers = [{"job": job, "attempt": 1} for job in (2, 3)]
    assert agent.ask("slice", first=first, followers=followers, within_us=60_000_000)["ok"]
    for job in (1, 2, 3):
        agent.event("exit", job=job, code=0)
        assert agent.log(job) == TOLD
    assert on_the_host() == []


def test_the_tasks_of_a_job_share_memory_and_other_jobs_do_not_see_it(agent: Agent) -> None:
    script = PYTHON + (
        "segment = libc.shmget(KEY, 4096, CREATE)\n"
        "cell = ctypes.cast(libc.shmat(segment, None, 0), ctypes.POINTER(ctypes.c_int))\n"
        "mine = int(os.environ['SLURM_PROCID'])\n"
        "cell[mine] = 1\n"
        "while not cell[1 - mine] == 1: time.sleep(0.01)\n"
        "cell[mine + 2] = 1\n"
        "while not cell[3 - mine] == 1: time.sleep(0.01)\n"
        "print('both', flush=True)\n"
        "while not cell[4]: time.sleep(0.01)\n"
    )
    tasks = [{"rank": r, "gpus": [], "env": {"SLURM_PROCID": str(r)}} for r in range(2)]
    env = {"PATH": os.environ["PATH"]}
    agent.launch(script, tasks=tasks, env=env)
    until(lambda: agent.log(1, 0) == agent.log(1, 1) == "both\n", "each has seen the other's")
    agent.launch(PYTHON + "print(found())\n", job=2, env=env)
    agent.event("exit", job=2, code=0)
    assert agent.log(2) == "[False, False, False, False]\n"
    assert on_the_host() == []
    agent.call("stop", job=1, attempt=1, grace_us=0, why="cancel")
    agent.event("exit", job=1, rank=0)


def test_without_a_namespace_of_its_own_a_job_shares_the_hosts(agent: Agent) -> None:
    space = SH + "exec readlink /proc/self/ns/ipc"
    for job, own in ((1, True), (2, False)):
        agent.launch(space, job=job, fence={"private_ipc": own}, env={"PATH": os.environ["PATH"]})
        agent.event("exit", job=job, code=0)
        assert (agent.log(job).strip() == os.readlink("/proc/self/ns/ipc")) is not own


def test_the_limits_that_the_host_was_given_hold_in_jobs(start: Start) -> None:
    """In a namespace of the test's own, whose limits it may change."""
    names = ("kernel/shmmni", "kernel/sem", "kernel/msgmnb", "fs/mqueue/msg_max", "fs/mqueue/msg_default")
    given = ("77", "250 3200 32 12", "4321", "33", "21")
    sets = "".join(f'echo "{value}" >/proc/sys/{name}; ' for name, value in zip(names, given, strict=True))
    agent = start(mounts=f'exec unshare --ipc sh -ec \'{sets} exec "$@"\' sh "$@"')
    agent.launch(
        SH + "".join(f"tr '\\t' ' ' </proc/sys/{name}\n" for name in names), env={"PATH": os.environ["PATH"]}
    )
    agent.event("exit", job=1, code=0)
    assert agent.log() == "".join(f"{value}\n" for value in given)


def test_queues_that_are_made_as_files_go_too_where_mounts_are_the_jobs_own(start: Start) -> None:
    dev = start().state / "dev"
    dev.mkdir()
    mounts = f"""
        mount -t tmpfs none {dev}; mkdir {dev}/shm {dev}/mqueue; mount -t mqueue none {dev}/mqueue
        for name in null zero urandom; do touch {dev}/$name; mount --bind /dev/$name {dev}/$name; done
        mount --rbind {dev} /dev
    """
    agent = start(mounts=mounts)
    script = SH + "ls -A /dev/mqueue; touch /dev/mqueue/rm-test; ls -A /dev/mqueue\n"
    for job in (1, 2):
        agent.launch(script, job=job, fence={"private_tmp": "tmpfs"}, env={"PATH": os.environ["PATH"]})
        agent.event("exit", job=job, code=0)
        assert agent.log(job) == "rm-test\n"
    agent.launch(SH + "ls -A /dev/mqueue; rm -f /dev/mqueue/rm-test", job=3)
    agent.event("exit", job=3, code=0)
    assert agent.log(3) == ""
