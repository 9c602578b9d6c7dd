"""Who ran which playbook, when, with which result: one JSON line per run in the state directory.

Values of variables are not kept, only their names: they may be secrets.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rm.playbook.run.report import Report

FILE = "playbooks.jsonl"
RUNS_MAX = 1000  # older ones are dropped when twice as many are there


def entry_of(
    report: Report,
    *,
    by: str,
    began: str,
    took_s: float,
    inventory: str,
    limit: str,
    tags: Sequence[str],
    variables: Mapping[str, Any],
) -> dict[str, Any]:
    """A run as it is kept. `began` is ISO 8601 with its zone."""
    recap = report.recap()
    totals: dict[str, int] = {}
    for one in recap.values():
        for name, count in asdict(one).items():
            totals[name] = totals.get(name, 0) + count
    failed = sorted(host for host, one in recap.items() if one.failed or one.unreachable)
    result = "interrupted" if report.interrupted else "ok" if report.ok else "failed"
    return {
        "began": began, "took_s": round(took_s, 3), "by": by, "playbook": os.path.abspath(report.playbook),
        "inventory": inventory, "limit": limit, "tags": list(tags), "variables": sorted(variables),
        "check": report.check, "result": result, "hosts": len(recap), "recap": totals, "failed_hosts": failed,
        "not_reached": list(report.not_reached), "failures": report.failures()[:20],
    }  # fmt: skip


def keep(directory: Path, entry: Mapping[str, Any]) -> None:
    """Append a run; raises OSError."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _as_owner_of(directory):
        descriptor = os.open(directory / FILE, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "r+", encoding="utf-8", errors="backslashreplace") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(json.dumps(entry, ensure_ascii=False) + "\n")
        file.flush()
        file.seek(0)
        lines = file.readlines()
        if len(lines) >= 2 * RUNS_MAX:
            file.seek(0)
            file.truncate()
            file.writelines(lines[-RUNS_MAX:])


def runs(directory: Path) -> list[dict[str, Any]]:
    """All kept runs, the oldest first; a torn line is left out. Raises OSError."""
    found = []
    try:
        with _as_owner_of(directory):
            text = (directory / FILE).read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    for line in text.splitlines():
        with suppress(ValueError):
            found.append(json.loads(line))
    return found


@contextmanager
def _as_owner_of(directory: Path) -> Iterator[None]:
    """Root opens with no more rights than the daemon's account, which can put links there, and whose the file
    is to be."""
    about, group = os.stat(directory), os.getegid()
    if os.geteuid() != 0 or about.st_uid == 0:
        yield
        return
    os.setegid(about.st_gid)
    os.seteuid(about.st_uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(group)
