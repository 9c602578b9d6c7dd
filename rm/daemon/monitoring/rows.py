"""What the HTTP API shows of monitoring, as mappings: cells, changes, tries, runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rm.core.model.host import Host
from rm.core.monitoring.cells import Cell, Change
from rm.core.monitoring.history import Sample, Summary
from rm.core.monitoring.mesh import Cron, Mesh, MeshState
from rm.core.monitoring.metrics import CHECKS
from rm.units import format_duration

CONTINUOUS = "continuous"  # what stands for the schedule of a mesh that measures without a pause


def checks_in(cells: Iterable[Cell]) -> list[str]:
    found = {cell.check for cell in cells}
    return [check for check in CHECKS if check in found]


def hosts_in(cells: Iterable[Cell], hosts: Mapping[str, Host]) -> list[Host]:
    found = {name for cell in cells for name in (cell.source, cell.destination)}
    return [host for name, host in hosts.items() if name in found]


def sides_json(mesh: Mesh, hosts: Mapping[str, Host]) -> list[list[str]] | None:
    """Which hosts are measured with which; None: all with all."""
    return [[h.name for h in side] for side in mesh.sides(hosts.values())] if mesh.towards else None


def schedule_text(mesh: Mesh) -> str:
    schedule = mesh.schedule
    if mesh.is_continuous:
        return CONTINUOUS
    if isinstance(schedule, Cron):
        return schedule.expression
    return f"every {format_duration(schedule.interval_us)}"


def cell_json(cell: Cell) -> dict[str, Any]:
    return {
        "check": cell.check,
        "source": cell.source,
        "destination": cell.destination,
        "status": int(cell.status),
        "message": cell.said,
        "value": cell.value,
        "checked_us": cell.checked_us or None,
        "since_us": cell.since_us or None,
        "result": int(cell.result),
        "streak": cell.streak,
    }


def change_json(change: Change) -> dict[str, Any]:
    return {
        "at_us": change.at_us,
        "check": change.check,
        "source": change.source,
        "destination": change.destination,
        "was": int(change.was),
        "status": int(change.status),
        "message": change.message,
        "value": change.value,
    }


def sample_json(sample: Sample) -> dict[str, Any]:
    return {
        "at_us": sample.at_us,
        "mesh": sample.mesh,
        "values": sample.values,
        "failed": sample.failed,
        "checks": sample.checks,
    }


def summary_json(one: Summary) -> dict[str, Any]:
    stats = {
        name: {"min": s.least, "mean": s.mean, "max": s.most, "count": s.count}
        for name, s in one.stats.items()
    }
    return {
        "start_us": one.start_us,
        "span_us": one.span_us,
        "stats": stats,
        "tries": one.tries,
        "failures": one.failures,
    }


def state_json(state: MeshState) -> dict[str, Any]:
    return {
        "name": state.mesh,
        "paused_by": state.paused_by or None,
        "begun_us": state.begun_us or None,
        "ended_us": state.ended_us or None,
        "turn": state.turn,
        "rounds": state.cycle,
        "measured": state.measured,
        "failed": state.failed,
        "skipped": state.skipped,
    }
