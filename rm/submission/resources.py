"""Slurm's options of hosts, tasks, memory and GPUs as fields of a JobSpec, or a sentence why not.

Source: sbatch(1) of Slurm 22.05; docs/slurm.md is the user's side of it. What Slurm counts for each host is
counted for each host here; how many hosts a job takes is for the placement to find where the options leave
it open. Cheap to import: no core types.
"""

from __future__ import annotations

from rm import units
from rm.errors import Refusal, UsageError
from rm.imported_later import re
from rm.quick_tuple import NamedTuple
from rm.submission.gpu_options import GpuOptions, by_socket, gpu_options
from rm.submission.gpu_shape import gpu_shape
from rm.submission.remarks import Remarks

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_NODES = r"(\d{1,99})(?:-(\d{1,99}))?\Z"
_MEMORY = ("mem", "mem_per_cpu", "mem_per_gpu")
_COUNTS = ("ntasks", "ntasks_per_node", "cpus_per_task", "cpus_per_gpu", "ntasks_per_gpu")


class Hosts(NamedTuple):
    """How many hosts at least and at most, 0 = not said; `named`: the job takes exactly those named."""

    low: int = 0
    high: int = 0
    named: bool = False

    @property
    def exact(self) -> int:
        """Their number, 0 while it is open."""
        return self.low if self.low == self.high else 0


def count(values: Mapping[str, Any], key: str, least: int = 1) -> int | None:
    text = values.get(key)
    if text is None:
        return None
    number = units.number_of(str(text))
    if number is None or number < least:
        option = key.replace("_", "-")
        raise UsageError(
            f"--{option} is '{text}', and must be a whole number of at least {least}.",
            refusal=Refusal.BAD_NUMBER,
        )
    return number


def resources(values: Mapping[str, Any], remarks: Remarks) -> dict[str, Any]:
    """Hosts, tasks, processors, memory and GPUs; complaints go to `remarks`."""
    before = len(remarks.errors)
    hosts, counts, gpus = Hosts(), dict[str, int | None](), GpuOptions()
    spec: dict[str, Any] = {}
    with remarks.gathering():
        hosts = _hosts(values)
    for key in _COUNTS:
        with remarks.gathering():
            counts[key] = count(values, key)
    with remarks.gathering():
        gpus = gpu_options(by_socket(values, count(values, "sockets_per_node"), remarks))
    for key in _MEMORY:
        with remarks.gathering():
            if values.get(key):
                units.parse_memory_bytes(values[key])
    with remarks.gathering():
        spec |= _distribution(values.get("distribution") or "", remarks)
    if len(remarks.errors) > before:
        return spec  # what follows from numbers that are wrong would be wrong, too
    with remarks.gathering():
        spec |= _tasks(_no_more_than_tasks(hosts, counts, values, remarks), counts, gpus)
    with remarks.gathering():
        spec |= _memory(values, spec)
    with remarks.gathering():
        spec |= _gpu_memory(values, spec)
    return spec


def _hosts(values: Mapping[str, Any]) -> Hosts:
    low = high = 0
    if "nodes" in values:
        match = re.match(_NODES, values["nodes"], re.ASCII)
        low, high = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if low < 1 or high < low:
            raise UsageError(
                f"--nodes is '{values['nodes']}'.",
                "Write a number of hosts or a range such as 2-4.",
                Refusal.NO_HOSTS if values["nodes"].strip("0-") == "" else None,
            )
    if counted := _counted(values):
        if high and high < counted:
            raise UsageError(
                f"--constraint counts {counted} hosts, more than --nodes={values['nodes']}.",
                "Count fewer, or ask for more hosts.",
            )
        low, high = max(low, counted), high or counted
    if not values.get("nodelist"):
        return Hosts(low, high)
    named = len(units.parse_hosts(values["nodelist"]))
    if low > named:
        raise UsageError(
            f"--nodes={values['nodes']} asks for more hosts than the {named} that --nodelist names; "
            "a job runs on the hosts named and no others.",
            "Name as many, or leave --nodelist out.",
        )
    if high and high < named:
        raise UsageError(
            f"--nodes={values['nodes']} asks for fewer hosts than the {named} that --nodelist names, "
            "and a job runs on all of them.",
            "Name fewer, or use --exclude for those that it must not use.",
            Refusal.CONTRADICTION,
        )
    return Hosts(named, named, True)


def _counted(values: Mapping[str, Any]) -> int:
    """Hosts that --constraint counts; 0 where it is wrong, which others say."""
    text = (values.get("constraint") or "").strip()
    if "*" not in text:
        return 0
    from rm import features

    try:
        return sum(count for _, count in features.kinds(text))
    except UsageError:
        return 0


def _no_more_than_tasks(
    hosts: Hosts, counts: Mapping[str, int | None], values: Mapping[str, Any], remarks: Remarks
) -> Hosts:
    """As many hosts as --ntasks at most, in Slurm's words, unless hosts are named or counted by --constraint.
    Source: "can't run %d processes on %d nodes" in opt.c of Slurm 22.05."""
    ntasks = counts["ntasks"]
    if ntasks is None or ntasks >= hosts.low or hosts.named or _counted(values):
        return hosts
    remarks.warnings.append(f"can't run {ntasks} processes on {hosts.low} nodes, setting nnodes to {ntasks}")
    return Hosts(ntasks, ntasks)


def _tasks(hosts: Hosts, counts: Mapping[str, int | None], gpus: GpuOptions) -> dict[str, Any]:
    """Hosts, tasks and GPUs, which may each follow from the others."""
    per_host, given = counts["ntasks_per_node"], counts["ntasks"]
    shape = gpu_shape(gpus, given, per_host, counts["ntasks_per_gpu"], hosts.low, hosts.exact)
    ntasks = given or shape.ntasks or max(hosts.low, 1) * (per_host or 1)
    if shape.hosts and hosts.low and not hosts.low <= shape.hosts <= hosts.high:
        raise UsageError(
            f"The tasks and GPUs make {shape.hosts} hosts, and --nodes or --nodelist others.",
            "Leave one of them out.",
        )
    if ntasks < (least := shape.hosts or hosts.low):
        what = "the hosts that --nodelist names" if hosts.named else f"{least} hosts"
        raise UsageError(
            f"{units.format_count(ntasks, 'task')} cannot use {what}: each host needs one.",
            "Ask for fewer hosts, or for more tasks by --ntasks.",
        )
    spec: dict[str, Any] = {"ntasks": ntasks, "cpus_per_task": counts["cpus_per_task"] or 1}
    if exact := shape.hosts or hosts.exact:
        spec |= {"hosts_min": exact, "hosts_max": exact}
    elif hosts.low:
        spec |= {"hosts_min": hosts.low, "hosts_max": hosts.high}
    if on_host := shape.tasks_per_host or per_host:
        spec["tasks_per_host"] = on_host
    spec |= shape.fields
    if each := counts["cpus_per_gpu"]:
        spec["cpus_per_task"] = _cpus_by_gpu(each, counts["cpus_per_task"], spec)
    return spec


def _cpus_by_gpu(each: int, per_task: int | None, spec: Mapping[str, Any]) -> int:
    """Processors of a task of a job that names processors for each GPU."""
    if per_task:
        raise UsageError("--cpus-per-gpu and --cpus-per-task are mutually exclusive.", "Keep one of them.")
    if of_task := int(spec.get("gpus_per_task") or 0):
        return each * of_task
    gpus = int(spec.get("gpus_per_host") or 0)
    if not gpus:
        raise UsageError("--cpus-per-gpu is given, and the job asks for no GPU.", "Add --gpus.")
    ntasks = int(spec["ntasks"])
    hosts = 1 if ntasks == 1 else int(spec.get("hosts_max") or 0)
    exact = hosts == max(spec.get("hosts_min") or 1, 1)
    on_host = ntasks // hosts if hosts and exact and ntasks % hosts == 0 else 0
    if not on_host or (each * gpus) % on_host:
        raise UsageError(
            f"--cpus-per-gpu={each}: the processors for {gpus} GPUs on each host cannot be shared equally "
            "by the tasks there, or how many these are is not said.",
            "Add --nodes, or use --cpus-per-task.",
        )
    return each * gpus // on_host


def _memory(values: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    given = [key for key in _MEMORY if values.get(key)]
    if not given:
        return {}
    option = "--" + given[0].replace("_", "-")
    if len(given) > 1:
        spelled = " and ".join("--" + key.replace("_", "-") for key in given)
        raise UsageError(f"{spelled} are mutually exclusive.", "Keep one of them.", Refusal.CONTRADICTION)
    size = units.parse_memory_bytes(values[given[0]])
    if given[0] == "mem":
        return {"mem_bytes_per_host": size} if size else {"mem_all": True}
    if not size:
        raise UsageError(f"{option}=0 is not a size.", "Write --mem=0 for all memory of each host.")
    if given[0] == "mem_per_cpu":
        return {"mem_bytes_per_task": size * spec["cpus_per_task"]}
    if on_host := spec.get("gpus_per_host"):
        return {"mem_bytes_per_host": size * on_host}
    if not spec.get("gpus_per_task"):
        raise UsageError("--mem-per-gpu is given, and the job asks for no GPU.", "Add --gpus, or use --mem.")
    return {"mem_bytes_per_task": size * spec["gpus_per_task"]}


def _gpu_memory(values: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    """Bytes of each GPU for a job that shares its GPUs with others."""
    if "gpu_mem" not in values:
        return {}
    if not (spec.get("gpus_per_task") or spec.get("gpus_per_host")):
        raise UsageError("--gpu-mem is given, and the job asks for no GPU.", "Add --gpus-per-task.")
    size = units.parse_memory_bytes(values["gpu_mem"])
    return {"gpu_mem_bytes": size} if size else {}


def _distribution(text: str, remarks: Remarks) -> dict[str, Any]:
    """-m: how ranks go over hosts. What follows the first colon binds them to sockets and cores."""
    words = [word for word in text.lower().split(",") if word]
    first, *inside = (words[0] if words else "block").split(":")
    plane = first.startswith("plane=") and re.fullmatch(r"plane=0*([1-9]\d{0,4})", first, re.ASCII)
    if plane and len(words) == 1 and not inside:
        return {"distribution": f"plane={plane[1]}"}
    if first not in ("block", "cyclic", "*") or len(words) > 1:
        raise UsageError(
            f"--distribution={text} is not supported.",
            "For a job write block, cyclic or plane=SIZE; arbitrary, Pack, NoPack: give it to srun.",
        )
    if len(inside) > 2 or not set(inside) <= {"*", "block", "cyclic", "fcyclic"}:
        raise UsageError(
            f"Invalid --distribution specification: {text}.",
            "Behind a colon write block, cyclic, fcyclic or *.",
        )
    if any(word != "*" for word in inside):
        remarks.warnings.append(
            f"Of --distribution={text} only {first} has an effect: rm binds no tasks to sockets and cores."
        )
    return {"distribution": "cyclic"} if first == "cyclic" else {}
