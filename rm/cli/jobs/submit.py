"""`rmx submit`: script, directives and flags to a job; the client path, so nothing heavy is imported."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

import click

from rm.cli.jobs.clusters import own_cluster
from rm.cli.jobs.quick_submit import say_where_the_log_is
from rm.cli.output import note
from rm.cli.session import Session, completes, emit_json, json_option
from rm.client import submission
from rm.errors import UsageError
from rm.submission import directives
from rm.submission import options as table
from rm.submission.batch import Source, Submitter, batch_job
from rm.submission.remarks import Remarks
from rm.submission.script import SCRIPT_MAX_BYTES, read_script, script_text
from rm.submission.typed import submit_line

TYPED = "rm.typed"  # of click's context: the command's words
COMPLETED = {"partition": "partitions", "nodelist": "hosts", "exclude": "hosts"}  # by the daemon's words
OWN = {
    "wrap": table.Option("wrap", ("wrap",)),
    "file": table.Option("file", ("file",)),
    "json": table.Option("json", ("json",), takes=table.FLAG),
}


def job_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """The table's options as click options; unsupported ones are hidden, so that they can be refused by
    name."""
    for option in reversed(table.ALL):
        names = [f"--{name}" for name in option.long]
        if option.short:
            names.insert(0, f"-{option.short}")
        hidden = bool(option.support)
        if option.takes == table.FLAG:
            if option.off:
                names[-1] += f"/--{option.off}"
            add = click.option(
                option.key, *names, is_flag=True, default=None, help=option.help, hidden=hidden
            )
        elif option.takes == table.MAYBE:
            add = click.option(option.key, *names, is_flag=False, flag_value="", default=None, hidden=hidden)
        else:
            what = COMPLETED.get(option.key)
            add = click.option(
                option.key, *names, help=option.help, metavar=option.metavar, hidden=hidden,
                shell_complete=completes(what) if what else None,
            )  # fmt: skip
        command = add(command)
    return command


class JobCommand(click.Command):
    """click would take the word after an option with an optional value for that value, and tell of the first
    mistake alone. `more`: the command's options that are not the job's."""

    more: Mapping[str, table.Option] = OWN

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = ctx.meta[TYPED] = tuple(args)
        try:
            return super().parse_args(ctx, directives.with_optional_values(args, self.more))
        except (click.NoSuchOption, click.BadOptionUsage) as error:
            from rm.cli.jobs import mistakes

            mistakes.refuse(words, self.more, UsageError(error.format_message()))
            raise


def typed_line(program: str) -> str:
    """What was typed behind the name of this command."""
    return submit_line(program, click.get_current_context().meta[TYPED])


@click.command(
    cls=JobCommand, context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False}
)
@job_flags
@click.option("--wrap", metavar="COMMAND", help="Submit this command instead of a script.")
@click.option("--file", "file_option", metavar="SCRIPT", help="The same as SCRIPT.")
@json_option
@click.argument("script", required=False)
@click.argument("script_args", nargs=-1, metavar="[ARG]...")
@click.pass_obj
def submit(
    session: Session,
    /,
    wrap: str | None,
    file_option: str | None,
    as_json: bool,
    script: str | None,
    script_args: tuple[str, ...],
    **flags: Any,
) -> int:
    """Submit SCRIPT with its arguments as a batch job.

    Lines of SCRIPT that begin with #RM or #SBATCH hold options, too. Flags beat SBATCH_... in the
    environment, these beat #RM, #RM beats #SBATCH. Without SCRIPT the standard input is the script.
    """
    if file_option is not None and script is not None:
        script_args = (script, *script_args)  # --file=SCRIPT ARG...
    remarks = Remarks()
    text, name, options = _source(wrap, file_option or script, remarks)
    by = Submitter.here()
    file = file_option or script
    source = Source(
        typed_line("rmx submit"), file if wrap is None and file is not None and file != "-" else ""
    )
    spec, values = batch_job(text, name, script_args, options, flags, by, remarks, source)
    for warning in remarks.warnings:
        note(f"Warning: {warning}")
    remarks.refuse()
    if asked := values.get("clusters"):
        own_cluster(asked, session.client)
    if values.get("test_only"):
        from rm.cli.jobs.why import show_plan

        return show_plan(session.client.plan(spec), as_json)
    job = submission.submit(session.connection, spec)
    if as_json:
        emit_json({"job": job})
    else:
        click.echo(str(job) if values.get("parsable") else f"Submitted batch job {job}")
    say_where_the_log_is(session.connection.address, spec, job)
    if values.get("wait"):
        from rm.arrays import JobId
        from rm.cli.jobs.wait import wait_for

        sys.stdout.flush()
        return wait_for(session, [JobId(job)])
    return 0


def _source(wrap: str | None, file: str | None, remarks: Remarks) -> tuple[str, str, dict[str, Any]]:
    """The script's text, the job's default name, and the directives' options."""
    if wrap is not None:
        if not wrap.strip():
            raise UsageError("--wrap is empty.", "Write: rmx submit --wrap 'COMMAND'.")
        if file is not None:
            raise UsageError("--wrap and a script are mutually exclusive.", "Keep one of them.")
        return f"#!/bin/sh\n# made by --wrap\n{wrap}\n", "wrap", {}
    if file is None or file == "-":
        if file is None and sys.stdin.isatty():
            raise UsageError(
                "No script is named.", "Write: rmx submit SCRIPT, or rmx submit --wrap 'COMMAND'."
            )
        shown, name = "the standard input", "stdin"
        text = script_text(sys.stdin.buffer.read(SCRIPT_MAX_BYTES + 1), None)
    else:
        shown, name = file, os.path.basename(file) or file
        text = read_script(file)
    return text, name, directives.parse(text, shown, remarks)
