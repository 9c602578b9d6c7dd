"""One test of one direction as it ended, with all that it found: what archives of others are given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rm.core.model.host import Host
from rm.core.monitoring.mesh import Mesh


@dataclass(frozen=True, slots=True)
class Outcome:
    """`found` is by the test, in rm's units (`rm.daemon.monitoring.pair_tests` and `streaming` fill it):

    - latency: sent, lost, clock_error_us, histogram: ((delay_us, packets), …)
    - latencybg: the same of a window, and duplicated, reordered
    - throughput: bps; mtu: bytes
    - trace: hops: ((address, rtt_us), …), reached
    - clock: local, remote: (at_us, synchronized) each; difference_us
    - dns: time_us, records; http: time_us, status, found

    It is empty where the test `failed`, but for the time of a service's wrong answer.
    """

    mesh: Mesh
    test: str
    source: Host
    destination: Host
    begun_us: int
    ended_us: int
    failed: str = ""
    found: Mapping[str, Any] = field(default_factory=dict)
