"""The options of the communication policy metronome."""

from __future__ import annotations

from dataclasses import dataclass

from rm.errors import ConfigError
from rm.policies.comm.steps.keeping import PAIR
from rm.policies.interleave.profile import DEMAND_MODELS
from rm.policies.interleave.solve import Thresholds


@dataclass(frozen=True, slots=True)
class MetronomeOptions:
    """Thresholds of Metronome Sec. III and IV, and switches for ablations.

    `g_t_us` G_T, `e_t` E_T as a share of the period, `slots` Di-Pre; `demand` one of
    ring, sum, alltoall, literal. `stage3` seeks the largest cushion offline where the scheduler's
    first scheme has not got it; `compact` leaves no cushion at all, which is how the paper's ablation
    removes stage 3 (Table VII), and `regulation` lets the controller pause jobs (Table VIII; without
    it a job is moved to its slot once). `gating` is not part of regulation: it has its own switch. `bursts`
    lets links serve them first come, first served. With `combine` each link has classes by rank, gates, and
    the best rotation there is.
    Parts of the cluster of up to `exact_jobs` jobs that links connect are solved as a whole.
    `reschedule` and what follows: see rm.core.scheduling.rescheduling; minutes between two moves.
    """

    slots: int = 72
    g_t_us: int = 5000
    e_t: float = 0.10
    mul_max: int = 24
    min_slots: int = 12
    d_max: int = 3600
    mode: str = "default"
    demand: str = "ring"
    shaping: bool = True
    rotation: bool = True
    gating: bool = True
    bursts: bool = True
    combine: bool = False
    stage3: bool = True
    compact: bool = False
    regulation: bool = True
    exact_jobs: int = 12
    reschedule: bool = False
    reschedule_below: float = 90.0
    reschedule_every_min: float = 30.0

    def __post_init__(self) -> None:
        if self.mode not in ("default", "paper"):
            raise ConfigError(f"The mode of metronome is {self.mode!r}.", 'Use "default" or "paper".')
        if self.demand not in DEMAND_MODELS:
            raise ConfigError(
                f"The demand model of metronome is {self.demand!r}.",
                f"Known are: {', '.join(DEMAND_MODELS)}.",
            )
        for name in ("slots", "mul_max", "min_slots", "d_max", "exact_jobs"):
            if getattr(self, name) < 1:
                raise ConfigError(f"Metronome's option {name} is {getattr(self, name)}.", "Use 1 or more.")
        for name in ("g_t_us", "e_t", "reschedule_every_min"):
            if getattr(self, name) < 0:
                raise ConfigError(
                    f"Metronome's option {name} is {getattr(self, name)}.", "It must not be negative."
                )

    @property
    def paper(self) -> bool:
        return self.mode == "paper"

    @property
    def chooses(self) -> bool:
        """Are there both traffic classes and gates, of which each link has what loses least?"""
        return self.shaping and self.rotation and self.gating and not (self.combine or self.paper)

    @property
    def thresholds(self) -> Thresholds:
        return Thresholds(
            self.g_t_us,
            self.e_t,
            self.mul_max,
            self.slots,
            self.min_slots,
            self.d_max,
            self.paper,
            compact=self.compact,
            crowd=None if self.combine or self.paper else PAIR,
        )
