"""What a run of a playbook came to: every task's result, Ansible's counters, one sentence per failure."""

from __future__ import annotations

from dataclasses import field

from rm.playbook.model.keywords import DYNAMIC_INCLUDES
from rm.playbook.model.steps import TaskResult
from rm.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """What the caller may show while it runs: kind `play` (its name and hosts), `start` (the host, the task
    that it begins and how many `more` go with it), `task` (result) or `note` (what is not as it seems)."""

    kind: str
    text: str = ""
    result: TaskResult | None = None
    hosts: tuple[str, ...] = ()
    more: int = 0


@dataclass(slots=True)
class Recap:
    """Ansible's counters of one host."""

    ok: int = 0
    changed: int = 0
    unreachable: int = 0
    failed: int = 0
    skipped: int = 0
    rescued: int = 0
    ignored: int = 0


@dataclass(slots=True)
class Report:
    """All results, per host in the order of the tasks. `not_reached`: hosts whose play was cut short."""

    playbook: str
    check: bool
    results: dict[str, list[TaskResult]] = field(default_factory=dict)
    not_reached: tuple[str, ...] = ()
    interrupted: bool = False

    @property
    def ok(self) -> bool:
        """Nothing failed, nobody was unreachable, everything was reached."""
        bad = (
            r for results in self.results.values() for r in results if r.status in ("failed", "unreachable")
        )
        return not self.interrupted and not self.not_reached and all(r.ignored or r.rescued for r in bad)

    @property
    def changed(self) -> int:
        return sum(recap.changed for recap in self.recap().values())

    def recap(self) -> dict[str, Recap]:
        recaps = {host: Recap() for host in self.results}
        for host, results in self.results.items():
            counts = recaps[host]
            for result in results:
                if result.rescued:
                    counts.rescued += 1
                elif result.status == "unreachable" and result.ignored:
                    counts.ok += 1
                    counts.ignored += 1
                elif result.status == "changed" or result.ignored:
                    counts.ok += 1
                    counts.ignored += result.ignored
                    counts.changed += bool(result.result.get("changed", result.status == "changed"))
                elif result.status == "ok" and result.module in DYNAMIC_INCLUDES:
                    counts.ok += max(1, sum(status == "ok" for _, status, _ in result.items))
                else:
                    setattr(counts, result.status, getattr(counts, result.status) + 1)
        return recaps

    def failures(self) -> list[str]:
        """One sentence per failure, for logs and error messages."""
        return [
            f"{r.host}: {r.task}: {r.message or r.status}"
            for results in self.results.values()
            for r in results
            if r.status in ("failed", "unreachable") and not r.ignored and not r.rescued
        ]
