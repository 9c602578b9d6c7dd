"""exclusive: bandwidth is given away for good: a job whose links are taken waits.

Source: the exclusive scheduling that Metronome compares with (Sec. I, Fig. 1b; Sec. IV, after [12] and
[13]): what may be allotted on a link is its capacity less what running jobs use, as if they communicated
all the time. Jobs never contend, links idle while their owners compute, and jobs are kept waiting.
`share` says when a link is taken:

* "never": as soon as one communicating job uses it.
* "bandwidth": when the peaks of its jobs together exceed its capacity, as in those schedulers.

A placement on a taken link is rejected with the link's name, and scores 0; nothing is rotated, shaped
or regulated. Jobs that are placed already keep their places, also when a measured profile shows that
they contend after all.

This is exclusive use of links by jobs, for as long as they run. Exclusive use of a host's network by
single transfers, one at a time, is another policy: `srsf-n` with n = 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rm.core.model.network.alignment import NOTHING_TO_ALIGN, Alignment, LinkAlignment
from rm.core.model.reasons import Reason, ReasonCode
from rm.core.model.snapshot import PlacedJob, Snapshot
from rm.errors import ConfigError
from rm.policies.interleave.affinity import peak_sum
from rm.policies.interleave.circle import LinkLoad
from rm.policies.interleave.loads import link_loads
from rm.policies.interleave.profile import DEMAND_MODELS

SHARE = ("never", "bandwidth")


@dataclass(frozen=True, slots=True)
class ExclusiveOptions:
    """`share` see the module; `demand` what tasks put on a link."""

    share: str = "never"
    demand: str = "ring"

    def __post_init__(self) -> None:
        for option, value, known in (("share", self.share, SHARE), ("demand", self.demand, DEMAND_MODELS)):
            if value not in known:
                raise ConfigError(
                    f"The option {option} of comm policy exclusive is {value!r}.",
                    f"Known are: {', '.join(known)}.",
                )


class Exclusive:
    name = "exclusive"

    def __init__(self, options: ExclusiveOptions | None = None) -> None:
        self.options = options or ExclusiveOptions()

    def align(self, placed: Sequence[PlacedJob], snapshot: Snapshot, offline: bool = False) -> Alignment:
        """Rejected where a link is used by more jobs than it may be; otherwise nothing to align."""
        _, links = link_loads(placed, snapshot, self.options.demand)
        taken = {name: load for name, load in links.items() if self._taken(load)}
        if not taken:
            return NOTHING_TO_ALIGN
        return Alignment(
            score=0.0,
            links=tuple(LinkAlignment(name, 0.0, 0, tuple(sorted(taken[name].phases))) for name in taken),
            unmatched=tuple(sorted({j for load in taken.values() for j in load.phases})),
            rejected=self._reason(taken),
        )

    def _taken(self, load: LinkLoad) -> bool:
        if self.options.share == "never":
            return len(load.phases) > 1
        return len(load.phases) > 1 and peak_sum(load) > load.capacity

    def _reason(self, taken: dict[str, LinkLoad]) -> Reason:
        name, load = next(iter(taken.items()))
        peaks = peak_sum(load)
        if self.options.share == "never":
            what = f"link {name} would carry {len(load.phases)} jobs, and one has it for itself"
        else:
            what = (
                f"link {name} would carry {peaks / 1e6:.0f} Mbit/s of {len(load.phases)} jobs, "
                f"and has {load.capacity / 1e6:.0f} Mbit/s to give away"
            )
        return Reason(
            ReasonCode.BANDWIDTH,
            what,
            (("jobs", len(load.phases)), ("peaks_bps", peaks), ("capacity_bps", load.capacity)),
        )


OPTIONS = ExclusiveOptions
POLICY = Exclusive
