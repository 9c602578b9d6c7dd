"""Which processors of this host a job gets for itself, where `fence.cpus` is "cores".

The kernel says which processors this agent may use, which of them are threads of one core, and which NUMA
node they and the GPUs belong to. The choice is a pure function of that. A processor is the number that
sched_setaffinity(2) takes.
"""

import contextlib
import os

from rm_kernel import read_text


def listed(text):
    """The numbers of a list as the kernel writes it: `0-2,8` is [0, 1, 2, 8]."""
    found = []
    for part in text.strip().split(","):
        low, dash, high = part.partition("-")
        if low.isdigit() and (not dash or high.isdigit()):
            found += range(int(low), int(high if dash else low) + 1)
    return found


def written(cpus):
    """As the kernel reads it."""
    return ",".join(map(str, sorted(cpus)))


class Where:
    """`usable`: the processors that jobs may have; `core`, `node`: processor -> its core, its NUMA node."""

    def __init__(self, usable, core=None, node=None):
        self.usable = sorted(usable)
        self.core = {cpu: (core or {}).get(cpu, cpu) for cpu in self.usable}
        self.node = {cpu: (node or {}).get(cpu, 0) for cpu in self.usable}


def found(root="", usable=None):
    """Of this host. `root` is put before the kernel's files (tests)."""
    usable = os.sched_getaffinity(0) if usable is None else usable
    core, node = {}, {}
    for cpu in usable:
        at = "%s/sys/devices/system/cpu/cpu%d/topology/" % (root, cpu)
        threads = listed(read_text(at + "core_cpus_list") or read_text(at + "thread_siblings_list"))
        core[cpu] = min(threads, default=cpu)
    nodes = root + "/sys/devices/system/node"
    with contextlib.suppress(OSError):
        for name in os.listdir(nodes):
            if name.startswith("node") and name[4:].isdigit():
                node.update(dict.fromkeys(listed(read_text("%s/%s/cpulist" % (nodes, name))), int(name[4:])))
    return Where(usable, core, node)


def node_of_bus(bus, root=""):
    """The NUMA node of the device there; None where the kernel knows none."""
    text = read_text("%s/sys/bus/pci/devices/%s/numa_node" % (root, bus.lower())).strip()
    return int(text) if text.isdigit() else None


def chosen(count, held, where, near=()):
    """`count` processors that nobody holds, neighbours beside each other; None when too few are free.

    Nodes in `near` come first. Among alike the one in which the rest fits most closely, else the one with
    most room. In a node whole cores come first, then single threads of cores that are shared already.
    """
    nodes = {}
    for cpu in where.usable:
        if cpu not in held:
            nodes.setdefault(where.node[cpu], []).append(cpu)
    if sum(map(len, nodes.values())) < count:
        return None
    taken = []
    while len(taken) < count:
        left = count - len(taken)

        def rank(node, left=left):
            room = len(nodes[node])
            return node not in near, room < left, room if room >= left else -room, node

        taken += _of_node(nodes.pop(min(nodes, key=rank)), left, where)
    return taken


def _of_node(free, count, where):
    """At most `count` of these, core after core."""
    threads, cores = {}, {}
    for cpu in where.usable:
        threads[where.core[cpu]] = threads.get(where.core[cpu], 0) + 1
    for cpu in free:
        cores.setdefault(where.core[cpu], []).append(cpu)
    taken, rest = [], []
    for core, cpus in sorted(cores.items()):
        if len(cpus) == threads[core] and len(cpus) <= count - len(taken):
            taken += cpus
        else:
            rest.append((len(cpus) == threads[core], core, cpus))
    for _, _, cpus in sorted(rest):
        taken += cpus[: count - len(taken)]
    return taken


def share(cores, at, of):
    """The part of the `at`-th of that many tasks; all of them where there are too few."""
    each = len(cores) // of
    return cores[at * each : (at + 1) * each] or cores
