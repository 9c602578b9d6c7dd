"""What a solved block says of its links."""

from __future__ import annotations

from rm.core.model.network.alignment import LinkAlignment, Rotation
from rm.policies.interleave.circle import LinkLoad
from rm.policies.interleave.solve import Solution


def link_alignment(name: str, load: LinkLoad, solution: Solution) -> LinkAlignment:
    """The link's score, circle, rotations and cushion under the block's scheme."""
    gap = solution.gap(load)
    return LinkAlignment(
        link=name,
        score=solution.link_score(load),
        perimeter_us=solution.plan.perimeter,
        jobs=tuple(sorted(load.phases)),
        rotations=tuple(
            Rotation(name, j, solution.scheme.rotation(j), solution.scheme.slots) for j in sorted(load.phases)
        ),
        gap_us=None if gap is None else int(gap),
    )
