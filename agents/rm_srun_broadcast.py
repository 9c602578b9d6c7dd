"""srun --bcast[=PATH]: the program of a step is copied to each of its hosts, and runs from there.

Source: srun(1) of Slurm 22.05. The copy stays, as there.
"""

import os
import shutil
import subprocess

import rm_sbcast
from rm_srun_options import Wrong


def broadcast(target, command, created, chdir, environ):
    """The command of each rank of the step, which runs the copy. `target` is "" for Slurm's name in `chdir`,
    where the tasks begin; so is the name in a directory, with a / at the end."""
    source = shutil.which(command[0], path=environ.get("PATH", os.defpath))
    if source is None:
        raise Wrong("--bcast: the program %s is not found." % command[0])
    target, how = os.path.join(chdir, target), rm_sbcast.REPLACE
    if target.endswith("/"):
        target += "slurm_bcast_%s.%d_" % (environ.get("SLURM_JOB_ID", ""), created["step"])
        how = rm_sbcast.OF_HOST
    hosts = {rank: part["host"] for part in created["parts"] for rank in part["ranks"]}
    with open(source, "rb") as file:
        words = rm_sbcast.step_words(sorted(set(hosts.values())), target, os.fstat(file.fileno()), how)
        if subprocess.call(words, stdin=file, env=rm_sbcast.without_own(environ)):
            raise Wrong("--bcast: %s is not on every host of the step." % source)
    ends = {rank: host if how == rm_sbcast.OF_HOST else "" for rank, host in hosts.items()}
    return [[target + ends[rank], *command[1:]] for rank in sorted(ends)]
