"""What processes use that run now, by the steps and tasks that they belong to.

The kernel tells a process's own numbers with those of its children that it has waited for, so that the sum
over the processes of a task counts each once.
"""

import contextlib
import os

import rm_step_used
import rm_used
from rm_cgroup import descendants, environment_of

SCRIPT = -1  # in place of a step: the script, or what runs it for each task
PROCESSES = 20_000  # that are looked at
ENVIRONMENT_BYTES = 128 << 10
ANCESTORS = 64
STEPS = 4096  # that are told of: processes may say that they are of more
STEP_MAX = 999_999_999


def of_attempt(group, supervisor):
    """[{"step", "used"}] of an attempt on this host: its script and the steps that run here."""
    found = {}
    for pid, step in _processes(group, supervisor):
        found.setdefault(step, []).append(pid)
    lines = []
    for step, pids in sorted(found.items())[:STEPS]:
        whole = None
        if step != SCRIPT and group.path:
            whole = rm_used.processor_times("%s/step_%d" % (group.path, step))
        used = rm_step_used.summary(of_tasks(pids, 0 if step == SCRIPT else None), whole)
        if used is not None:
            lines.append({"step": step, "used": used})
    return lines


def of_tasks(pids, default=None):
    """rank -> [user_us, system_us, mem_bytes, read_bytes, written_bytes] of what runs; `default`: the rank of
    processes that do not say whose they are, which are left out without it."""
    tasks, ranks = {}, {}
    for pid in pids[:PROCESSES]:
        numbers, rank = _numbers(pid), _rank(pid, ranks)
        rank = default if rank is None else rank
        if numbers is None or rank is None:
            continue
        before = tasks.get(rank, [0] * len(numbers))
        tasks[rank] = [before[place] + number for place, number in enumerate(numbers)]
    return tasks


def _processes(group, supervisor):
    """(process, step) of all that run."""
    if group.path:
        for folder, _, _ in os.walk(group.path):
            step = _step_of_folder(os.path.relpath(folder, group.path).partition("/")[0])
            if step is not None:
                with contextlib.suppress(OSError), open(folder + "/cgroup.procs") as file:
                    for word in file.read().split():
                        yield int(word), step
        return
    for pid in descendants(supervisor) if supervisor else ():
        words = environment(pid)
        if "SLURM_JOB_ID" in words:
            step = words.get("SLURM_STEP_ID", "") if "SLURM_STEP_NODELIST" in words else ""
            number = _number(step, STEP_MAX)
            yield pid, SCRIPT if number is None else number


def _number(word, most):
    """None: it is none, or larger."""
    if not word.isdecimal() or len(word) > len(str(most)):
        return None
    number = int(word)
    return number if number <= most else None


def _step_of_folder(name):
    """None: neither the script nor a step."""
    if name == ".":
        return SCRIPT
    kind, _, number = name.partition("_")
    return _number(number, STEP_MAX) if kind == "step" else None


def _rank(pid, known):
    """By its environment, or its nearest ancestor's that has one."""
    passed = []
    for _ in range(ANCESTORS):
        if pid <= 1:
            break
        if pid in known:
            return known[pid]
        passed.append(pid)
        rank = _number(environment(pid).get("SLURM_PROCID", ""), rm_step_used.RANKS)
        if rank is not None:
            known.update(dict.fromkeys(passed, rank))
            return rank
        stat = _stat(pid)
        pid = int(stat[1]) if stat else 0
    known.update(dict.fromkeys(passed))
    return None


def environment(pid):
    words = environment_of(pid, ENVIRONMENT_BYTES).decode("utf-8", "surrogateescape").split("\0")
    return dict(word.split("=", 1) for word in words if "=" in word and not word.startswith("="))


def _stat(pid):
    """The words of /proc/PID/stat from the state on. Source: proc_pid_stat(5), fields 3 and later."""
    with contextlib.suppress(OSError), open("/proc/%d/stat" % pid, "rb") as file:
        return file.read().rpartition(b")")[2].split()
    return []


def _numbers(pid):
    stat = _stat(pid)
    if len(stat) < 22:
        return None
    tick_us = 1_000_000 // os.sysconf("SC_CLK_TCK")
    user, system, user_of_children, system_of_children = (int(word) * tick_us for word in stat[11:15])
    disks = {}
    with contextlib.suppress(OSError), open("/proc/%d/io" % pid) as file:
        disks = dict(line.split(": ") for line in file.read().splitlines())
    return [user + user_of_children, system + system_of_children, int(stat[21]) * os.sysconf("SC_PAGE_SIZE"),
            int(disks.get("read_bytes", 0)), int(disks.get("write_bytes", 0))]  # fmt: skip
