"""Who ran which playbook, when, with which result: one JSON line per run in the state directory.

Values of variables are not kept, only their names: they may be secrets.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rm.adapters.owned_file import open_owned, opened_directory
from rm.playbook.run.report import Report

FILE = "playbooks.jsonl"
RUNS_MAX = 1000  # older ones are dropped when twice as many are there
FAILURES_MOST = 20  # of a run
FAILURE_MOST = 1000  # characters of each: hosts say how long their words are


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
        "not_reached": list(report.not_reached),
        "failures": [_shortened(text) for text in report.failures()[:FAILURES_MOST]],
    }  # fmt: skip


def _shortened(text: str) -> str:
    return text if len(text) <= FAILURE_MOST else f"{text[:FAILURE_MOST]}…"


def keep(directory: Path, entry: Mapping[str, Any]) -> None:
    """Append a run; raises OSError."""
    with opened_directory(directory, makes=True) as home:
        descriptor = open_owned(home, FILE, os.O_RDWR | os.O_APPEND, makes=True)
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
    """All kept runs, the oldest first; what is no run, as a torn line, is left out. Raises OSError."""
    found = []
    try:
        with opened_directory(directory) as home:
            descriptor = open_owned(home, FILE, os.O_RDONLY)
        with os.fdopen(descriptor, encoding="utf-8", errors="replace") as file:
            text = file.read()
    except FileNotFoundError:
        return []
    for line in text.split("\n"):  # what a host said may hold other ends of lines
        with suppress(ValueError, RecursionError):
            one = json.loads(line)
            if isinstance(one, dict):
                found.append(one)
    return found
