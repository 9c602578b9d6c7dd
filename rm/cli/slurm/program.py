"""Where Slurm's commands begin, each a file of its name that `rmx slurm-shims` writes."""

from __future__ import annotations

import os
import sys

from rm.cli.ending import ended, leave
from rm.cli.output import note, speak_as
from rm.cli.start import prepare_streams
from rm.errors import RmError

PROGRAMS = {  # and where each is, below `rm.cli.slurm`
    "sbatch": "sbatch",
    "squeue": "queue.squeue",
    "scancel": "queue.scancel",
    "scontrol": "control.scontrol",
    "sinfo": "hosts.sinfo",
    "sacct": "accounting.sacct",
    "srun": "srun",
    "salloc": "salloc",
    "sattach": "sattach",
    "sprio": "queue.sprio",
    "sshare": "accounting.sshare",
    "sacctmgr": "accounting.sacctmgr",
    "sreport": "accounting.sreport",
    "sstat": "accounting.sstat",
    "seff": "accounting.seff",
}
ABSENT = {  # those of Slurm's that have no counterpart, and what does nearly the same
    "strigger": "--mail-type tells of a job's events, --dependency starts a job at the end of another, and "
    "alerts tell of hosts.",
    "scrontab": "Call sbatch from cron, or let a job submit the next one with --begin.",
    "sdiag": "`rmx status` tells of the daemon, and its metrics do.",
}
SLURM = "slurm 22.05.8"  # with which these were compared; three numbers, as programs parse them
OWN_CODE = ("sbatch", "srun", "salloc")  # whose code the user may choose, by SLURM_EXIT_ERROR
HELPED = (*OWN_CODE, "scontrol", "sacct", "sattach")  # by -h, which is --noheader of the others
CODE_DIGITS = 7
FAILED = 1  # whatever it was: scripts for Slurm know no other code


def main(name: str) -> int:
    code = command_line(name)
    leave(code)
    return code


def command_line(name: str) -> int:
    prepare_streams()
    speak_as(name)
    return ended(lambda: run(name, sys.argv[1:]))


def usage(name: str) -> str:
    return f"Usage: {name} [OPTION]...  as Slurm's; docs/slurm-commands.md of rm says what differs"


def run(name: str, words: list[str]) -> int:
    if words in (["--version"], ["-V"]):
        from rm import __version__

        print(f"{SLURM} by rm {__version__}")
        return 0
    if words in (["--help"], ["--usage"]) or (words == ["-h"] and name in HELPED):
        print(usage(name))
        return 0
    if name in ABSENT:
        note(f"error: rm has no {name}. {ABSENT[name]}")
        return FAILED
    try:
        code: int = __import__(f"rm.cli.slurm.{PROGRAMS[name]}", fromlist=["run"]).run(words)
    except RmError as error:
        from rm.cli.slurm.refusals import BAD_OPTION, is_bad_option

        note(f"error: {error}")
        if name in OWN_CODE and is_bad_option(error):
            return BAD_OPTION
        chosen = os.environ.get("SLURM_EXIT_ERROR", "") if name in OWN_CODE else ""
        good = chosen.isdecimal() and len(chosen) <= CODE_DIGITS
        return int(chosen) & 255 or FAILED if good else FAILED  # as in Slurm, 0 has no effect
    return code
