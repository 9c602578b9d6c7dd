"""How a placement was decided: kept beside the job, because it cannot be derived again later.

Everything here is bounded for any size of the cluster; what is left out is counted.
"""

from __future__ import annotations

from dataclasses import dataclass

from rm.core.model.reasons import HostVerdict, Reason

# Of one placement: 64 hosts with a verdict, and this many candidates, each with this many hosts by name.
CHOSEN_MAX, REFUSED_MAX = 48, 16
COMPARED_MAX, NAMED_MAX = 8, 8


@dataclass(frozen=True, slots=True)
class Refused:
    """Hosts that the same reason spoke against."""

    reason: Reason
    hosts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Judged:
    """What a placement policy says of the hosts around a placement of its own.

    `chosen` are at most CHOSEN_MAX of the placement's hosts, with their scores; `refused` name at most
    REFUSED_MAX hosts that could not be taken, the nearest to the placement. `refused_hosts` counts all such
    hosts, `passed_over_hosts` those that could be taken and were not; None = not known.
    """

    chosen: tuple[HostVerdict, ...]
    refused: tuple[Refused, ...] = ()
    refused_hosts: int | None = None
    passed_over_hosts: int | None = None


@dataclass(frozen=True, slots=True)
class Compared:
    """One candidate: its first hosts by name, the placement policy's score and note, and the
    compatibility score of its alignment (None = no finite number). `rejected`: why it could not be taken."""

    hosts: tuple[str, ...]
    host_count: int
    score: float | None
    alignment_score: float | None
    note: str = ""
    taken: bool = False
    rejected: Reason | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """A decision with what stood behind it. `placement_policy` names the policy; `compared` are the
    candidates in the order in which they were looked at, the one taken always among them, of
    `compared_candidates` in all; the rest is as in `Judged`."""

    at_us: int
    placement_policy: str
    chosen: tuple[HostVerdict, ...]
    chosen_hosts: int
    refused: tuple[Refused, ...] = ()
    refused_hosts: int | None = None
    passed_over_hosts: int | None = None
    compared: tuple[Compared, ...] = ()
    compared_candidates: int = 0

    @property
    def verdicts(self) -> list[HostVerdict]:
        """Host by host: the chosen ones, then those refused."""
        return [*self.chosen, *(HostVerdict(host, one.reason) for one in self.refused for host in one.hosts)]
