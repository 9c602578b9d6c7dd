"""Results of a monitor's meshes, as archives get them."""

from __future__ import annotations

from collections.abc import Iterable

from rm.core.monitoring.mesh import Mesh, parse_mesh
from rm.core.monitoring.outcome import Outcome
from tests import builders
from tests.monitored import House, Prober

DNS = parse_mesh({"name": "dns", "tests": ["dns"], "query": "www.example.org", "nameserver": "10.0.0.53"})
HTTP = parse_mesh({"name": "http", "tests": ["http"], "url": "http://10.0.0.9/status?a=b", "contains": "up"})
PAIRS = Mesh("all", tests=("latency", "throughput", "mtu", "trace", "clock"), packets=100)
MINUTE_US = 60_000_000
SECRET = "Basic c2VjcmV0"


class Kept:
    """An archive in memory; `only`: the meshes that it takes."""

    def __init__(self, only: str = "") -> None:
        self.outcomes: list[Outcome] = []
        self.only = only

    def takes(self, mesh: str) -> bool:
        return self.only in ("", mesh)

    def keep(self, outcomes: Iterable[Outcome]) -> None:
        self.outcomes += outcomes


def measured(*meshes: Mesh, agents: Prober | None = None) -> list[Outcome]:
    """What runs of these meshes hand to an archive."""
    kept, prober = Kept(), agents or Prober()
    prober.oneway |= {
        "offset_us": -250,
        "forward_histogram": [(280, 40), (300, 59)], "backward_histogram": [(-1, 1), (310, 49)],
    }  # fmt: skip
    prober.itself = "10.0.0.2"
    prober.services |= {
        "dns": {"time_us": 2_500, "records": ["192.0.2.7"], "nameserver": "10.0.0.53"},
        "http": {"time_us": 40_000, "status": 200, "found": True},
    } if agents is None else {}  # fmt: skip
    house = House(*meshes, agents=prober, archives=kept)
    for mesh in meshes:
        house.monitor.run(mesh.name)
    return kept.outcomes


def outcome(mesh: str = "all", failed: str = "", at_us: int = 1_000) -> Outcome:
    a, b = builders.host("a"), builders.host("b")
    return Outcome(Mesh(mesh), "mtu", a, b, at_us, at_us, failed, {} if failed else {"bytes": 1500})
