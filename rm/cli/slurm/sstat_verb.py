"""`rmx sstat`: Slurm's command of that name, for those who have not written the others into a directory."""

from __future__ import annotations

import click


@click.command(
    "sstat", context_settings={"ignore_unknown_options": True, "help_option_names": ["-h", "--help"]}
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def sstat(ctx: click.Context, /, words: tuple[str, ...]) -> None:
    """Show what running jobs and their steps use so far.

    The options are those of Slurm's sstat: -j JOB[.STEP],…, -a, -o FIELDS, -n, -p, -P, -e.
    """
    from rm.cli.slurm.accounting.sstat import run

    ctx.exit(run(words))
