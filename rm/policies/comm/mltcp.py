"""mltcp: a flow counts the more, the more of its iteration's bytes it has sent.

Source: S. Rajasekaran, S. Narang, A. A. Zabreyko, M. Ghobadi: MLTCP, HotNets 2024 (arXiv 2402.09589). Each
sender scales its congestion window by F(bytes_ratio) = slope * bytes_ratio + intercept, where bytes_ratio is
the part of the iteration's bytes that is sent. So who is ahead gets ahead further, and jobs that meet slide
apart over their iterations, without anybody who plans. Settled here:

* Flows share a link in proportion to F, as windows of equal round trips do; F is taken for each of `parts`
  equal parts of the iteration's bytes, at its middle.
* No job has an advantage by its priority, as in the paper.

It needs another congestion control on the hosts, so it acts in the simulator: a baseline. On live hosts it
aligns nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rm.core.model.network.alignment import NOTHING_TO_ALIGN, Alignment
from rm.core.model.snapshot import PlacedJob, Snapshot
from rm.errors import ConfigError

MOST_PARTS = 1000


@dataclass(frozen=True, slots=True)
class MltcpOptions:
    """F's `slope` and `intercept` are the paper's; `parts` see the module."""

    slope: float = 1.75
    intercept: float = 0.25
    parts: int = 8

    def __post_init__(self) -> None:
        if self.slope < 0 or self.intercept <= 0:
            raise ConfigError(
                f"The options of comm policy mltcp are slope = {self.slope:g} and intercept = "
                f"{self.intercept:g}.",
                "Use a slope of 0 or more and an intercept above 0.",
            )
        if not 1 <= self.parts <= MOST_PARTS:
            raise ConfigError(
                f"The option parts of comm policy mltcp is {self.parts}.", f"Use 1 to {MOST_PARTS}."
            )


class Mltcp:
    name = "mltcp"
    aligns = False

    def __init__(self, options: MltcpOptions | None = None) -> None:
        self.options = options or MltcpOptions()

    @property
    def parts(self) -> int:
        return self.options.parts

    def weight(self, bytes_ratio: float) -> float:
        """F."""
        return self.options.slope * min(1.0, bytes_ratio) + self.options.intercept

    def align(self, placed: Sequence[PlacedJob], snapshot: Snapshot, offline: bool = False) -> Alignment:
        return NOTHING_TO_ALIGN


OPTIONS = MltcpOptions
POLICY = Mltcp
