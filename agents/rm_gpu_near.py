"""--gpu-bind=closest: of a job's GPUs on a host those that hang on the NUMA nodes of a task's processors.

Source: srun(1) of Slurm 22.05. The kernel says where GPUs and processors are. A GPU of which it does not is
near to all; a task that has none near sees all.
"""

import rm_cores
from rm_fence_devices import Devices

ASKED = ("closest", "verbose,closest", "v,closest")


def is_asked(environ):
    """Does the job ask for it?"""
    return environ.get("SLURM_GPU_BIND", "").lower() in ASKED


def narrowed(gpus, cpus, root=""):
    """For each task, of its `gpus`, which are named by UUID or index, those near its `cpus`. `root` is put
    before the kernel's files (tests)."""
    nodes = {}
    for index, gpu in enumerate(Devices(root).gpus):
        nodes[str(index)] = nodes[gpu.uuid] = rm_cores.node_of_bus(gpu.bus, root)
    of_cpu = rm_cores.found(root, set().union(*cpus)).node
    found = []
    for mine, usable in zip(gpus, cpus):  # noqa: B905  Python 3.8 knows no strict=
        here = {None, *(of_cpu[cpu] for cpu in usable)}
        found.append([gpu for gpu in mine if nodes.get(gpu) in here] or list(mine))
    return found


def local_rank(gpus, at):
    """(LOCAL_RANK, LOCAL_WORLD_SIZE) of the `at`-th task: its place among those that see the same GPUs,
    counted round these, since programs take it for an index into them."""
    alike = [n for n, others in enumerate(gpus) if others == gpus[at]]
    return alike.index(at) % (len(gpus[at]) or len(alike)), len(alike)
