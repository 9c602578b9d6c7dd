"""What a step uses: of each task on one host, and of all of its hosts together.

Processor time of all is what the step's control group counted; of a task, and where there is no such group,
it is what the kernel says of the processes that were waited for. Memory is what the processes in the group
have, looked at more and more seldom, and at least a task's largest process. Of all on a host it is what the
step's memory group says, where it has one (version 1). What is said of a host does not grow with its tasks:
of each quantity the sum, and the tasks with the most and the least.
"""

import time

import rm_gpu_used
import rm_used

QUANTITIES = ("cpu_us", "mem_bytes", "read_bytes", "written_bytes")
TIMES = ("user_us", "system_us")
MEMORY = ("host_bytes", "peak_bytes")  # of all on one host at once: without file caches, and with them
ADDED = ("gpu_us", "gpu_busy_us", "energy_mj")  # of the hosts' GPUs; of the others the most is told
WHOLE = (*MEMORY, *rm_gpu_used.KEYS)  # of the host, not of tasks; earlier agents do not tell it
SPREAD = ("total", "most", "most_rank", "least", "least_rank")
LARGEST = 1 << 53
RANKS = 1 << 20


def spread(numbers):
    """Of [(rank, number)], at least one."""
    most, least = max(numbers, key=lambda one: one[1]), min(numbers, key=lambda one: one[1])
    return {"total": sum(number for _, number in numbers), "most": most[1], "most_rank": most[0],
            "least": least[1], "least_rank": least[0]}  # fmt: skip


def summary(tasks, whole=None, of_host=None):
    """`tasks`: rank -> [user_us, system_us, mem_bytes, read_bytes, written_bytes]; `whole`: (user_us,
    system_us) of all together, where it is known; `of_host`: by WHOLE what is known. None without tasks."""
    if not tasks:
        return None
    user, system = whole or (sum(one[0] for one in tasks.values()), sum(one[1] for one in tasks.values()))
    found = {"tasks": len(tasks), "user_us": user, "system_us": system}
    found["cpu_us"] = spread([(rank, one[0] + one[1]) for rank, one in tasks.items()])
    for place, name in enumerate(QUANTITIES[1:], 2):
        found[name] = spread([(rank, one[place]) for rank, one in tasks.items()])
    found.update(dict.fromkeys(WHOLE, 0), **(of_host or {}))
    return found


def checked(told):
    """A summary as another host tells it; ValueError, TypeError or KeyError for what none tells."""
    found = {name: _number(told[name], LARGEST) for name in ("tasks", *TIMES)}
    found.update((name, _number(told.get(name, 0), LARGEST)) for name in WHOLE)
    for name in QUANTITIES:
        found[name] = {
            key: _number(told[name][key], RANKS if key.endswith("_rank") else LARGEST) for key in SPREAD
        }
    return found


def _number(value, most):
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError("%.40r is no such number" % (value,))
    return value


def together(by_host):
    """Of all hosts that told: [(host, summary)], at least one."""
    found = {name: min(LARGEST, sum(one[name] for _, one in by_host)) for name in ("tasks", *TIMES, *ADDED)}
    found.update((name, max(one[name] for _, one in by_host)) for name in WHOLE if name not in ADDED)
    for name in QUANTITIES:
        most_host, most = max(by_host, key=lambda one: one[1][name]["most"])
        least_host, least = min(by_host, key=lambda one: one[1][name]["least"])
        found[name] = {
            "total": min(LARGEST, sum(one[name]["total"] for _, one in by_host)),
            "most": most[name]["most"], "most_rank": most[name]["most_rank"], "most_host": most_host,
            "least": least[name]["least"], "least_rank": least[name]["least_rank"], "least_host": least_host,
        }  # fmt: skip
    return found


class StepMeter:
    """On this host, in the process of the step's part."""

    def __init__(self, group, processes):
        self._group, self._processes = group, processes
        self._gpus = None
        self._memory = {}  # rank -> the most so far
        self._host_bytes = 0  # the most at once of all together
        self._reaped = {}  # rank -> what the kernel said at its end
        self._every_s, self._look_at = rm_used.FIRST_LOOK_S, None

    def begin(self, gpus):
        """`gpus`: what is seen of the GPUs, as rm_step_gpus.py has it."""
        self._gpus = gpus
        self._look_at = time.monotonic() + self._every_s

    def look_at_gpus(self):
        if self._gpus is not None:
            self._gpus.look()

    def due(self):
        return self._look_at is not None and time.monotonic() >= self._look_at

    def look(self):
        """At the memory; what is known of the step now."""
        self._every_s = min(2 * self._every_s, rm_used.LOOK_S)
        self._look_at = time.monotonic() + self._every_s
        now = self._processes()
        for rank, numbers in now.items():
            self._memory[rank] = max(self._memory.get(rank, 0), numbers[2])
        resident = rm_used.resident(self._group.homes.get("memory"))
        resident = sum(numbers[2] for numbers in now.values()) if resident is None else resident
        self._host_bytes = max(self._host_bytes, resident)
        return self._summary({**now, **self._reaped}, self._gpus.told() if self._gpus else {})

    def reaped(self, rank, usage):
        """A task has ended."""
        user, system, mem, _, read, written = rm_used.of_children(usage)
        self._reaped[rank] = [user, system, mem, read, written]

    def end(self):
        """All that is known at the end of the tasks."""
        return self._summary(self._reaped, self._gpus.end() if self._gpus else {})

    def _summary(self, tasks, gpus):
        tasks = {
            rank: [one[0], one[1], max(one[2], self._memory.get(rank, 0)), one[3], one[4]]
            for rank, one in tasks.items()
        }
        most = max([self._host_bytes, *(one[2] for one in tasks.values())])
        peak = rm_used.peak(self._group.homes.get("memory"))
        of_host = dict(gpus, host_bytes=most, peak_bytes=max(peak, most) if peak else 0)
        return summary(tasks, rm_used.processor_times(self._group.path), of_host)
