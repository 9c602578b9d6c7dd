"""cassini: a host scheduler's placements, varied so that the communication policy has a choice.

Source: CASSINI, Sec. 4.2, step 1 (Themis and Pollux return up to N candidates instead of one; N is 10
in Sec. 5.1). `base` names the placement policy that is augmented. Its candidates all suit it, and all
give the job what it asked for; what differs is which jobs it would share links with. The engine has the
communication policy align them and takes the best score, at equal scores the base's first choice; so
`policies.candidates` should be as large as `candidates` here.

Candidates are the base's own, in its order, and then what it answers when it must do without one of the
hosts that they would share. Of those that share links with the same jobs only the first is offered:
placements elsewhere that meet nobody, or the same jobs, score alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice

from rm.core import registry
from rm.core.model.job import Placement
from rm.core.model.network.fabric import uplink_name
from rm.core.model.placement_request import PlacementRequest
from rm.core.model.snapshot import NEWEST, PlacedJob, Snapshot
from rm.core.ports import Candidate, PlacementPolicy, Proposal
from rm.core.scheduling.neighbours import links_of
from rm.errors import ConfigError
from rm.policies.interleave.loads import capacity_of

Sharing = tuple[tuple[int, tuple[int, ...]], ...]  # (capacity, jobs met) of every link shared


@dataclass(frozen=True, slots=True)
class CassiniOptions:
    """`base` and its own options `base_options`; `candidates` offered at most, after a look at no more
    than `looked` answers of the base."""

    base: str = "consolidate"
    candidates: int = 10
    looked: int = 100
    base_options: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.base.strip().replace("_", "-") == "cassini":
            raise ConfigError(
                "The placement policy cassini cannot augment itself.",
                "Set its option base to another placement policy.",
            )
        if self.candidates < 1 or self.looked < self.candidates:
            raise ConfigError(
                f"Placement policy cassini offers {self.candidates} of {self.looked} candidates.",
                "Use 1 or more candidates, and looked not below it.",
            )


class CassiniPlacement:
    """See the module. Every answer is a pure function, as far as the base's are."""

    name = "cassini"

    def __init__(self, options: CassiniOptions | None = None) -> None:
        self.options = options or CassiniOptions()
        self.base: PlacementPolicy = registry.load("placement", self.options.base, self.options.base_options)

    def candidates(self, request: PlacementRequest, snapshot: Snapshot, explain: bool = False) -> Proposal:
        proposal = self.base.candidates(request, snapshot, explain)
        found = islice(self._varied(proposal.candidates, request, snapshot), self.options.candidates)
        # the base fills in its reasons when its candidates are exhausted, in this very list
        return Proposal(found, proposal.reasons, proposal.verdicts, proposal.observe)

    def _varied(
        self, own: Iterator[Candidate], request: PlacementRequest, snapshot: Snapshot
    ) -> Iterator[Candidate]:
        """Candidates of different sharing, the base's own first."""
        meetings = Meetings(request, snapshot)
        offered: set[Sharing] = set()
        shared: dict[str, None] = {}  # hosts on which the job would meet others, as they come up
        for candidate in islice(self._answers(own, shared, request, snapshot), self.options.looked):
            sharing, hosts = meetings.of(candidate.placement)
            shared |= dict.fromkeys(hosts)
            if sharing not in offered:
                offered.add(sharing)
                yield candidate

    def _answers(
        self,
        own: Iterator[Candidate],
        shared: Mapping[str, None],
        request: PlacementRequest,
        snapshot: Snapshot,
    ) -> Iterator[Candidate]:
        """What the base answers, then what it answers without one host of `shared`, which grows."""
        yield from islice(own, self.options.looked // 2)
        without: set[str] = set()
        while len(without) < self.options.looked:
            host = next((h for h in shared if h not in without), None)
            if host is None:
                return
            without.add(host)
            elsewhere = replace(request, demand=request.demand.without([host]))
            yield from islice(self.base.candidates(elsewhere, snapshot).candidates, 2)


class Meetings:
    """Whom a job would meet on the links of a placement."""

    def __init__(self, request: PlacementRequest, snapshot: Snapshot) -> None:
        self._request = request
        self._snapshot = snapshot
        self._jobs_on: dict[str, list[int]] = {}
        for other in snapshot.placed.values():
            if other.communicates and other.job != request.job:
                for link in links_of(other, snapshot.fabric):
                    self._jobs_on.setdefault(link, []).append(other.job)

    def of(self, placement: Placement) -> tuple[Sharing, list[str]]:
        """The sharing, and the hosts on which it happens (below a shared uplink, too)."""
        wants = self._request.demand
        view = PlacedJob(
            job=self._request.job,
            name="",
            high=wants.is_high,
            priority=wants.priority,
            sequence=NEWEST,
            placement=placement,
            traffic=wants.traffic,
            low_comm=wants.low_comm,
        )
        if not view.communicates:
            return (), []
        fabric = self._snapshot.fabric
        links = [link for link in links_of(view, fabric) if link in self._jobs_on]
        sharing = sorted((capacity_of(n, self._snapshot), tuple(sorted(self._jobs_on[n]))) for n in links)
        above = fabric.leaf_of if fabric else {}
        hosts = [h for h in placement.hosts if h in links or uplink_name(above.get(h, "")) in links]
        return tuple(sharing), hosts


OPTIONS = CassiniOptions
POLICY = CassiniPlacement
