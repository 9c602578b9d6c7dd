"""`srun`: inside a job the job's own, which its host provides; outside of one `rmx run`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from rm.errors import UsageError
from rm.submission import directives
from rm.submission.options import FLAG, MAYBE, Option

OWN = {
    "pty": Option("pty", ("pty",), takes=FLAG),
    "label": Option("label", ("label",), "l", takes=FLAG),
    "unbuffered": Option("unbuffered", ("unbuffered",), "u", takes=FLAG),
    "kill-on-bad-exit": Option("kill_on_bad_exit", ("kill-on-bad-exit",), "K", takes=MAYBE),
}


def _in_new_job(words: Sequence[str]) -> int:
    from rm.cli.jobs.run import How, run_command
    from rm.cli.session import Session

    given, command = directives.leading_options(words, "a flag", OWN)
    flags = {option.key: value for option, value in given}
    kills = flags.pop("kill_on_bad_exit", None)
    how = How(
        terminal=bool(flags.pop("pty", False)),
        label=bool(flags.pop("label", False)),
        kill_on_bad_exit=kills is not None and kills not in ("0", "no"),
        quiet=bool(flags.pop("quiet", False)),
    )
    if flags.pop("unbuffered", False) and not how.terminal:
        raise UsageError("srun outside of a job takes no --unbuffered.", "Use stdbuf, or --pty.")
    return run_command(Session(None, None), flags, how, command)


def run(words: Sequence[str]) -> int:
    if not os.environ.get("SLURM_JOB_ID"):
        return _in_new_job(words)
    # a script that puts our directory before the job's own comes here
    ours = os.path.dirname(os.path.realpath(sys.argv[0]))
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        program = os.path.join(folder, "srun")
        if os.access(program, os.X_OK) and os.path.dirname(os.path.realpath(program)) != ours:
            os.execv(program, ["srun", *words])
    raise UsageError(
        "This job's host has no srun.", "Its agent provides it: upgrade the agents of the hosts."
    )
