"""The hosts on which a run did not come to its end: in words, in a file as Ansible's, and as a `--limit`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from rm.cli.output import note, printable
from rm.errors import UsageError

if TYPE_CHECKING:
    from rm.playbook.read.ansible_settings import Settings
    from rm.playbook.run.report import Report

NAMED = 5  # in the sentence
LIMITED = 20  # a longer list is for a file


def opened(limit: str | None) -> str | None:
    """The limit with the lines of each `@FILE` in it, as in Ansible. Raises UsageError."""
    if not limit or "@" not in limit:
        return limit
    found: list[str] = []
    for word in limit.split(","):
        found += _lines(word.strip()[1:]) if word.strip().startswith("@") else [word]
    return ",".join(found)


def _lines(name: str) -> list[str]:
    try:
        text = Path(name).expanduser().read_text(encoding="utf-8")
    except (OSError, ValueError) as problem:  # ValueError: a zero byte, or no UTF-8
        why = getattr(problem, "strerror", None) or "it is not UTF-8 text"
        raise UsageError(f"--limit @{name}: {why}.", "It has a host or pattern on each line.") from None
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        raise UsageError(f"--limit @{name}: the file names no host.", "An empty limit would mean all hosts.")
    return lines


def tell(report: Report, path: Path, settings: Settings) -> None:
    """Says on standard error which hosts are left and how to take only them; where `retry_files_enabled` asks
    for it they are written into a file."""
    at = {
        one.host: one.task or one.module
        for results in report.results.values()
        for one in results
        if one.status in ("failed", "unreachable") and not (one.ignored or one.rescued)
    }
    left = sorted({*at, *report.not_reached})
    if not left or report.interrupted:
        return
    said = [f"{host} (at '{printable(at[host])}')" if host in at else host for host in left[:NAMED]]
    more = f" and {len(left) - NAMED} more" if len(left) > NAMED else ""
    file = _kept(path, left, settings) if settings.retry_files_enabled else ""
    names = ",".join(left) if len(left) <= LIMITED else ""
    again = f"@{file}" if file else names
    how = f" To take only {'it' if len(left) == 1 else 'them'} again: --limit {again}" if again else ""
    note(f"Not to the end: {', '.join(said)}{more}.{how}")


def _kept(path: Path, hosts: list[str], settings: Settings) -> str:
    """The retry file of the playbook `path`, written; "" where it cannot be."""
    folder = Path(settings.retry_files_save_path or os.path.dirname(os.path.abspath(path)))
    file = folder / f"{path.stem}.retry"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(f"{host}\n" for host in hosts), encoding="utf-8")
    except OSError as problem:
        note(f"The retry file {file} cannot be written: {problem.strerror}.")
        return ""
    return str(file)
