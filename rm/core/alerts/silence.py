"""Silences: an operator's wish not to be notified of something for a while."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from rm.core.alerts.alert import Finding


@dataclass(frozen=True, slots=True)
class Silence:
    """Nothing fires, until `until_us`, of these conditions and of these hosts or subjects (names or
    patterns; () = all). What holds when it ends fires then; the end of an earlier firing is notified.
    """

    id: int
    conditions: tuple[str, ...]
    hosts: tuple[str, ...]
    since_us: int
    until_us: int
    by: str
    comment: str = ""

    def covers(self, finding: Finding, now_us: int) -> bool:
        if now_us >= self.until_us or (self.conditions and finding.condition not in self.conditions):
            return False
        concerned = (finding.subject, *finding.hosts)
        return not self.hosts or any(fnmatchcase(name, p) for name in concerned for p in self.hosts)

    @property
    def words(self) -> str:
        return f"by {self.by}" + (f": {self.comment}" if self.comment else "")


def silenced_by(silences: Iterable[Silence], finding: Finding, now_us: int) -> str:
    """Why the finding must not fire now; "" = it may."""
    return next((f"silenced {s.words}" for s in silences if s.covers(finding, now_us)), "")
