"""Which processes of an attempt get a signal. As in Slurm: the steps, unless the script is asked for."""

import contextlib
import os
import signal

STEPS, SCRIPT, ALL = "steps", "script", "all"
_PROGRAMS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "rm_").encode()


def receivers(processes, first, batch, number, to):
    """`first` are the first processes of the tasks; where the script runs once (`batch`), the script's own.

    srun gets none, for it would pass it on to tasks that have it already. SIGKILL for the steps ends all, as
    in Slurm.
    """
    if to == SCRIPT:
        return first
    if number == signal.SIGKILL:
        return processes
    spared = set(first) if batch and to == STEPS else ()
    return [pid for pid in processes if pid not in spared and not _is_ours(pid)]


def _is_ours(pid):
    """Does it run one of rm's programs?"""
    with contextlib.suppress(OSError), open("/proc/%d/cmdline" % pid, "rb") as file:
        return any(word.startswith(_PROGRAMS) for word in file.read(4096).split(b"\0")[:6])
    return False
