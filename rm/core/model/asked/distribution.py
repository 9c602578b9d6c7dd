"""How the ranks of a job go over its hosts: its `distribution`, as -m of sbatch says it."""

from __future__ import annotations

BLOCK, CYCLIC, PLANE = "block", "cyclic", "plane="
DIGITS = 5  # of a plane's size


def ranks_in_turn(distribution: str) -> int:
    """How many ranks a host gets before the next one's turn, 0 for all of them; -1: there is no such way."""
    size = distribution.removeprefix(PLANE)
    if size == distribution:
        return {BLOCK: 0, CYCLIC: 1}.get(distribution, -1)
    good = size.isascii() and size.isdecimal() and len(size) <= DIGITS and size[0] != "0"
    return int(size) if good else -1
