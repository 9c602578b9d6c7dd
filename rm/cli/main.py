"""`rmx` by click. Commands are loaded when they are called, so that none waits for another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import click

from rm.cli.ending import ended
from rm.cli.lazy import LazyGroup, Verbs
from rm.cli.output import note
from rm.cli.session import Session
from rm.errors import UsageError

# verb -> (module, attribute, what it does); the verbs that `rm VERB` takes come first
JOB_VERBS = {
    "submit": ("rm.cli.jobs.submit", "submit", "Submit a batch job."),
    "queue": ("rm.cli.jobs.queue", "queue", "List jobs."),
    "show": ("rm.cli.jobs.show", "show", "Show one job's whole story."),
    "why": ("rm.cli.jobs.why", "why", "Say why a job waits, or why it runs where it runs."),
    "logs": ("rm.cli.jobs.logs", "logs", "Read or follow a task's output."),
    "wait": ("rm.cli.jobs.wait", "wait", "Wait for jobs to end; exit with their code."),
    "cancel": ("rm.cli.jobs.change", "cancel", "Cancel jobs, or send them a signal."),
    "hold": ("rm.cli.jobs.change", "hold", "Keep pending jobs from starting."),
    "release": ("rm.cli.jobs.change", "release", "Let held jobs start."),
    "requeue": ("rm.cli.jobs.change", "requeue", "Stop jobs and put them back into the queue."),
    "iterations": ("rm.cli.jobs.show", "iterations", "Show a job's measured iterations."),
    "hosts": ("rm.cli.hosts.hosts", "hosts", "List hosts."),
    "links": ("rm.cli.network.network", "links", "List links and how the jobs share them."),
    "network": ("rm.cli.network.network", "network", "Show the measured network."),
    "status": ("rm.cli.status", "status", "Show the daemon's state."),
}
OTHER_VERBS = {
    "run": ("rm.cli.jobs.run", "run", "Run a command in a job, with this terminal."),
    "alloc": ("rm.cli.jobs.alloc", "alloc", "Hold an allocation while a command runs here."),
    "shell": ("rm.cli.jobs.enter", "shell", "Open a shell in a running job."),
    "attach": ("rm.cli.jobs.enter", "attach", "Attend a job of `rmx run` again, or a step that runs."),
    "forward": ("rm.cli.jobs.forward", "forward", "Connect to a port of a running job's host."),
    "suspend": ("rm.cli.jobs.change", "suspend", "Let running jobs stand still."),
    "resume": ("rm.cli.jobs.change", "resume", "Let suspended jobs go on."),
    "sstat": ("rm.cli.slurm.sstat_verb", "sstat", "Show what running jobs and their steps use so far."),
    "set": ("rm.cli.jobs.set", "set_fields", "Change a job that has been submitted."),
    "host": ("rm.cli.hosts.hosts", "host", "Add, drain, resume and remove hosts; accept their keys."),
    "account": ("rm.cli.account", "account", "Share the cluster among accounts."),
    "usage": ("rm.cli.usage", "usage", "Show what jobs used, by account, user, QOS, partition or host."),
    "qos": ("rm.cli.qos", "qos", "Give classes of jobs limits, priority and a price."),
    "partition": ("rm.cli.partition", "partition", "Give partitions times, limits, tiers and states."),
    "reservation": (
        "rm.cli.hosts.reservation",
        "reservation",
        "Keep hosts for some users, or for maintenance.",
    ),
    "monitor": (
        "rm.cli.network.monitor",
        "monitor",
        "Show, run and pause the meshes that measure the network.",
    ),
    "alerts": (
        "rm.cli.network.alerts",
        "alerts",
        "List what is wrong now, and what was; acknowledge, silence.",
    ),
    "token": ("rm.cli.token", "token", "Make, list and revoke tokens for the HTTPS door."),
    "audit": ("rm.cli.audit", "audit", "Show who did what, from where."),
    "daemon": ("rm.cli.daemon", "daemon", "Run the daemon."),
    "web": ("rm.cli.web", "web", "Serve the page about jobs, links and the network."),
    "backup": ("rm.cli.backup", "backup", "Copy the daemon's database to a file."),
    "restore": ("rm.cli.backup", "restore", "Put a backup in the database's place."),
    "upgrade": ("rm.cli.backup", "upgrade", "Upgrade the database, or say what that needs."),
    "config": ("rm.cli.config_show", "config", "Show and check the configuration, and where it comes from."),
    "check": ("rm.cli.hosts.check", "check", "Look at the hosts of a new cluster, and say what to mend."),
    "playbook": ("rm.cli.playbook.playbook", "playbook", "Run a playbook on hosts."),
    "lab": ("rm.cli.lab", "lab", "Make hosts on this machine to try rm on."),
    "sim": ("rm.cli.sim.sim", "sim", "Simulate: the papers' results, and experiments of your own."),
    "interleave": ("rm.cli.sim.interleave", "interleave", "Find time-shifts for jobs that share links."),
    "demo": ("rm.cli.demo", "demo", "See it all work, on this machine."),
    "slurm-shims": (
        "rm.cli.slurm.install",
        "slurm_shims",
        "Write sbatch, squeue … to a directory.",
    ),
    "shell-init": ("rm.cli.shell_init", "shell_init", "Print the shell hook for `rm VERB`."),
}
VERBS = JOB_VERBS | OTHER_VERBS
FEW = 6  # options of a command that a message names


class _Commands(LazyGroup):
    sections: ClassVar[Mapping[str, Verbs]] = {
        "Jobs and what they see": JOB_VERBS,
        "Administration": OTHER_VERBS,
    }

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in VERBS:
            from rm.cli.other_words import hint

            raise UsageError(f"There is no command '{args[0]}'.", hint(args[0], VERBS))
        return super().resolve_command(ctx, args)


def _version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        from rm import __version__

        click.echo(f"rmx {__version__}")
        ctx.exit()


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--socket", metavar="PATH", help="The daemon's Unix socket.")
@click.option("--config", metavar="FILE", help="The rm.toml to read.")
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Show the version."
)
@click.pass_context
def rmx(ctx: click.Context, socket: str | None, config: str | None) -> None:
    """rm, a network-aware batch resource manager for GPU hosts."""
    ctx.obj = session = Session(socket, config)
    ctx.call_on_close(session.close)


def refuse_what_rm_would_delete(words: Sequence[str]) -> None:
    """`rm VERB` takes options with = only: handed to the real rm they delete nothing.

    A bare word would be a file to delete wherever the hook is missing, and so would the value
    of `--file train.sh` be under POSIXLY_CORRECT.
    """
    verb = words[0] if words else ""
    if verb not in JOB_VERBS:
        raise UsageError(f"'{verb}' is not a verb of `rm`.", f"Write: rmx {verb}")
    for word in words[1:]:
        if not word.startswith("--") or word == "--":
            operand = "file" if verb == "submit" else "job"
            value = word if not word.startswith("-") and word else operand.upper()
            raise UsageError(
                f"`rm {verb} {word}` is refused: where the shell hook is missing, rm would delete '{word}'.",
                f"Write: rm {verb} --{operand}={value}   or: rmx {verb} {word}",
            )


def run(words: Sequence[str]) -> int:
    """One command line to its exit code; errors go to standard error."""
    return ended(lambda: _run(list(words)))


def _run(words: list[str]) -> int:
    if words[:1] == ["--as-rm"]:
        refuse_what_rm_would_delete(words[1:])
        del words[0]
    try:
        code = rmx.main(words, prog_name="rmx", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 0
    except click.ClickException as error:
        note(_sentence(error))
        return error.exit_code
    except click.Abort:
        raise KeyboardInterrupt from None
    return code if isinstance(code, int) else 0


def _sentence(error: click.ClickException) -> str:
    text = error.format_message()
    ctx = getattr(error, "ctx", None)
    if ctx is None:
        return text
    if isinstance(error, click.NoSuchOption) and not error.possibilities:
        options = [p.opts[-1] for p in ctx.command.params if isinstance(p, click.Option)]
        if 0 < len(options) <= FEW:
            return f"{text} Options: {', '.join(options)}; `{ctx.command_path} --help` explains them."
    return f"{text} `{ctx.command_path} --help` shows the options."
