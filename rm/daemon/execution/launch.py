"""From a placed job to what its hosts' agents are asked to launch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from msgspec import UNSET, UnsetType

from rm import containers
from rm.core.jobs.actions import Launch
from rm.core.jobs.state import ClusterState
from rm.core.model.acceptance import PATH_BYTES
from rm.core.model.job import Job, JobSpec, TaskPlacement
from rm.daemon.execution.environment import (
    batch_environment,
    cpus_on,
    expand,
    job_environment,
    task_environment,
)
from rm.errors import Conflict, NotFound
from rm.protocol import attempts as wire
from rm.protocol.codes import Code, NotSent


@dataclass(frozen=True, slots=True)
class LaunchRules:
    """What rm.toml says of launches. `run_root_as` is the user that root's jobs run as; `ids_of` gives a
    user's uid and gid here, None for those that are not known or not to be compared. `log_bytes` of a
    task's log are kept on its host, on whose disk logs leave `log_reserve_bytes` free."""

    grace_us: int
    allow_root: bool
    run_root_as: str
    cluster_name: str
    gpu_indices: bool  # what GPUs are named by, instead of by their UUIDs
    libraries: str  # folder on the hosts that holds the iteration client
    fence: wire.Fence
    log_bytes: int
    log_reserve_bytes: int
    ids_of: Callable[[str], tuple[int, int] | None]
    prolog: str = ""  # programs of the hosts, "" = none, and how long each may take
    epilog: str = ""
    program_us: int = 60_000_000


def launch_request(state: ClusterState, rules: LaunchRules, epoch: int) -> Callable[[Launch], wire.Launch]:
    """The builder of launch requests (docs/agent-protocol.md) over the leader's state."""

    def build(action: Launch) -> wire.Launch:
        job = state.jobs.get(action.job)
        if job is None or job.attempt != action.attempt or job.placement is None:
            raise NotFound(f"Job {action.job} has no attempt {action.attempt} to launch.")
        if action.host not in state.hosts or any(h not in state.hosts for h in job.placement.hosts):
            raise Conflict(f"A host of job {job.id} was removed.")
        return request_of(job, action, state, rules, epoch)

    return build


def open_mode(job: Job) -> Literal["truncate", "append"]:
    """How the attempt opens the files of --output and --error. Unasked, it takes away what stood there before
    the job, and nothing that an earlier attempt wrote."""
    asked = job.spec.open_mode or ("append" if job.restarts else "truncate")
    return "append" if asked == "append" else "truncate"


def _allocation(job: Job, state: ClusterState) -> list[wire.AllocatedHost]:
    """Over which the job's own steps are laid out."""
    placement = job.placement
    assert placement is not None
    return [
        wire.AllocatedHost(
            host=name,
            address=state.hosts[name].address,
            tasks=len(placement.on(name)),
            cpus=cpus_on(job.spec, placement, state.hosts[name]),
            gpus=len(placement.gpus_on(name)),
        )
        for name in placement.hosts
    ]


def _container(spec: JobSpec) -> wire.Container | UnsetType:
    if not spec.container_image:
        return UNSET
    return wire.Container(
        image=spec.container_image,
        mounts=list(containers.mounts(spec.container_mounts)),
        workdir=spec.container_workdir,
        name=spec.container_name,
    )


def request_of(job: Job, action: Launch, state: ClusterState, rules: LaunchRules, epoch: int) -> wire.Launch:
    spec, host = job.spec, state.hosts[action.host]
    user = spec.user
    if user == "root" and rules.run_root_as:
        user = rules.run_root_as

    ids = rules.ids_of(user)
    mem_bytes = host.mem_bytes if spec.mem_all else spec.mem_bytes_per_host

    printing = [t for t in action.tasks if t.rank == 0 or not spec.runs_once]
    place = job.placement.hosts.index(host.name) if job.placement is not None else 0
    uuids = {g.index: g.uuid for g in host.gpus}
    everywhere = job.placement.gpus_on(host.name) if spec.runs_once and job.placement is not None else ()

    def file(pattern: str, t: TaskPlacement) -> str | UnsetType:
        if not pattern or t not in printing:
            return UNSET
        path = expand(pattern, job, t, host)
        if (size := len(path.encode(errors="replace"))) > PATH_BYTES:
            raise NotSent(
                Code.BAD_REQUEST,
                f"With its patterns replaced, the path '{path:.40}…' has {size} bytes: {PATH_BYTES} at most.",
            )
        return path

    def task(t: TaskPlacement) -> wire.Task:
        return wire.Task(
            rank=t.rank,
            gpus=[str(g) if rules.gpu_indices else uuids.get(g) or str(g) for g in everywhere or t.gpus],
            env=batch_environment(job, host, state.hosts)
            if spec.runs_once
            else task_environment(job, t, host, state.hosts),
            output=file(spec.output, t),
            error=file(spec.error, t),
            input=file(spec.input, t),
        )

    return wire.Launch(
        job=job.id,
        attempt=job.attempt,
        epoch=epoch,
        user=user,
        script=UNSET if spec.runs_once else spec.script,
        batch=spec.script if spec.runs_once else UNSET,
        # of other jobs only who comes from outside starts steps, on the first host
        allocation=_allocation(job, state) if spec.runs_once or place == 0 else UNSET,
        place=place,
        args=list(spec.script_args),
        chdir=spec.chdir,
        chdir_required=spec.chdir_required,
        env=job_environment(job, state.hosts, rules.libraries, rules.cluster_name),
        tasks=[task(t) for t in action.tasks],
        uid=UNSET if ids is None else ids[0],
        gid=UNSET if ids is None else ids[1],
        cpus_per_task=spec.cpus_per_task,
        cpus=host.cpus if spec.exclusive else 0,
        mem_bytes_per_task=spec.mem_bytes_per_task or -(-mem_bytes // len(action.tasks)),
        mem_bytes=mem_bytes,
        time_limit_us=job.allowed_us or spec.time_limit_us or 0,
        grace_us=job.fence_grace_us if spec.fence_us else rules.grace_us,
        hold=action.hold,
        allow_root=rules.allow_root,
        not_after_us=0,  # set when it is sent
        master_port=job.placement is not None and job.placement.hosts[0] == action.host,
        fence=rules.fence,
        open_mode=open_mode(job),
        log_bytes=rules.log_bytes,
        log_reserve_bytes=rules.log_reserve_bytes,
        warn_signal=spec.warn_signal,
        warn_before_us=spec.warn_before_us,
        warn_batch=spec.warn_batch,
        prolog=rules.prolog,
        epilog=rules.epilog,
        program_us=rules.program_us,
        lease_us=spec.fence_us or 0,
        container=_container(spec),
    )
