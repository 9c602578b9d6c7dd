"""How a job's script is launched: once for each task, or once, on the first host, as by Slurm's sbatch.

A script that starts its tasks itself (by `srun`, `mpirun` …), or other jobs, must run once; one that is the
program of a task must run once for each. `auto` tells them apart by the launchers that the script names, and
the clients of the queue; nothing else is looked at. docs/slurm.md says why.
"""

from __future__ import annotations

import re

TASKS, BATCH, AUTO = "tasks", "batch", "auto"
LAUNCHES = (TASKS, BATCH, AUTO)

# what starts tasks on all hosts of a job, or asks the daemon, and what starts the processes of one host
_OVER_HOSTS = ("srun", "mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prun", "prterun", "deepspeed",
               "horovodrun", "sbcast", "sbatch", "squeue", "scancel", "sacct", "sinfo",
               "scontrol")  # fmt: skip
_ON_A_HOST = ("torchrun", "accelerate", "torch.distributed.run", "torch.distributed.launch")
_COMMENT = re.compile(r"(?:^|(?<=\s))#.*", re.MULTILINE)


def _naming(programs: tuple[str, ...]) -> re.Pattern[str]:
    """One of these words, alone or at the end of a path."""
    words = "|".join(map(re.escape, sorted(programs, key=len, reverse=True)))
    return re.compile(rf"(?<![\w.$-])(?:{words})(?![\w.=/-])")


_OVER, _ON = _naming(_OVER_HOSTS), _naming(_ON_A_HOST)
_SOME = (*_OVER_HOSTS, *_ON_A_HOST)


def launch_of(asked: str, script: str, hosts_max: int) -> str:
    """`asked`, but `auto` decided. `hosts_max` is 1 for a job that asks for one host."""
    if asked != AUTO:
        return asked
    if not any(name in script for name in _SOME):  # most scripts, for a fraction of the patterns' price
        return TASKS
    said = _COMMENT.sub("", script)
    return BATCH if _OVER.search(said) or (hosts_max == 1 and _ON.search(said)) else TASKS
