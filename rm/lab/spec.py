"""What a lab shall look like, and the plan that follows from it: hosts, zones, addresses."""

from __future__ import annotations

import dataclasses
import math
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rm.errors import UsageError

MAX_ZONES = 200
MAX_HOSTS_PER_ZONE = 240
MAX_LEAVES, MAX_SPINES = 64, 16
FIRST_HOST = 10  # the hosts of a zone, or below a leaf, are .10, .11 …; its router is .1
GPU_NAMESPACE = uuid.UUID("6b1d7f0e-3c52-4c1e-9d0a-0f6a5f0c9a11")


@dataclass(frozen=True, slots=True)
class Degrade:
    """How one host's link is worse than the others: both directions, on top of the lab's own link.

    `rate_mbps` replaces the link's rate; `loss_pct` is the chance that a packet is lost, each way;
    `delay_ms` is added each way.
    """

    rate_mbps: float | None = None
    loss_pct: float = 0.0
    delay_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class LabSpec:
    """A lab: `hosts` is the total, spread over `zones` as evenly as possible (zone 1 gets the rest).

    `zone_delay_ms` and `zone_loss_pct` hold for each direction between any two zones. A link's queue holds
    `queue_packets` packets of at most one MTU unless `offload` lets segments be merged (up to 64 KiB), as
    network cards do. `disk_mb` bounds all that one host may write (its memory is taken only when used).
    `share`: directories of this machine that hosts see as they are, writable; all others are seen through
    an overlay, so that nothing a host writes reaches this machine.

    With `leaves` the hosts of the one zone hang below that many leaves, as evenly as possible. Each leaf
    has a link of `uplink_mbps` to each of the `spines`, each way; 0: as a host's link.
    """

    zones: int = 2
    hosts: int = 4
    gpus_per_host: int = 4
    gpu_model: str = "A100"
    gpu_mem: str = "40G"
    cpus: int = 8
    mem: str = "16G"
    link_mbps: float = 100.0
    queue_packets: int = 30
    zone_delay_ms: float = 1.0
    zone_loss_pct: float = 0.0
    congestion_control: str = "cubic"
    offload: bool = False
    disk_mb: int = 256
    degrade: Mapping[str, Degrade] = field(default_factory=dict)
    share: tuple[str, ...] = ()
    leaves: int = 0
    spines: int = 0
    uplink_mbps: float = 0.0

    def __post_init__(self) -> None:
        def need(good: bool, what: str) -> None:
            if not good:
                raise UsageError(
                    f"The lab cannot be built: {what}.", "`rmx lab up --help` shows the options."
                )

        need(1 <= self.zones <= MAX_ZONES, f"zones is {self.zones}, but 1 to {MAX_ZONES} are possible")
        need(
            self.zones <= self.hosts <= self.zones * MAX_HOSTS_PER_ZONE,
            f"{self.hosts} hosts do not fit {self.zones} zones (1 to {MAX_HOSTS_PER_ZONE} hosts in each)",
        )
        need(0 <= self.gpus_per_host <= 64, f"{self.gpus_per_host} GPUs per host (0 to 64 are possible)")
        need(1 <= self.cpus <= 4096, f"{self.cpus} CPUs per host (1 to 4096 are possible)")
        need(0.1 <= self.link_mbps <= 100_000, f"a link of {self.link_mbps} Mbit/s (0.1 to 100000)")
        need(1 <= self.queue_packets <= 100_000, f"a queue of {self.queue_packets} packets (1 to 100000)")
        need(0 <= self.zone_delay_ms <= 10_000, f"a zone delay of {self.zone_delay_ms} ms (0 to 10000)")
        need(0 <= self.zone_loss_pct < 100, f"a zone loss of {self.zone_loss_pct} % (0 to below 100)")
        need(0 <= self.leaves <= MAX_LEAVES, f"{self.leaves} leaves (up to {MAX_LEAVES} are possible)")
        need(0 <= self.spines <= MAX_SPINES, f"{self.spines} spines (up to {MAX_SPINES} are possible)")
        need(bool(self.leaves) == bool(self.spines), "leaves and spines come together")
        if self.leaves:
            need(self.zones == 1, f"leaves and {self.zones} zones (below leaves all hosts are in one zone)")
            need(self.hosts >= self.leaves, f"{self.hosts} hosts do not fit {self.leaves} leaves")
        need(0 <= self.uplink_mbps <= 100_000, f"an uplink of {self.uplink_mbps} Mbit/s (up to 100000)")
        need(8 <= self.disk_mb <= 1_000_000, f"a disk of {self.disk_mb} MB (8 to 1000000)")
        need(bool(re.fullmatch(r"[a-z0-9_]+", self.congestion_control)), "the congestion control has no name")
        names = {name for name, _, _ in host_names(self)}
        for name, bad in self.degrade.items():
            need(name in names, f"there is no host {name} to degrade, only {', '.join(sorted(names))}")
            need(bad.rate_mbps is None or bad.rate_mbps >= 0.1, f"{name}'s rate is {bad.rate_mbps} Mbit/s")
            need(0 <= bad.loss_pct < 100, f"{name}'s loss is {bad.loss_pct} %")
            need(0 <= bad.delay_ms <= 10_000, f"{name}'s delay is {bad.delay_ms} ms")

    @property
    def uplink_rate_mbps(self) -> float:
        """Of one link between a leaf and a spine."""
        return self.uplink_mbps or self.link_mbps

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> LabSpec:
        degrade = {name: Degrade(**bad) for name, bad in data["degrade"].items()}
        return cls(**{**data, "degrade": degrade, "share": tuple(data["share"])})


@dataclass(frozen=True, slots=True)
class LabHost:
    """One host of a plan; `rate_mbps` is what its link really carries, which may be less than declared.
    `bridge` is the switch it hangs on, its zone's or its leaf's; `leaf` is "" without leaves."""

    name: str
    zone: str
    leaf: str
    bridge: str
    address: str
    mac: str
    gateway: str
    rate_mbps: float
    loss_pct: float
    delay_ms: float
    gpus: tuple[str, ...]


def zone_name(number: int) -> str:
    return f"zone{number}"


def leaf_name(number: int) -> str:
    return f"leaf{number}"


def dscp_of(spine: int) -> int:
    """The code point by which the lab's leaves send a packet over this spine, from 0 on: those for local use
    (RFC 2474, Sec. 6, pool 2)."""
    return 4 * spine + 3


def switches(spec: LabSpec) -> dict[str, int]:
    """The switches that hosts hang on: the number of each one's network, from 1 on."""
    if spec.leaves:
        return {leaf_name(number): number for number in range(1, spec.leaves + 1)}
    return {zone_name(number): number for number in range(1, spec.zones + 1)}


def host_names(spec: LabSpec) -> list[tuple[str, int, int]]:
    """(name, zone number, number in the zone), both counted from 1."""
    base, rest = divmod(spec.hosts, spec.zones)
    return [
        (f"z{zone}h{number}", zone, number)
        for zone in range(1, spec.zones + 1)
        for number in range(1, base + (zone <= rest) + 1)
    ]


def network(slot: int) -> str:
    """A lab's first two octets; each lab of this machine has a slot of its own."""
    return f"10.{64 + slot}"


def plan_hosts(spec: LabSpec, slot: int) -> list[LabHost]:
    hosts = []
    for name, zone, number in host_names(spec):
        bad = spec.degrade.get(name, Degrade())
        where, nth = _below(spec, number) if spec.leaves else (zone, number)
        leaf = leaf_name(where) if spec.leaves else ""
        last = FIRST_HOST + nth - 1
        hosts.append(
            LabHost(
                name=name,
                zone=zone_name(zone),
                leaf=leaf,
                bridge=leaf or zone_name(zone),
                address=f"{network(slot)}.{where}.{last}",
                # fixed, so that a rebooted host is reachable at once: a stale ARP entry lasts 30 s
                mac=f"02:72:{64 + slot:02x}:00:{where:02x}:{last:02x}",
                gateway=f"{network(slot)}.{where}.1",
                rate_mbps=spec.link_mbps if bad.rate_mbps is None else bad.rate_mbps,
                loss_pct=bad.loss_pct,
                delay_ms=bad.delay_ms,
                gpus=tuple(
                    f"GPU-{uuid.uuid5(GPU_NAMESPACE, f'{slot}/{name}/{index}')}"
                    for index in range(spec.gpus_per_host)
                ),
            )
        )
    return hosts


def _below(spec: LabSpec, number: int) -> tuple[int, int]:
    """The leaf of the host of this number, and its number below the leaf, all from 1 on."""
    base, rest = divmod(spec.hosts, spec.leaves)
    first = 1
    for leaf in range(1, spec.leaves + 1):
        here = base + (leaf <= rest)
        if number < first + here:
            return leaf, number - first + 1
        first += here
    raise AssertionError(f"no leaf has host {number}")


_UNITS = {
    "rate": {"kbit": 1e-3, "mbit": 1.0, "gbit": 1e3, "": 1.0},
    "loss": {"%": 1.0, "": 1.0},
    "delay": {"us": 1e-3, "ms": 1.0, "s": 1e3, "": 1.0},
}
_FIELD = {"rate": "rate_mbps", "loss": "loss_pct", "delay": "delay_ms"}


def parse_degrade(text: str) -> tuple[str, Degrade]:
    """Reads `HOST:rate=10mbit,loss=5,delay=20ms` (plain numbers: Mbit/s, percent, milliseconds)."""
    host, colon, settings = text.partition(":")
    values: dict[str, float] = {}
    for setting in settings.split(","):
        match = re.fullmatch(r"\s*(rate|loss|delay)=([0-9]+(?:\.[0-9]+)?)\s*([a-z%]*)\s*", setting)
        unit = _UNITS[match[1]].get(match[3]) if match else None
        if not host or not colon or match is None or unit is None or not math.isfinite(float(match[2])):
            raise UsageError(
                f"`{text}` does not say how to degrade a host.",
                "Write it as HOST:rate=10mbit,loss=5,delay=20ms, with any of the three settings.",
            )
        values[_FIELD[match[1]]] = float(match[2]) * unit
    return host, Degrade(**values)
