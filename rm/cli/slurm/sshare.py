"""`sshare`: there is no fair share to show."""

from __future__ import annotations

from collections.abc import Sequence

from rm.cli.slurm.words import Options
from rm.errors import Conflict

OPTIONS = Options(taken=())


def run(words: Sequence[str]) -> int:
    """Whatever is asked for.

    Raises:
        Conflict: always.
    """
    raise Conflict(
        "rm keeps no shares: there are no accounts, and what somebody has used changes no priority.",
        "`sprio` lists the priorities of waiting jobs, `sacct` what ran.",
    )
