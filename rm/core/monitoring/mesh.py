"""Meshes: which hosts test each other, how, when, and with which thresholds.

A mesh is a table `[[monitor.mesh]]` of rm.toml; `parse_mesh` turns it into a value, or says in one
sentence what is wrong with it, so that one malformed mesh does not stop the others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from rm.core.model.host import Host, selected
from rm.core.monitoring.continuous import LATENCYBG, continuous
from rm.core.monitoring.listed import heading, names_of
from rm.core.monitoring.maintenance import Window, parse_window
from rm.core.monitoring.metrics import ON_REQUEST, SERVICES, checks_of_test
from rm.core.monitoring.service_test import ServiceTest, read_record, read_url
from rm.errors import ConfigError, UsageError
from rm.units import DAY_US, HOUR_US, MINUTE_US, SECOND_US, parse_duration_us

TESTS = ("latency", LATENCYBG, "throughput", "mtu", "trace", "clock", "dns", "http")
LINK_TESTS = ("latency", LATENCYBG, "throughput", "mtu")  # what placement uses comes from these
BETWEEN = ("representatives", "all", "none")
LEAST_EVERY_US = SECOND_US


@dataclass(frozen=True, slots=True)
class Every:
    """At an interval."""

    interval_us: int


@dataclass(frozen=True, slots=True)
class Cron:
    """At the minutes that a cron expression of five fields names."""

    expression: str


Schedule = Every | Cron


@dataclass(frozen=True, slots=True)
class Thresholds:
    """From what on a cell is a warning or critical; 0 = never.

    `_over_ms` is what a delay is above the usual one of the peers (`rm.core.monitoring.peers`), `_share_pct`
    what a bandwidth is of theirs.
    """

    loss_warn_pct: float = 0.0
    loss_critical_pct: float = 0.0
    delay_warn_ms: float = 0.0
    delay_critical_ms: float = 0.0
    delay_warn_over_ms: float = 5.0
    delay_critical_over_ms: float = 15.0
    delay_p95_warn_ms: float = 0.0
    delay_p95_critical_ms: float = 0.0
    delay_p95_warn_over_ms: float = 0.0
    delay_p95_critical_over_ms: float = 0.0
    jitter_warn_ms: float = 0.0
    jitter_critical_ms: float = 0.0
    jitter_warn_over_ms: float = 0.0
    jitter_critical_over_ms: float = 0.0
    clock_warn_ms: float = 0.0
    clock_critical_ms: float = 0.0
    bandwidth_warn_mbps: float = 0.0
    bandwidth_critical_mbps: float = 0.0
    bandwidth_warn_share_pct: float = 60.0
    bandwidth_critical_share_pct: float = 30.0
    mtu_warn_bytes: float = 0.0
    mtu_critical_bytes: float = 0.0
    trace_warn_hops: float = 0.0
    trace_critical_hops: float = 0.0
    dns_warn_ms: float = 0.0
    dns_critical_ms: float = 0.0
    http_warn_ms: float = 0.0
    http_critical_ms: float = 0.0

    def any_of(self, check: str) -> bool:
        """Is there one for this check?"""
        kinds = ("ms", "over_ms", "pct", "mbps", "share_pct", "bytes", "hops")
        levels = ("warn", "critical")
        return any(getattr(self, f"{check}_{level}_{kind}", 0.0) for level in levels for kind in kinds)


USUAL = Thresholds(loss_warn_pct=0.5, loss_critical_pct=2.0)  # where rm.toml names none


@dataclass(frozen=True, slots=True)
class Mesh:
    """One mesh.

    `hosts` are names or patterns and `zones` names (empty = all); inside a zone every pair is measured,
    `between` zones the pairs of one representative each, all, or none. With `towards`, also names or
    patterns, each of the hosts is measured with each of these instead, in any zone. Pairs named in `without`
    are left out. A run makes up to `rounds` rounds,
    in each of which a host has at most one partner (0 = all rounds); the next run continues
    where it stopped, so that a run costs a host a bounded number of tests, however large its zone is. In a
    larger zone, or among more representatives, each has up to `peers` partners (0 = all),
    spread over the zone, so that the measurements grow with the hosts and not with their square.
    Throughput is tested in the gaps of the jobs that share the links, unless it may `disturb` them.
    `slip_us`: a run that is later than this is left out (0 = it never is).
    `spacing_us` 0: the packets of a scheduled test are spread over the time that the run has for it, so that
    a link that is dead for seconds now and then shows.
    A mesh of `dns` or `http` tests has no pairs: each host asks a `service` by itself, in every run.
    One of `latencybg` has no runs: a packet goes every `spacing_us`, and each `packets` of them are a result.
    """

    name: str
    schedule: Schedule = Every(MINUTE_US)
    hosts: tuple[str, ...] = ()
    zones: tuple[str, ...] = ()
    towards: tuple[str, ...] = ()
    without: frozenset[frozenset[str]] = frozenset()
    between: str = "representatives"
    tests: tuple[str, ...] = ("latency",)
    rounds: int = 8
    peers: int = 100
    jitter_us: int = 0
    slip_us: int = 0
    attempts: int = 3
    packets: int = 100
    spacing_us: int = 0
    duration_us: int = 400_000
    rate_bps: int = 0
    disturb: bool = False
    service: ServiceTest = field(default_factory=ServiceTest)
    thresholds: Thresholds = field(default_factory=Thresholds)
    maintenance: tuple[Window, ...] = ()

    @property
    def is_of_services(self) -> bool:
        """Does each host test by itself?"""
        return any(test in SERVICES for test in self.tests)

    @property
    def is_continuous(self) -> bool:
        """Does it measure without a pause?"""
        return LATENCYBG in self.tests

    @property
    def is_of_links(self) -> bool:
        """Does it find what placement uses?"""
        return any(test in LINK_TESTS for test in self.tests)

    def selects(self, host: Host) -> bool:
        """Does the host take part?"""
        return selected(host, self.hosts, self.zones) or self.is_target(host)

    def is_target(self, host: Host) -> bool:
        return bool(self.towards) and selected(host, self.towards, self.zones)

    def sides(self, hosts: Iterable[Host]) -> tuple[list[Host], list[Host]]:
        """Which hosts are measured `towards` which."""
        known = list(hosts)
        one = [h for h in known if selected(h, self.hosts, self.zones)]
        return one, [h for h in known if self.is_target(h)]

    @property
    def checks(self) -> tuple[str, ...]:
        """The checks of the grid that its tests serve."""
        return tuple(
            dict.fromkeys(
                check
                for test in TESTS
                if test in self.tests
                for check in checks_of_test(test)
                if test not in ("latency", LATENCYBG)
                or check not in ON_REQUEST
                or self.thresholds.any_of(check)
            )
        )


@dataclass(frozen=True, slots=True)
class MeshState:
    """What the daemon remembers of a mesh from run to run, and over its own restarts.

    `turn` is the round with which the next run begins, of the `cycle` rounds that there are.
    """

    mesh: str
    paused_by: str = ""
    begun_us: int = 0
    ended_us: int = 0
    turn: int = 0
    cycle: int = 0
    measured: int = 0
    failed: int = 0
    skipped: int = 0  # throughput tests for which the jobs left no gap
    message: str = ""

    def counting(self, pairs: Iterable[tuple[bool, int]]) -> MeshState:
        """With more pairs: whether each was measured, and for how many of its tests there was no gap."""
        ok = failed = skipped = 0
        for measured, without_gap in pairs:
            ok, failed, skipped = ok + measured, failed + (not measured), skipped + without_gap
        return replace(
            self, measured=self.measured + ok, failed=self.failed + failed, skipped=self.skipped + skipped
        )


def usual(interval_us: int, throughput_interval_us: int, packets: int) -> tuple[Mesh, ...]:
    """The meshes of an rm.toml that names none."""
    return (
        Mesh("latency", Every(interval_us), jitter_us=2 * SECOND_US, packets=packets, thresholds=USUAL),
        Mesh("throughput", Every(throughput_interval_us), tests=("throughput",), jitter_us=30 * SECOND_US),
        Mesh("mtu", Every(6 * HOUR_US), tests=("mtu",), jitter_us=60 * SECOND_US),
    )


def parse_schedule(text: object) -> Schedule:
    """`every 60s`, or a cron expression of five fields (which the timers then look at closely).

    Raises:
        ConfigError: it is neither.
    """
    if isinstance(text, str):
        word, _, rest = text.strip().partition(" ")
        if word.lower() == "every":
            try:
                interval_us = parse_duration_us(rest)
            except UsageError as error:
                raise ConfigError(error.what, error.hint) from None
            if not LEAST_EVERY_US <= interval_us <= 366 * DAY_US:
                raise ConfigError(f"'{text}' is not between a second and a year.")
            return Every(interval_us)
        if len(text.split()) == 5:
            return Cron(" ".join(text.split()))
    raise ConfigError(
        f"{text!r:.60} is not a schedule.", "Write 'every 60s', or a cron expression such as '*/5 * * * *'."
    )


def parse_mesh(table: Mapping[str, Any]) -> Mesh:
    """A mesh from its table.

    Raises:
        ConfigError: what is wrong, naming the mesh and the key.
    """
    name, where = heading("mesh", table, KEYS)
    values: dict[str, Any] = {"name": name}
    for key, value in table.items():
        if key != "name" and key not in LIMITS:
            try:
                made = READ[key](value)
            except (ConfigError, UsageError) as error:
                raise ConfigError(f"{where}, {key}: {error.what}", error.hint) from None
            values[FIELD.get(key, key)] = made
    values["thresholds"] = thresholds_of(table, where)
    service = {key: values.pop(key) for key in OF_SERVICE if key in values}
    try:
        if LATENCYBG in values.get("tests", ()):
            values = continuous(values, table)
            values["schedule"] = Every(values["packets"] * values["spacing_us"])
        mesh = Mesh(**values, service=ServiceTest(**service))
        _must_be_whole(mesh, service)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error.what}", error.hint) from None
    return mesh


def _must_be_whole(mesh: Mesh, service: Mapping[str, Any]) -> None:
    """Raises ConfigError where the keys do not make a test together."""
    of_services = [test for test in mesh.tests if test in SERVICES]
    if of_services and len(of_services) < len(mesh.tests):
        raise ConfigError(
            f"a host tests {of_services[0]} by itself, the others with another host.",
            "Make two meshes of it.",
        )
    if of_services and (mesh.towards or mesh.without):
        raise ConfigError(f"a host tests {of_services[0]} by itself.", "Leave out 'towards' and 'without'.")
    for test, needed in (("dns", "query"), ("http", "url")):
        if test in mesh.tests and not service.get(needed):
            raise ConfigError(f"a test '{test}' needs '{needed}'.")
    for key, of in OF_SERVICE.items():
        if key in service and not set(of) & set(mesh.tests):
            raise ConfigError(f"'{key}' is of tests of the kind {' or '.join(of)}.")


def thresholds_of(table: Mapping[str, Any], where: str) -> Thresholds:
    """Those among the table's keys; `where` names it in errors. Raises ConfigError."""
    given = {}
    for name in LIMITS:
        value = table.get(name, getattr(UNSAID, name))
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
            raise ConfigError(
                f"{where}, {name}: {value!r:.40} is not a threshold.", "Write a number; 0 = none."
            )
        given[name] = float(value)
    for metric, unit in GRADED_BY:
        warn, critical = given[f"{metric}_warn_{unit}"], given[f"{metric}_critical_{unit}"]
        wrong = warn < critical if metric in ("bandwidth", "mtu") else warn > critical
        if warn and critical and wrong:
            raise ConfigError(
                f"{where}: {metric} would be critical before it is a warning ({critical:g} and {warn:g})."
            )
    return Thresholds(**given)


UNSAID = Thresholds()
GRADED_BY = (
    ("loss", "pct"),
    ("delay", "ms"),
    ("delay", "over_ms"),
    ("delay_p95", "ms"),
    ("delay_p95", "over_ms"),
    ("jitter", "ms"),
    ("jitter", "over_ms"),
    ("clock", "ms"),
    ("bandwidth", "mbps"),
    ("bandwidth", "share_pct"),
    ("mtu", "bytes"),
    ("trace", "hops"),
    ("dns", "ms"),
    ("http", "ms"),
)


def _pairs(value: object) -> frozenset[frozenset[str]]:
    if isinstance(value, list | tuple) and all(
        isinstance(pair, list | tuple)
        and len(pair) == 2
        and all(isinstance(v, str) and v for v in pair)
        and pair[0] != pair[1]
        for pair in value
    ):
        return frozenset(map(frozenset, value))
    raise ConfigError(f"{value!r:.60} is not a list of pairs of hosts.", 'Write [["a", "b"], ["a", "c"]].')


def _tests(value: object) -> tuple[str, ...]:
    names = names_of(value)
    for name in names:
        if name not in TESTS:
            raise ConfigError(f"there is no test '{name}'.", f"There are {', '.join(TESTS)}.")
    if not names:
        raise ConfigError("it names no test.", f"There are {', '.join(TESTS)}.")
    return names


def _between(value: object) -> str:
    if value not in BETWEEN:
        raise ConfigError(f"{value!r:.40} is not one of {', '.join(BETWEEN)}.")
    return str(value)


def _whole(least: int, most: int) -> Any:
    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ConfigError(f"{value!r:.40} is not a whole number from {least} to {most}.")
        return value

    return read


def _seconds(most: float, least: float = 0.0) -> Any:
    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            raise ConfigError(f"{value!r:.40} is not a number of seconds from {least:g} to {most:g}.")
        return round(value * SECOND_US)

    return read


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(f"{value!r:.40} is neither true nor false.")
    return value


def _mbps(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ConfigError(f"{value!r:.40} is not a rate in Mbit/s.")
    return round(value * 1e6)


def _word(value: object) -> str:
    if isinstance(value, str) and value and len(value) <= 255 and value.isprintable():
        return value
    raise ConfigError(f"{value!r:.60} is not a name.")


def _windows(value: object) -> tuple[Window, ...]:
    return tuple(parse_window(text) for text in names_of(value))


READ: Mapping[str, Any] = {
    "schedule": parse_schedule,
    "hosts": names_of,
    "zones": names_of,
    "towards": names_of,
    "without": _pairs,
    "between": _between,
    "tests": _tests,
    "rounds": _whole(0, 100_000),
    "peers": _whole(0, 100_000),
    "jitter_s": _seconds(86_400),
    "slip_s": _seconds(366 * 86_400),
    "retry_attempts": _whole(1, 1_000),
    "packets": _whole(1, 100_000),
    "spacing_s": _seconds(10),
    "duration_s": _seconds(60, 0.001),
    "rate_mbps": _mbps,
    "disturb": _flag,
    "query": _word,
    "record": read_record,
    "nameserver": _word,
    "url": read_url,
    "contains": _word,
    "timeout_s": _seconds(60, 0.1),
    "maintenance": _windows,
}
FIELD = {
    "jitter_s": "jitter_us",
    "slip_s": "slip_us",
    "retry_attempts": "attempts",
    "spacing_s": "spacing_us",
    "duration_s": "duration_us",
    "rate_mbps": "rate_bps",
    "timeout_s": "timeout_us",
}
OF_SERVICE = {  # fields of ServiceTest, and the tests that they are of
    "query": ("dns",),
    "record": ("dns",),
    "nameserver": ("dns",),
    "url": ("http",),
    "contains": ("http",),
    "timeout_us": SERVICES,
}
LIMITS = tuple(f.name for f in fields(Thresholds))
KEYS = ("name", *READ, *LIMITS)
