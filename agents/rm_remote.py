"""What the launchers of MPI call in place of ssh: a command on another host of the job, as a step there.

    rm-remote [OPTIONS of ssh] HOST COMMAND...

No key and no sshd is needed: the command has the job's user, environment and control group, and ends with
this program. rm_mpi.py says how the launchers find it.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import rm_srun
import rm_srun_options
from rm_mpi import PROGRAM

WITH_VALUE = "BbcDEeFIiJLlmOoPpQRSWw"  # options of ssh(1), whose values stand apart or behind them
SHELLS = ("bash", "csh", "dash", "fish", "ksh", "sh", "tcsh", "zsh")
# the step's one task is a launcher, and what it starts has ranks of its own
NOT_THEIRS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "RM_RANK")


def parsed(words):
    """(host, command, whether it has input) of a command line of ssh. rm_srun_options.Wrong if it is none."""
    has_input, n = True, 0
    while n < len(words) and words[n].startswith("-") and len(words[n]) > 1:
        if words[n] == "--":
            n += 1
            break
        letters = words[n][1:]
        for at, letter in enumerate(letters):
            has_input = has_input and letter != "n"
            if letter in WITH_VALUE:
                n += at == len(letters) - 1
                break
        n += 1
    host, command = (words[n : n + 1] or [""])[0], " ".join(words[n + 1 :])
    if not host or not command:
        raise rm_srun_options.Wrong(
            "write a host of the job and a command: %s HOST COMMAND. A session is not opened." % PROGRAM
        )
    return host.rpartition("@")[2], command, has_input


def program_of(command):
    """What the step is called: what the launcher starts after it has set variables, without its directory."""
    found = [word.strip("\"'") for word in command.rpartition(";")[2].split() if "=" not in word]
    return os.path.basename(found[0]) if found and os.path.basename(found[0]) else PROGRAM


def main(words):
    environ = dict(os.environ)
    if words[:1] and words[0].startswith("--"):  # mpiexec -launcher slurm calls it in place of srun
        return rm_srun.main(words)
    try:
        host, command, has_input = parsed(words)
        options = ["--overlap", "--quiet", "--nodes=1", "--ntasks=1", "--nodelist=" + host, "--export=ALL"]
        options += [] if has_input else ["--input=none"]
        given = {name: value for name, value in environ.items() if name not in rm_srun_options.VARIABLES}
        values, _ = rm_srun_options.parsed(options, given, rm_srun.say)
        values["job-name"] = program_of(command)
        shell = environ.get("SHELL", "")
        if os.path.basename(shell) not in SHELLS:  # nologin, of an account that only runs jobs
            shell = "/bin/sh"
        unset = [word for name in NOT_THEIRS for word in ("-u", name)]
        typed = " ".join([PROGRAM, *words])
        return rm_srun.run(values, ["env", *unset, shell, "-c", command], environ, typed)
    except rm_srun_options.Wrong as error:
        sys.stderr.write("%s: %s\n" % (PROGRAM, error))
        return 255  # as ssh, which leaves all others to the command


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
