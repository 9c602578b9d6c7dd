"""Interleaving of communication phases: profiles, unified circles, rotations, time-shifts.

Sources: Metronome (Sec. II and III), CASSINI (Sec. 3 and 4). All of it is integer arithmetic on
plain values; ticks and bandwidth units are the caller's, the product uses microseconds and bit/s.
"""

from rm.policies.interleave.circle import Circle, LinkLoad, slot_pattern
from rm.policies.interleave.cushion import Distances
from rm.policies.interleave.profile import (
    Phases,
    canonical,
    canonical_phases,
    job_demands,
    link_demand,
    phases_of,
    profile_from,
)
from rm.policies.interleave.score import random_phase, score, unmatched_score, utilisation
from rm.policies.interleave.search import BUDGET, Scheme, search_block, search_online
from rm.policies.interleave.stage3 import Spread, search_offline
from rm.policies.interleave.unify import Demand, Plan, rank_key, unify

__all__ = [
    "BUDGET",
    "Circle",
    "Demand",
    "Distances",
    "LinkLoad",
    "Phases",
    "Plan",
    "Scheme",
    "Spread",
    "canonical",
    "canonical_phases",
    "job_demands",
    "link_demand",
    "phases_of",
    "profile_from",
    "random_phase",
    "rank_key",
    "score",
    "search_block",
    "search_offline",
    "search_online",
    "slot_pattern",
    "unify",
    "unmatched_score",
    "utilisation",
]
