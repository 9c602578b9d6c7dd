"""`rmx playbook`: run Ansible-language playbooks on the hosts of an inventory.

Exit codes of `run`: 0 all done, 2 a task failed on a host (or the playbook is wrong: nothing was touched),
4 a host was unreachable, 130 interrupted.
"""

from __future__ import annotations

import getpass
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rm.cli.groups import Group
from rm.cli.output import note, printable
from rm.cli.playbook import text
from rm.cli.playbook.ask import Terminal
from rm.cli.playbook.given import (
    Fleet,
    extra_variables,
    fleet_of,
    playbook_path,
    vault_of,
    words,
)
from rm.cli.playbook.lines import Lines
from rm.cli.playbook.login import Login, login_options
from rm.cli.playbook.queue_daemon import QueueDaemon
from rm.cli.playbook.reports import report, runs, start
from rm.cli.session import Session, emit_json, json_option, table
from rm.collector import made_to_stay
from rm.errors import RmError, UsageError
from rm.playbook.model.connection import passwords_of
from rm.units import format_count

if TYPE_CHECKING:
    from rm.cli.playbook.telling import Telling

Tell = Callable[[Any], None]  # shows an event
Ask = Callable[[str, bool, threading.Event], str]
Quiet = Callable[[], AbstractContextManager[None]]  # entered while something is asked
FAILED, UNREACHABLE, INTERRUPTED = 2, 4, 130
FORKS = 16


@click.group(cls=Group)
def playbook() -> None:
    """Run a playbook on hosts, over SSH."""


@playbook.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List the playbooks that come with rm; `run` takes their names."""
    from rm.adapters.playbook.shipped import shipped_directory

    found = []
    for path in sorted(shipped_directory("playbooks").glob("*.yml")):
        if path.stem.endswith(".survey"):  # of the playbook beside it
            continue
        first = path.read_text(encoding="utf-8").partition("\n")[0]
        found.append({"name": path.stem, "about": first.lstrip("# ").strip(), "path": str(path)})
    if as_json:
        emit_json({"playbooks": found})
    else:
        table(("PLAYBOOK", "WHAT IT DOES"), [(one["name"], one["about"]) for one in found])


@playbook.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option(
    "--vault-password-file", "--vault-id", "vault_password_file", multiple=True, metavar="[NAME@]FILE",
    help="The vault password; prompt or NAME@prompt asks.",
)  # fmt: skip
@click.option("--ask-vault-pass", is_flag=True, help="Ask for the vault's password.")
@click.option("-e", "--extra-vars", multiple=True, metavar="VARS", help="name=value …, {JSON} or @FILE.")
@json_option
def check(
    files: Sequence[str], vault_password_file: Sequence[str], ask_vault_pass: bool,
    extra_vars: Sequence[str], as_json: bool,
) -> int:  # fmt: skip
    """List all problems of playbooks and roles: file, line, and what to write instead.

    FILE is a playbook as `run` takes it, or the directory of a role. Exit code 1: there are problems.
    """
    from rm.adapters.playbook.checking import Problem, problems_of
    from rm.adapters.playbook.files import LocalFiles
    from rm.adapters.playbook.shipped import shipped_directory
    from rm.cli.playbook.ansible_config import ansible_settings

    shipped = shipped_directory("playbooks")
    paths = [Path(name) if os.path.isdir(name) else playbook_path(name) for name in files]
    refused: list[UsageError] = []
    ansible = ansible_settings(os.environ, all(path.parent == shipped for path in paths), refused.append)
    vault = vault_of(vault_password_file or ansible.vault_files, ask_vault_pass or ansible.ask_vault_pass)
    local, given = LocalFiles(vault, ansible), extra_variables(extra_vars, vault)
    found = [Problem(ansible.source or "environment", 0, one.what, one.hint) for one in refused]
    found += dict.fromkeys(one for path in paths for one in problems_of(path, local, given))
    if as_json:
        emit_json({"problems": [asdict(one) for one in found]})
    else:
        for one in found:
            where = f"{one.file}:{one.line}" if one.line else one.file
            click.echo(f"{where}: {printable(f'{one.what} {one.hint}'.rstrip())}")
        count = format_count(len(found), "problem") if found else "no problems"
        click.echo(f"{', '.join(files)}: {count}.", err=True)
    return 1 if found else 0


@playbook.command()
@click.option(
    "-n", "--last", default=20, show_default=True, type=click.IntRange(1), help="The newest N runs."
)
@json_option
@click.pass_obj
def history(session: Session, /, last: int, as_json: bool) -> None:
    """Show who ran which playbook, when, with which result."""
    from rm.adapters.playbook.history import runs

    try:
        found = runs(_state(session))[-last:]
    except OSError as problem:
        raise UsageError(f"The history cannot be read: {problem}.") from None
    if as_json:
        emit_json({"runs": found})
        return
    rows = []
    for one in found:
        recap = one["recap"]
        failed = ",".join(one["failed_hosts"][:5]) + (",…" if len(one["failed_hosts"]) > 5 else "")
        name = Path(one["playbook"]).name + (" (check)" if one["check"] else "")
        rows.append(
            (one["began"][:19], one["by"], name, one["limit"] or "all", one["hosts"], one["result"],
             recap.get("changed", 0), recap.get("failed", 0), failed, f"{one['took_s']:.1f} s")
        )  # fmt: skip
    columns = (
        "BEGAN",
        "BY",
        "PLAYBOOK",
        "LIMIT",
        "HOSTS",
        "RESULT",
        "CHANGED",
        "FAILED",
        "FAILED HOSTS",
        "TOOK",
    )
    table(columns, rows, right=("HOSTS", "CHANGED", "FAILED", "TOOK"))


@playbook.command()
@click.argument("file", metavar="FILE")
@click.option(
    "-i", "--inventory", multiple=True, metavar="FILE",
    help="Ansible inventory: file, directory, or names with commas (default: the daemon's hosts).",
)  # fmt: skip
@click.option("-l", "--limit", metavar="PATTERN", help="Only these hosts and groups; @FILE names them.")
@click.option("-t", "--tags", multiple=True, metavar="TAGS", help="Only tasks with these tags.")
@click.option("--skip-tags", multiple=True, metavar="TAGS", help="No tasks with these tags.")
@click.option("-e", "--extra-vars", multiple=True, metavar="VARS", help="name=value …, {JSON} or @FILE.")
@click.option("-C", "--check", is_flag=True, help="Change nothing; say what would change.")
@click.option("-D", "--diff", is_flag=True, help="Show what changes in files.")
@click.option(
    "-f", "--forks", type=click.IntRange(1, 1024), help="Hosts at a time (default: ansible.cfg's, else 16)."
)
@click.option("--start-at-task", metavar="NAME", default="", help="Start at this task.")
@click.option(
    "--known-hosts", metavar="FILE", help="Accepted host keys (default: ssh.known_hosts of rm.toml)."
)
@click.option("--private-key", metavar="FILE", help="SSH identity for hosts that name none.")
@login_options
@click.option(
    "--vault-password-file", "--vault-id", "vault_password_file", multiple=True, metavar="[NAME@]FILE",
    help="The vault password; prompt or NAME@prompt asks.",
)  # fmt: skip
@click.option("--ask-vault-pass", is_flag=True, help="Ask for the vault's password.")
@click.option("--list-hosts", is_flag=True, help="Only list the hosts of each play.")
@click.option("--list-tasks", is_flag=True, help="Only list the tasks.")
@click.option("--list-tags", is_flag=True, help="Only list the tags.")
@click.option("--syntax-check", is_flag=True, help="Only read the playbook; `check` lists all problems.")
@click.option("--step", is_flag=True, hidden=True)
@click.option("--no-record", is_flag=True, help="Let the daemon keep no report of this run.")
@click.option("-v", "--verbose", count=True, help="Also show skipped tasks, each item and each message.")
@json_option
@click.pass_obj
def run(
    session: Session,
    /,
    file: str,
    inventory: Sequence[str],
    limit: str | None,
    tags: Sequence[str],
    skip_tags: Sequence[str],
    extra_vars: Sequence[str],
    check: bool,
    diff: bool,
    forks: int | None,
    start_at_task: str,
    known_hosts: str | None,
    private_key: str | None,
    login: Login,
    vault_password_file: Sequence[str],
    ask_vault_pass: bool,
    list_hosts: bool,
    list_tasks: bool,
    list_tags: bool,
    syntax_check: bool,
    step: bool,
    no_record: bool,
    verbose: int,
    as_json: bool,
) -> int:
    """Run the playbook FILE (a path with `/`, `.yml` or `.yaml`, or the name of one that comes with rm).

    Progress goes to standard error, the recap to standard output.
    """
    with made_to_stay():  # a sixth of the time that all these modules take
        from rm.adapters.playbook.agents import DaemonAgents
        from rm.adapters.playbook.files import LocalFiles
        from rm.adapters.playbook.run import plan_of, run_playbook
        from rm.adapters.playbook.shipped import shipped_directory
        from rm.cli.playbook import retry
        from rm.cli.playbook.ansible_config import ansible_settings

    if step:
        raise UsageError(
            "--step is not possible: rm sends a host many tasks at once, so nobody can be asked before each.",
            "Use --check --diff, --start-at-task or --tags, or a task of the module 'pause'.",
        )
    path, taken = playbook_path(file), retry.opened(limit)
    ansible = ansible_settings(os.environ, path.parent == shipped_directory("playbooks"))
    login = login.with_settings(ansible)
    vault = vault_of(vault_password_file or ansible.vault_files, ask_vault_pass or ansible.ask_vault_pass)
    variables, files = extra_variables(extra_vars, vault), LocalFiles(vault, ansible)
    lists = list_hosts or list_tasks or list_tags
    if syntax_check:
        from rm.adapters.playbook.checking import check_syntax

        check_syntax(path, files, variables)
        emit_json({"playbook": file}) if as_json else click.echo(f"\nplaybook: {file}")
        if not lists:
            return 0
    fleet = fleet_of(session, inventory, known_hosts, private_key, vault, path, login, ansible)
    wanted, unwanted = words(tags) or ansible.tags, words(skip_tags) or ansible.skip_tags
    if lists:
        plan = plan_of(
            path, fleet.hosts, variables=variables, limit=taken, tags=wanted, skip_tags=unwanted, files=files
        )
        _list(plan, list_hosts, list_tasks, list_tags, as_json)
        return 0
    passwords = login.passwords()
    began, start = datetime.now().astimezone(), time.monotonic()
    about = {
        "playbook": str(path.resolve()), "variables": sorted(variables), "limit": limit or "",
        "tags": wanted, "skip_tags": unwanted, "check": check, "diff": diff or ansible.diff,
    }  # fmt: skip
    telling = None
    if not no_record and session.config.playbooks.record and _may_answer(session):
        from rm.cli.playbook.telling import Telling

        telling = Telling(session, about, vault.secrets, note if verbose else lambda why: None)
        telling.hide(passwords.become, passwords.login, *passwords_of([*fleet.variables.values(), variables]))
    with _progress(as_json, verbose > 0) as (show, quiet), _told(telling, show) as tell:
        report = run_playbook(
            path,
            fleet.hosts,
            fleet.settings,
            variables=variables,
            check=check,
            diff=diff or ansible.diff,
            limit=taken,
            tags=wanted,
            skip_tags=unwanted,
            forks=forks or ansible.forks or FORKS,
            progress=tell,
            start_at=start_at_task,
            files=files,
            agents=DaemonAgents(session.new_connection, note if verbose else lambda why: None),
            daemon=QueueDaemon(session),
            prompt=_hiding(Terminal(quiet).ask, telling) if sys.stdin.isatty() else None,
            inventory=fleet.variables,
            sources=fleet.sources,
            magic={**fleet.magic, "ansible_verbosity": verbose},
            become=login.become,
            become_user=login.become_user,
            passwords=passwords,
        )
        if telling is not None:
            telling.finish(report)
    _keep(session, fleet, report, began.isoformat(), time.monotonic() - start, limit or "", wanted, variables)
    if as_json:
        emit_json(text.as_object(report))
    else:
        text.recap(report)
    retry.tell(report, path, ansible)
    if report.interrupted:
        return INTERRUPTED
    if any(one.unreachable for one in report.recap().values()):
        return UNREACHABLE
    return 0 if report.ok else FAILED


@contextmanager
def _progress(as_json: bool, verbose: bool) -> Iterator[tuple[Tell, Quiet]]:
    """What shows progress, and what makes room for a question: a live view on a terminal, else lines."""
    if sys.stderr.isatty():
        from rm.cli.playbook.live import LiveView, wanted  # slow to load: only where it can be seen

        if wanted(os.environ, as_json):
            with LiveView(verbose) as view:
                yield view.tell, view.asking
            return
    with Lines(verbose) as lines:
        yield lines.tell, nullcontext


def _may_answer(session: Session) -> bool:
    """Could there be a daemon? Where its socket is missing, there is none."""
    try:
        address = session.address
    except RmError:
        return False
    return address.scheme != "unix" or os.path.exists(address.path)


@contextmanager
def _told(telling: Telling | None, show: Tell) -> Iterator[Tell]:
    """What shows progress, and tells the daemon of it; also how a run that an error ended went."""
    if telling is None:
        yield show
        return

    def tell(event: Any) -> None:
        show(event)
        telling.tell(event)

    try:
        yield tell
    except RmError as error:
        telling.finish(None, f"{error.what} {error.hint}".strip())
        raise
    except BaseException as error:
        telling.finish(None, f"It ended by {type(error).__name__}.")
        raise


def _hiding(ask: Ask, telling: Telling | None) -> Ask:
    """What is typed without being shown is no part of a report."""

    def asked(text: str, private: bool, stopping: threading.Event) -> str:
        said = ask(text, private, stopping)
        if private and telling is not None:
            telling.hide(said)
        return said

    return asked


def _list(plan: list[dict[str, Any]], hosts: bool, tasks: bool, tags: bool, as_json: bool) -> None:
    if as_json:
        emit_json({"plays": plan})
        return
    for play in plan:
        click.echo(f"play: {play['play']}")
        for host in play["hosts"] if hosts else ():
            click.echo(f"  host: {host}")
        for task in play["tasks"] if tasks else ():
            marks = f"  [{', '.join(task['tags'])}]" if task["tags"] else ""
            click.echo(
                f"  task: {task['name']}  ({task['module']}, {Path(task['file']).name}:{task['line']}){marks}"
            )
        if tags:
            click.echo(f"  tags: {', '.join(play['tags'])}")


def _state(session: Session) -> Path:
    return Path(session.config.daemon.state_dir)


def _keep(
    session: Session, fleet: Fleet, report: Any, began: str, took_s: float, limit: str, tags: Sequence[str],
    variables: dict[str, Any],
) -> None:  # fmt: skip
    """Write the run into the history; a history that cannot be written does not fail the run."""
    from rm.adapters.playbook.history import entry_of, keep

    try:
        by = getpass.getuser()
    except (OSError, KeyError):
        by = "?"
    entry = entry_of(
        report,
        by=by,
        began=began,
        took_s=took_s,
        inventory=fleet.source,
        limit=limit,
        tags=tags,
        variables=variables,
    )
    try:
        keep(_state(session), entry)
    except OSError as problem:
        note(f"The run is not in the history: {problem}.")


@playbook.command(hidden=True)
@click.pass_obj
def work(session: Session, /) -> int:
    """Run a playbook for the daemon: orders on standard input, what happens on standard output."""
    from rm.cli.playbook.work import worked  # slow to load, and for the daemon alone

    return worked(session)


for command in (start, runs, report):
    playbook.add_command(command)
