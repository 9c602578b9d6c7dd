"""`sshare`: no priority comes from shares, so that there is nothing to show."""

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
        "What somebody has used changes no priority here.",
        "`rmx account show` lists the shares, `sprio` priorities of waiting jobs, `sacct` what ran.",
    )
