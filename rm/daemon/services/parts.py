"""A submission in parts, each of which is one turn of the leader."""

from __future__ import annotations

from collections.abc import Sequence

from rm.core.model.acceptance import size_bytes
from rm.core.model.job import JobSpec

# What takes the leader about as long as a job with a short script.
BYTES, ARRAY_CHARACTERS, CONDITIONS = 20_000, 500, 20


def weight_of(spec: JobSpec) -> int:
    """The leader's work for a job: a long specification is written, long lists are read and judged."""
    lists = len(spec.array) // ARRAY_CHARACTERS + spec.dependency.count(":") // CONDITIONS
    return 1 + size_bytes(spec) // BYTES + lists


def first_part(weights: Sequence[int], most: int) -> tuple[int, int]:
    """(how many of the first weigh at most so much together, but at least one; what these weigh)"""
    weight = weights[0]
    for count, more in enumerate(weights[1:], 1):
        if weight + more > most:
            return count, weight
        weight += more
    return len(weights), weight
