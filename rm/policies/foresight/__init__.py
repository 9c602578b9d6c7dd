"""FORESIGHT: communication scheduled in time (delays, throttles) and in space (spines) together.

Source: FORESIGHT (Zandi, Ghobadi, Ganjali). Integers throughout: microseconds, bit/s, and units of
a spine link. `schedule` is the door; a plan is a value of the core (rm/core/model/network/routes.py).
"""

from rm.policies.foresight.colouring import edge_colouring, max_degree
from rm.policies.foresight.demand import JobDemand, Links, Piece, Profile
from rm.policies.foresight.estimate import mean_iteration_us
from rm.policies.foresight.guard import guarded
from rm.policies.foresight.solve import REPAIRS, VARIANTS, schedule

__all__ = [
    "REPAIRS",
    "VARIANTS",
    "JobDemand",
    "Links",
    "Piece",
    "Profile",
    "edge_colouring",
    "guarded",
    "max_degree",
    "mean_iteration_us",
    "schedule",
]
