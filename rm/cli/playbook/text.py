"""What `rmx playbook run` shows: progress on standard error, the recap and JSON on standard output."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from rm.cli.output import printable

if TYPE_CHECKING:
    from rm.adapters.playbook.run import Progress, Report

ITEMS_SHOWN = 3  # of a loop, where more of them changed: `-v` shows all
COLOURS = {"changed": "yellow", "failed": "red", "unreachable": "red", "skipped": "cyan", "ok": "green"}


def show(event: Progress, verbose: bool) -> bool:
    """Lines of progress on standard error; whether there was something to say."""
    lines = list(lines_of(event, verbose))
    for line, colour in lines:
        bold = True if event.kind == "play" else None
        click.echo(click.style(line, fg=colour, bold=bold), err=True, color=coloured())
    return bool(lines)


def coloured(environ: Mapping[str, str] = os.environ) -> bool | None:
    """For `click.echo`: False where nobody wants colours, None to let it see whether this is a terminal."""
    return False if environ.get("NO_COLOR") or environ.get("TERM") == "dumb" else None


def lines_of(event: Progress, verbose: bool) -> Iterator[tuple[str, str | None]]:
    """The lines worth keeping, each with its colour."""
    if event.kind == "play":
        yield f"PLAY {printable(event.text)}", None
    if event.kind == "note":
        yield f"note: {printable(event.text)}", "yellow"
    result = event.result
    if result is None:
        return
    told = result.module == "debug" and result.status == "ok"
    if result.status in ("ok", "skipped") and not (verbose or told or result.might_run):
        return
    status = result.status
    if result.ignored or result.rescued:
        status = "rescued" if result.rescued else "ignored"
    elif result.might_run:
        status = "might run"
    where = f"{result.host} > {result.delegated}" if result.delegated else result.host
    line = f"{printable(where)}: {status:9} {printable(result.task)}"
    bad = result.status in ("failed", "unreachable")
    if result.message and (bad or told or verbose or result.might_run):
        line += f": {printable(' '.join(result.message.split()))}"
    yield line, COLOURS.get(result.status)
    changed = [printable(label) for label, item, _ in result.items if item == "changed"]
    folded = len(changed) > ITEMS_SHOWN and not (verbose or told or result.diffs)
    if folded:
        shown = ", ".join(changed[:ITEMS_SHOWN])
        yield f"    changed   {shown} and {len(changed) - ITEMS_SHOWN} more", None
    for label, item, message in result.items:
        if folded and item == "changed":
            continue
        if item in ("changed", "failed") or verbose or told:
            said = f": {printable(message)}" if message and (item == "failed" or verbose or told) else ""
            yield f"    {item:9} {printable(label)}{said}", None
    for diff in result.diffs:
        for text in diff.splitlines():
            colour = "green" if text.startswith("+") else "red" if text.startswith("-") else None
            yield "    " + printable(text.replace("\t", "    ")), colour


def recap(report: Report) -> None:
    """Ansible's line of counters for each host."""
    width = max((len(host) for host in report.results), default=0)
    for host, counts in sorted(report.recap().items()):
        text = "  ".join(f"{name}={count}" for name, count in asdict(counts).items())
        click.echo(f"{host:{width}} : {text}")
    if report.not_reached:
        click.echo(f"not finished: {', '.join(report.not_reached)}")
    if report.check:
        click.echo("(check mode: nothing was changed)")


def as_object(report: Report) -> dict[str, Any]:
    fields = ("play", "task", "module", "status", "message", "ignored", "rescued", "might_run", "handler",
              "file", "line")  # fmt: skip
    return {
        "playbook": report.playbook,
        "check": report.check,
        "ok": report.ok,
        "interrupted": report.interrupted,
        "not_reached": list(report.not_reached),
        "recap": {host: asdict(counts) for host, counts in sorted(report.recap().items())},
        "results": {
            host: [
                {name: getattr(one, name) for name in fields}
                | ({"delegated_to": one.delegated} if one.delegated else {})
                | {"diffs": list(one.diffs), "items": [list(item) for item in one.items]}
                | {"result": json.loads(json.dumps(one.result, default=str))}
                for one in results
            ]
            for host, results in sorted(report.results.items())
        },
    }
