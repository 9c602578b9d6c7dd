"""The keys of a mesh that measures without a pause (`latencybg`): their defaults and bounds.

The defaults are those of pScheduler's tool `powstream`: a packet every 0.1 s, and a result of each 600.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rm.errors import ConfigError
from rm.units import HOUR_US, SECOND_US, format_duration

LATENCYBG = "latencybg"
PACKETS, SPACING_US = 600, 100_000
PEERS = 20  # others, at most, to and from which a host has streams
SHORTEST_US = 10_000
LEAST_WINDOW_US, LONGEST_WINDOW_US = SECOND_US, HOUR_US
NO_KEYS = {
    "schedule": "it measures without a pause",
    "jitter_s": "it measures without a pause",
    "slip_s": "it measures without a pause",
    "rounds": "it measures all of its pairs at the same time",
    "duration_s": "it measures without a pause",
    "rate_mbps": "'packets' and 'spacing_s' make its rate",
    "disturb": "it fills no link",
}


def continuous(values: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of such a mesh; `given` are the keys of its table.

    Raises:
        ConfigError: what is wrong.
    """
    if len(values["tests"]) > 1:
        raise ConfigError(
            f"'{LATENCYBG}' measures without a pause, other tests now and then.", "Make two meshes."
        )
    for key, why in NO_KEYS.items():
        if key in given:
            raise ConfigError(f"{why} ({LATENCYBG}).", f"Leave out '{key}'.")
    made = {"packets": PACKETS, "spacing_us": SPACING_US, "peers": PEERS, **values, "rounds": 0}
    if made["spacing_us"] < SHORTEST_US:
        raise ConfigError("'spacing_s' is less than 0.01.", "Write the seconds from one packet to the next.")
    window_us = made["packets"] * made["spacing_us"]
    if not LEAST_WINDOW_US <= window_us <= LONGEST_WINDOW_US:
        raise ConfigError(
            f"'packets' every 'spacing_s' take {format_duration(window_us)}: not from a second to an hour.",
            "They make one result.",
        )
    return made
