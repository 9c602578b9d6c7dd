"""How often a script is started: decided by what it calls, and as its user or the configuration says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rm.core.jobs import events as ev
from rm.core.jobs.actions import Collect, Discard, Launch, Stop
from rm.core.jobs.state import ClusterState
from rm.core.model.asked.launching import AUTO, BATCH, TASKS, launch_of
from rm.core.model.job import JobState
from rm.daemon.execution.launch import LaunchRules, launch_request
from rm.daemon.execution.sending import failed
from rm.protocol.attempts import Fence
from rm.protocol.codes import Code, NotSent
from tests.unit.test_environment import HOSTS, placed
from tests.unit.test_lifecycle import World

S = JobState
RULES = LaunchRules(0, False, "", "rm", False, "/opt/rm", Fence(), 1, 0, lambda user: None)


@pytest.mark.parametrize(
    ("line", "hosts", "launch"),
    [
        ("srun python train.py", 0, BATCH),
        ("exec /usr/bin/srun --label hostname", 0, BATCH),
        ("out=$(srun -n1 hostname)", 0, BATCH),
        ("time mpirun ./a.out", 0, BATCH),
        ("mpiexec.hydra -n 4 ./a.out", 0, BATCH),
        ("deepspeed --hostfile hosts train.py", 4, BATCH),
        ("./train && sbatch --dependency=afterok:$SLURM_JOB_ID next.sh", 0, BATCH),
        ("for h in $(scontrol show hostnames); do ssh $h hostname; done", 2, BATCH),
        ("torchrun --nproc-per-node=4 train.py", 1, BATCH),
        ("accelerate launch train.py", 1, BATCH),
        ("python -m torch.distributed.run train.py", 1, BATCH),
        ("torchrun --nnodes=2 --node-rank=$SLURM_NODEID train.py", 2, TASKS),
        ("python train.py", 1, TASKS),
        ("# srun python train.py", 0, TASKS),
        ("python train.py  # was: srun", 0, TASKS),
        ("python train.py --out=srun.log", 0, TASKS),
        ("echo $srun; cat my-srun /srun/x", 0, TASKS),
    ],
)
def test_a_script_that_starts_its_tasks_itself_runs_once(line: str, hosts: int, launch: str) -> None:
    script = f"#!/bin/sh\n#SBATCH -n 4\n{line}\n"
    assert launch_of(AUTO, script, hosts) == launch
    assert launch_of(TASKS, script, hosts) == TASKS
    assert launch_of(BATCH, script, hosts) == BATCH


def test_the_job_ends_as_its_script_does_and_the_other_hosts_are_let_go() -> None:
    world = World(launch=BATCH, script="#!/bin/sh\n").run()
    assert world.exit(1) == []  # holds its part of the first host only: ends with the script
    actions = world.exit(0)
    assert actions == [Stop(1, 1, "h2", 5, "abort")]
    assert world.job.state is S.COMPLETING
    assert world.exit(2, why="abort") == [
        Collect(1, 1, "h1", (0,), errors=False, steps=True),
        Discard(1, 1, "h2"),
    ]
    assert (world.job.state, world.job.exit_code) == (S.COMPLETED, 0)
    assert world.is_at_rest()


def test_a_failing_script_fails_the_job_with_its_code() -> None:
    world = World(launch=BATCH, script="#!/bin/sh\n").run()
    world.exit(0, code=3)
    world.exit(1, why="abort")
    world.exit(2, why="abort")
    assert (world.job.state, world.job.exit_code, world.job.failed_rank) == (S.FAILED, 3, 0)


def test_a_host_that_is_lost_after_the_script_has_ended_changes_nothing() -> None:
    world = World(launch=BATCH, script="#!/bin/sh\n").run()
    world.exit(1)
    world.exit(0)
    world.do(ev.TasksLost(1, 1, "h2", (2,), "the host is gone"))
    assert world.job.state is S.COMPLETED


def test_a_host_that_is_lost_while_the_script_runs_requeues_the_job() -> None:
    world = World(launch=BATCH, script="#!/bin/sh\n").run()
    world.do(ev.TasksLost(1, 1, "h2", (2,), "the host is gone"))
    world.exit(0, signal=15, why="abort")
    world.exit(1, why="abort")
    assert world.job.state is S.PENDING


def test_hosts_reach_the_time_limit_before_the_script_asks_for_its_requeue() -> None:
    world = World(launch=BATCH, script="#!/bin/sh\n").run()
    world.exit(2, why="timeout")
    world.exit(1, why="timeout")
    world.exit(0, why="requeue")
    assert (world.job.state, world.job.attempt) == (S.PENDING, 1)


def test_the_script_sees_the_whole_allocation_and_is_no_task_of_it() -> None:
    job = placed(launch=BATCH, script="#!/bin/sh\nsrun x\n", output="out-%t")
    state = ClusterState(jobs={42: job}, hosts=dict(HOSTS))
    build = launch_request(state, RULES, 1)
    placement = job.placement
    assert placement is not None
    first = build(Launch(42, 1, "gpu01", placement.on("gpu01"), hold=True))
    assert (first.batch, first.place) == ("#!/bin/sh\nsrun x\n", 0)
    assert [(h.host, h.tasks, h.cpus, h.gpus) for h in first.allocation or ()] == [
        ("gpu01", 2, 4, 2),
        ("gpu02", 1, 2, 1),
    ]
    assert [(task.rank, task.output or None, len(task.gpus)) for task in first.tasks] == [
        (0, "out-0", 2),
        (1, None, 2),
    ]
    env = first.env | first.tasks[0].env
    assert (env["SLURM_NTASKS"], env["SLURM_PROCID"], env["SLURM_NODEID"]) == ("3", "0", "0")
    assert (env["SLURM_JOB_GPUS"], env["SLURMD_NODENAME"]) == ("0,1", "gpu01")
    assert not {"RANK", "LOCAL_RANK", "WORLD_SIZE", "SLURM_STEP_ID", "SLURM_STEPID"} & env.keys()
    second = build(Launch(42, 1, "gpu02", placement.on("gpu02"), hold=True))
    assert (second.place, second.tasks[0].env["SLURMD_NODENAME"]) == (1, "gpu02")


def test_a_path_that_its_patterns_make_too_long_is_no_fault_of_the_agents() -> None:
    """The job's story said that the agents have another version."""
    job = placed(name="n" * 250, output="/tmp/" + "%x/" * 40)
    state = ClusterState(jobs={42: job}, hosts=dict(HOSTS))
    action = Launch(42, 1, "gpu02", job.placement.on("gpu02") if job.placement else (), hold=True)
    with pytest.raises(NotSent, match="has 10045 bytes: 4095 at most") as refused:
        launch_request(state, RULES, 1)(action)
    told = failed(action, refused.value.code, refused.value)
    assert (told.code, told.message) == (Code.BAD_REQUEST, str(refused.value))


def test_a_job_from_before_runs_its_script_for_each_task() -> None:
    job = replace(placed(), attempt=1)
    state = ClusterState(jobs={42: job}, hosts=dict(HOSTS))
    assert job.placement is not None
    request = launch_request(state, RULES, 1)(Launch(42, 1, "gpu02", job.placement.on("gpu02"), hold=True))
    assert request.script
    assert not request.batch
