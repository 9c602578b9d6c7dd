"""`salloc`: as `rmx alloc`, with Slurm's messages, which are the same."""

from __future__ import annotations

from collections.abc import Sequence

from rm.cli.jobs.alloc import OWN, allocate, how_of
from rm.cli.session import Session
from rm.cli.slurm.refusals import no_parts, refused
from rm.submission import directives
from rm.submission.typed import submit_line


def run(words: Sequence[str]) -> int:
    given, command = directives.leading_options(words, "a flag", OWN, abbreviated=True)
    no_parts(command[:1])
    flags = {option.key: value for option, value in given}
    how = how_of(
        no_shell=bool(flags.pop("no_shell", False)),
        immediate=flags.pop("immediate", None),
        kill_command=flags.pop("kill_command", None),
        quiet=bool(flags.pop("quiet", False)),
        bell=bool(flags.pop("bell", False)),
    )._replace(line=submit_line("salloc", words))
    with refused("Job submit/allocate failed", submits=False):
        return allocate(Session(None, None), flags, how, command)
