"""No communication policy: nothing is rotated, shaped or regulated."""

from __future__ import annotations

from collections.abc import Sequence

from rm.core.model.network.alignment import NOTHING_TO_ALIGN, Alignment
from rm.core.model.snapshot import PlacedJob, Snapshot


class NoAlignment:
    name = "none"
    aligns = False

    def align(self, placed: Sequence[PlacedJob], snapshot: Snapshot, offline: bool = False) -> Alignment:
        return NOTHING_TO_ALIGN


POLICY = NoAlignment
