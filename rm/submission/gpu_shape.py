"""From what the options say of GPUs to what a JobSpec says: how many, counted by what, seen by which tasks.

Under Slurm a task sees all GPUs that the job has on its host, unless --gpus-per-task, --ntasks-per-gpu or
--gpu-bind says otherwise. Cheap to import: no core types.
"""

from __future__ import annotations

from rm.errors import Refusal, UsageError
from rm.quick_tuple import NamedTuple
from rm.submission.gpu_options import GpuOptions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn


class GpuShape(NamedTuple):
    """`fields` of the JobSpec; `ntasks`, `hosts` and `tasks_per_host` where they follow, else 0."""

    fields: dict[str, Any]
    ntasks: int = 0
    hosts: int = 0
    tasks_per_host: int = 0


def gpu_shape(
    gpus: GpuOptions, ntasks: int | None, per_host: int | None, per_gpu: int | None, low: int, exact: int
) -> GpuShape:
    """
    Args:
        ntasks, per_host, per_gpu: --ntasks, --ntasks-per-node, --ntasks-per-gpu, None = not given.
        low: hosts at least; exact: their number where it is known. 0 = not said.
    """
    if per_gpu and gpus.task:
        _refuse("--ntasks-per-gpu and --gpus-per-task are mutually exclusive.", "Keep one of them.")
    if gpus.bind == "single" and not per_gpu and not gpus.task:
        per_gpu = gpus.bind_number
    kind = {"gpu_type": gpus.kind} if gpus.kind else {}
    if per_gpu:
        return _by_gpu(gpus, ntasks, per_host, per_gpu, low, exact, kind)
    if gpus.task:
        return _by_task(gpus, gpus.task, ntasks, per_host, low, kind)
    tasks = ntasks or max(low, 1) * (per_host or 1)
    if gpus.host:
        return _by_host(gpus, gpus.host, tasks, exact, kind)
    if gpus.total:
        return _by_job(gpus, gpus.total, tasks, exact, kind)
    return GpuShape({})


def _by_task(
    gpus: GpuOptions, each: int, ntasks: int | None, per_host: int | None, low: int, kind: dict[str, Any]
) -> GpuShape:
    """--gpus-per-task, which with one of the others says how many tasks there are."""
    if (gpus.bind == "per_task" and gpus.bind_number != each) or (gpus.bind == "single" and each > 1):
        _refuse(
            f"--gpu-bind={gpus.bind}:{gpus.bind_number} and --gpus-per-task={each} contradict each other.",
            "Leave --gpu-bind out: each task sees its own GPUs.",
        )
    fields = {"gpus_per_task": each, **kind}
    if gpus.bind == "none":
        fields["gpu_bind"] = "none"
    hosts = on_host = 0
    if gpus.host:
        on_host = _shared(gpus.host, each, f"--gpus-per-node={gpus.host}", f"--gpus-per-task={each}")
        if per_host and per_host != on_host:
            _refuse(
                f"--gpus-per-node={gpus.host} and --gpus-per-task={each} make {on_host} tasks on a host, "
                f"--ntasks-per-node={per_host} others.",
                "Keep two of them.",
            )
        ntasks = ntasks or (gpus.total // each if gpus.total else max(low, 1) * on_host)
        hosts = _shared(ntasks, on_host, f"{ntasks} tasks", f"{on_host} tasks on each host")
    if gpus.total:
        tasks = _shared(gpus.total, each, f"--gpus={gpus.total}", f"--gpus-per-task={each}")
        if ntasks and ntasks != tasks:
            _refuse(
                f"--gpus={gpus.total} and --gpus-per-task={each} make {tasks} tasks, not {ntasks}: "
                "they ask for different numbers of GPUs.",
                "Keep one of them.",
            )
        ntasks = tasks
    return GpuShape(fields, ntasks or 0, hosts, on_host)


def _by_gpu(
    gpus: GpuOptions, ntasks: int | None, per_host: int | None, each: int, low: int, exact: int,
    kind: dict[str, Any],
) -> GpuShape:  # fmt: skip
    """--ntasks-per-gpu: every task sees one GPU, and this many share it."""
    if gpus.bind not in ("", "single") or (gpus.bind == "single" and gpus.bind_number != each):
        _refuse(
            f"--gpu-bind={gpus.bind} and --ntasks-per-gpu={each} contradict each other.", "Keep one of them."
        )
    if not (gpus.total or gpus.host or ntasks):
        _refuse(
            "--ntasks-per-gpu is given, and neither the number of GPUs nor of tasks.",
            "Add --gpus.",
        )
    total = gpus.total or (ntasks and _shared(ntasks, each, f"{ntasks} tasks", f"{each} tasks for a GPU"))
    if gpus.host and not (gpus.total or ntasks):
        total = gpus.host * max(low, 1)
    assert total
    hosts = exact or (1 if total == 1 else 0)
    if gpus.host:
        hosts = _shared(total, gpus.host, f"{total} GPUs", f"{gpus.host} on each host")
    if ntasks and ntasks != total * each:
        _refuse(
            f"{total} GPUs and --ntasks-per-gpu={each} make {total * each} tasks, not {ntasks}.",
            "Leave one of them out.",
        )
    if not hosts and each > 1:
        _refuse(
            f"--ntasks-per-gpu={each} needs the number of hosts.",
            "Add --nodes or --gpus-per-node.",
        )
    on_host = _shared(total, hosts, f"{total} GPUs", f"{hosts} hosts") if hosts else 0
    if per_host and on_host and per_host != on_host * each:
        _refuse(
            f"{on_host} GPUs on a host and --ntasks-per-gpu={each} make {on_host * each} tasks there, "
            f"--ntasks-per-node={per_host} others.",
            "Leave --ntasks-per-node out.",
        )
    if each == 1:
        return GpuShape({"gpus_per_task": 1, **kind}, total, hosts, on_host)
    fields = {"gpus_per_host": on_host, "ntasks_per_gpu": each, **kind}
    return GpuShape(fields, total * each, hosts, on_host * each)


def _by_host(gpus: GpuOptions, each: int, tasks: int, exact: int, kind: dict[str, Any]) -> GpuShape:
    """--gpus-per-node and --gres."""
    hosts = exact
    if gpus.total:
        hosts = _shared(gpus.total, each, f"--gpus={gpus.total}", f"{each} on each host")
        if exact and exact != hosts:
            _refuse(
                f"--gpus={gpus.total} and {each} GPUs on each host make {hosts} hosts, not {exact}.",
                "Leave one of them out.",
            )
    if gpus.bind != "per_task":
        return GpuShape({"gpus_per_host": each, **kind}, max(tasks, hosts) if gpus.total else 0, hosts)
    if not hosts:
        _refuse("--gpu-bind=per_task needs the number of hosts.", "Add --nodes.")
    on_host = _shared(tasks, hosts, f"{tasks} tasks", f"{hosts} hosts")
    if on_host * gpus.bind_number != each:
        _refuse(
            f"--gpu-bind=per_task:{gpus.bind_number} gives {on_host} tasks on a host "
            f"{on_host * gpus.bind_number} GPUs, and the job asks for {each} there.",
            "Ask by --gpus-per-task.",
        )
    return GpuShape({"gpus_per_task": gpus.bind_number, **kind}, tasks, hosts, on_host)


def _by_job(gpus: GpuOptions, total: int, tasks: int, exact: int, kind: dict[str, Any]) -> GpuShape:
    """--gpus: of the whole job, over its hosts equally."""
    if gpus.bind == "per_task":
        if gpus.bind_number * tasks != total:
            _refuse(
                f"--gpu-bind=per_task:{gpus.bind_number} gives {tasks} tasks "
                f"{gpus.bind_number * tasks} GPUs, and the job asks for {total}.",
                "Ask by --gpus-per-task.",
            )
        return GpuShape({"gpus_per_task": gpus.bind_number, **kind})
    if exact and total % exact == 0:
        return GpuShape({"gpus_per_host": total // exact, **kind})
    if total % tasks == 0:
        return GpuShape({"gpus_per_task": total // tasks, "gpu_bind": "none", **kind})
    if total == 1 and not exact:
        return GpuShape({"gpus_per_host": 1, **kind}, 0, 1)
    over = f"{exact} hosts" if exact else f"{tasks} tasks"
    _refuse(
        f"--gpus={total} cannot be shared equally by {over}.",
        "Every host gets the same number of GPUs; say how many hosts by --nodes, or use --gpus-per-node.",
    )


def _shared(number: int, by: int, what: str, over: str) -> int:
    if number % by:
        _refuse(f"{what} cannot be shared equally by {over}.", "Make one a multiple of the other.")
    return number // by


def _refuse(what: str, hint: str) -> NoReturn:
    raise UsageError(what, hint, Refusal.BAD_GPUS)
