"""scontrol inside a job of rm: what scripts ask it there, without a way to the daemon.

scontrol show hostnames [LIST]      one name a line; without a list the job's hosts
scontrol show hostlist NAMES        the short form of names with commas between
scontrol requeue ID                 of the job itself

The rest is for another scontrol in PATH, such as the one that `rmx slurm-shims` writes.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from rm_iteration import requeue
from rm_step_plan import expanded, folded_hosts

LISTS = (["show", "hostnames"], ["show", "hostname"], ["show", "hostlist"])


def main(words):
    if words[:2] in LISTS and len(words) <= 3:
        return show(words[1], words[2] if len(words) > 2 else os.environ.get("SLURM_JOB_NODELIST", ""))
    if words[:1] == ["requeue"] and len(words) == 2 and words[1] in own_ids() and requeue():
        return 0
    return another(words)


def show(what, text):
    try:
        names = expanded(text)
    except ValueError as error:
        sys.stderr.write("scontrol: %s.\n" % error)
        return 1
    sys.stdout.write("\n".join(names if what != "hostlist" else [folded_hosts(names)]) + "\n")
    return 0


def own_ids():
    """An element of an array has two."""
    array, task = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    return {os.environ.get("SLURM_JOB_ID"), "%s_%s" % (array, task) if array and task else None} - {None}


def another(words):
    """The next scontrol in PATH that is not this one."""
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        program = os.path.join(folder, "scontrol")
        try:
            if os.access(program, os.X_OK) and not is_this(program):
                os.execv(program, ["scontrol", *words])
        except OSError as error:  # such as one of a shared directory, whose interpreter this host lacks
            sys.stderr.write("scontrol: %s cannot be started here: %s.\n" % (program, error.strerror))
    sys.stderr.write("scontrol: inside a job rm knows show hostnames, show hostlist, requeue of itself.\n")
    return 1


def is_this(program):
    """Does the program only start this file?"""
    with open(program, "rb") as file:
        return os.path.basename(__file__).encode() in file.read(4096)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
