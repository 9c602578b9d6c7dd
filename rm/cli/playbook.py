"""`rmx playbook`: run Ansible-language playbooks on the hosts of an inventory.

Exit codes of `run`: 0 all done, 2 a task failed on a host (or the playbook is wrong: nothing was touched),
4 a host was unreachable, 130 interrupted.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rm.cli.session import Session, emit_json, json_option, printable, table
from rm.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from rm.adapters.playbook_run import Progress, Report
    from rm.adapters.ssh import SshSettings
    from rm.core.host import Host

FAILED, UNREACHABLE, INTERRUPTED = 2, 4, 130
COLOURS = {"changed": "yellow", "failed": "red", "unreachable": "red", "skipped": "cyan", "ok": "green"}


@click.group()
def playbook() -> None:
    """Run a playbook on hosts, over SSH."""


@playbook.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List the playbooks that come with rm; `run` takes their names."""
    from rm.adapters.shipped import shipped_directory

    found = []
    for path in sorted(shipped_directory("playbooks").glob("*.yml")):
        first = path.read_text(encoding="utf-8").partition("\n")[0]
        found.append({"name": path.stem, "about": first.lstrip("# ").strip(), "path": str(path)})
    if as_json:
        emit_json({"playbooks": found})
    else:
        table(("PLAYBOOK", "WHAT IT DOES"), [(one["name"], one["about"]) for one in found])


@playbook.command()
@click.argument("file", metavar="FILE")
@click.option(
    "-i", "--inventory", metavar="FILE", help="Ansible inventory (default: hosts.inventory of rm.toml)."
)
@click.option("-l", "--limit", metavar="PATTERN", help="Only these hosts and groups.")
@click.option("-t", "--tags", multiple=True, metavar="TAGS", help="Only tasks with these tags.")
@click.option("--skip-tags", multiple=True, metavar="TAGS", help="No tasks with these tags.")
@click.option("-e", "--extra-vars", multiple=True, metavar="VARS", help="name=value …, {JSON} or @FILE.")
@click.option("-C", "--check", is_flag=True, help="Change nothing; say what would change.")
@click.option("-D", "--diff", is_flag=True, help="Show what changes in files.")
@click.option(
    "-f", "--forks", default=16, show_default=True, type=click.IntRange(1, 1024), help="Hosts at a time."
)
@click.option(
    "--known-hosts", metavar="FILE", help="Accepted host keys (default: ssh.known_hosts of rm.toml)."
)
@click.option("--private-key", metavar="FILE", help="SSH identity for hosts that name none.")
@click.option("--list-hosts", is_flag=True, help="Only say which hosts each play is for.")
@click.option("--list-tasks", is_flag=True, help="Only list the tasks.")
@click.option("-v", "--verbose", is_flag=True, help="Also what was skipped, each item and each message.")
@json_option
@click.pass_obj
def run(
    session: Session,
    /,
    file: str,
    inventory: str | None,
    limit: str | None,
    tags: Sequence[str],
    skip_tags: Sequence[str],
    extra_vars: Sequence[str],
    check: bool,
    diff: bool,
    forks: int,
    known_hosts: str | None,
    private_key: str | None,
    list_hosts: bool,
    list_tasks: bool,
    verbose: bool,
    as_json: bool,
) -> int:
    """Run the playbook FILE (a path, or the name of one that comes with rm).

    Progress goes to standard error, the recap to standard output.
    """
    from rm.adapters.playbook_run import plan_of, run_playbook

    path = _find(file)
    hosts, settings = _hosts(session, inventory, known_hosts, private_key)
    variables = _variables(extra_vars)
    wanted, unwanted = _words(tags), _words(skip_tags)
    if list_hosts or list_tasks:
        plan = plan_of(path, hosts, variables=variables, limit=limit, tags=wanted, skip_tags=unwanted)
        if as_json:
            emit_json({"plays": plan})
        for play in [] if as_json else plan:
            click.echo(f"play: {play['play']}")
            for host in play["hosts"] if list_hosts else ():
                click.echo(f"  host: {host}")
            for task in play["tasks"] if list_tasks else ():
                click.echo(f"  task: {task['name']}  ({task['module']}, line {task['line']})")
        return 0
    report = run_playbook(
        path,
        hosts,
        settings,
        variables=variables,
        check=check,
        diff=diff,
        limit=limit,
        tags=wanted,
        skip_tags=unwanted,
        forks=forks,
        progress=lambda event: _show(event, verbose),
    )
    if as_json:
        emit_json(_json(report))
    else:
        _recap(report)
    recaps = report.recap().values()
    if report.interrupted:
        return INTERRUPTED
    if any(recap.unreachable for recap in recaps):
        return UNREACHABLE
    return 0 if report.ok else FAILED


def _find(file: str) -> Path:
    from rm.adapters.shipped import shipped_directory

    if os.path.isfile(file) or os.sep in file:
        return Path(file)
    name = file if file.endswith((".yml", ".yaml")) else file + ".yml"
    shipped = shipped_directory("playbooks") / name
    if not shipped.exists():
        raise UsageError(
            f"There is no playbook {file}.", "`rmx playbook list` shows those that come with rm."
        )
    return shipped


def _hosts(
    session: Session, inventory: str | None, known_hosts: str | None, private_key: str | None
) -> tuple[list[Host], SshSettings]:
    from rm.adapters.ssh import SshSettings
    from rm.config import load_config
    from rm.playbook.inventory import parse, to_hosts

    config = load_config(session.config_flag)
    file = inventory or config.hosts.inventory
    if not file:
        raise UsageError(
            "No inventory is named.", "Give --inventory FILE, or set hosts.inventory in rm.toml."
        )
    try:
        text = Path(file).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        why = problem.strerror if isinstance(problem, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"The inventory {file} cannot be read: {why}.") from None
    identity = (private_key,) if private_key else config.ssh.identity_files
    settings = SshSettings(
        known_hosts=Path(known_hosts or config.ssh.known_hosts).expanduser(),
        identity_files=tuple(Path(one).expanduser() for one in identity),
        connect_timeout_s=config.ssh.connect_timeout_s,
        dead_after_s=config.ssh.dead_after_s,
        python=config.hosts.python,
    )
    return to_hosts(parse(text, file)), settings


def _words(given: Sequence[str]) -> tuple[str, ...]:
    return tuple(word.strip() for one in given for word in one.split(",") if word.strip())


def _variables(given: Sequence[str]) -> dict[str, Any]:
    """`-e`: name=value pairs (text), a JSON object (typed), or @file with YAML or JSON."""
    from rm.playbook.located import load

    found: dict[str, Any] = {}
    for text in given:
        if text.startswith(("@", "{")):
            try:
                body = Path(text[1:]).read_text(encoding="utf-8") if text[0] == "@" else text
            except OSError as problem:
                raise UsageError(f"-e {text}: {problem.strerror}.") from None
            value = load(body, text[1:] if text[0] == "@" else "-e")
            if not isinstance(value, dict):
                raise UsageError(f"-e {text} is not a mapping.", "Write names and their values.")
            found.update(value)
            continue
        try:
            words = shlex.split(text)
        except ValueError as problem:
            raise UsageError(f"-e {text!r}: {problem}.") from None
        for word in words:
            name, equals, value = word.partition("=")
            if not equals or not name.isidentifier():
                raise UsageError(f"-e {word!r} sets nothing.", "Write name=value.")
            found[name] = value
    return found


def _show(event: Progress, verbose: bool) -> None:
    if event.result is None:
        click.echo(click.style(f"PLAY {printable(event.text)}", bold=True), err=True)
        return
    result = event.result
    told = result.module == "debug" and result.status == "ok"
    if result.status in ("ok", "skipped") and not (verbose or told or result.might_run):
        return
    status = "ignored" if result.ignored else "might run" if result.might_run else result.status
    line = f"{result.host}: {status:9} {printable(result.task)}"
    bad = result.status in ("failed", "unreachable")
    if result.message and (bad or told or verbose or result.might_run):
        line += f": {printable(' '.join(result.message.split()))}"
    click.echo(click.style(line, fg=COLOURS.get(result.status)), err=True)
    for label, item, message in result.items:
        if item in ("changed", "failed") or verbose:
            said = f": {printable(message)}" if message and (item == "failed" or verbose) else ""
            click.echo(f"    {item:9} {printable(label)}{said}", err=True)
    for diff in result.diffs:
        for text in diff.splitlines():
            colour = "green" if text.startswith("+") else "red" if text.startswith("-") else None
            click.echo(click.style("    " + printable(text.replace("\t", "    ")), fg=colour), err=True)


def _recap(report: Report) -> None:
    width = max((len(host) for host in report.results), default=0)
    for host, recap in sorted(report.recap().items()):
        counts = "  ".join(f"{name}={count}" for name, count in asdict(recap).items())
        click.echo(f"{host:{width}} : {counts}")
    if report.not_reached:
        click.echo(f"not finished: {', '.join(report.not_reached)}")
    if report.check:
        click.echo("(check mode: nothing was changed)")


def _json(report: Report) -> dict[str, Any]:
    fields = ("play", "task", "module", "status", "message", "ignored", "might_run", "handler", "line")
    return {
        "playbook": report.playbook,
        "check": report.check,
        "ok": report.ok,
        "interrupted": report.interrupted,
        "not_reached": list(report.not_reached),
        "recap": {host: asdict(recap) for host, recap in sorted(report.recap().items())},
        "results": {
            host: [
                {name: getattr(one, name) for name in fields}
                | {"diffs": list(one.diffs), "items": [list(item) for item in one.items]}
                | {"result": json.loads(json.dumps(one.result, default=str))}
                for one in results
            ]
            for host, results in sorted(report.results.items())
        },
    }
