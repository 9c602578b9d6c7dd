"""Which processes of an attempt get a signal. As in Slurm: the steps, unless the script is asked for."""

import contextlib
import os
import signal

STEPS, SCRIPT, ALL = "steps", "script", "all"


def receivers(processes, first, batch, number, to, programs):
    """`first` are the first processes of the tasks; where the script runs once (`batch`), the script's own.
    `programs` is the folder of srun.

    srun gets none, for it would pass it on to tasks that have it already. SIGKILL for the steps ends all, as
    in Slurm.
    """
    if to == SCRIPT:
        return first
    if number == signal.SIGKILL:
        return processes
    spared = set(first) if batch and to == STEPS else ()
    return [pid for pid in processes if pid not in spared and not _is_below(pid, programs)]


def _is_below(pid, programs):
    """Does it run a program of that folder?"""
    with contextlib.suppress(OSError), open("/proc/%d/cmdline" % pid, "rb") as file:
        start = os.path.join(programs, "").encode()
        return any(word.startswith(start) for word in file.read(4096).split(b"\0")[:6])
    return False
