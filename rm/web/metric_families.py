"""The metrics for Prometheus: the API's answers as families of metrics.

Names follow Prometheus' conventions: base units (seconds, ratios), `_total` for what only grows,
`_info` for text. Throughput and capacity are therefore in bytes a second, and not in bit/s as elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric

from rm.core.model.host import Host, HostState
from rm.core.model.job import Job, JobState
from rm.core.model.snapshot import Free
from rm.core.sharing.ended import WAIT_KINDS, Sums
from rm.units import SECOND_US
from rm.web.ports import Reasons

# Every direction between 50 hosts. Where there are more directions only zones are listed: a series each
# for a million of them would fell the one who stores them.
PAIRS_MOST = 2_500
JOBS_MOST = 200  # running jobs with series of their own
BITS = 8.0

PAIR_METRICS = (
    ("rm_pair_loss_ratio", "Share of lost packets, one way.", "loss_pct", 100.0),
    ("rm_pair_delay_seconds", "One-way delay.", "delay_us", SECOND_US),
    ("rm_pair_jitter_seconds", "Variation of the one-way delay.", "jitter_us", SECOND_US),
    ("rm_pair_bandwidth_bytes_per_second", "Throughput of the newest test.", "bandwidth_bps", BITS),
    ("rm_pair_age_seconds", "Since loss and delay were last measured.", "age_us", SECOND_US),
    ("rm_pair_confidence_ratio", "Confidence in the measurement.", "confidence", 1.0),
)
ZONE_METRICS = (
    ("rm_zones_loss_ratio", "Share of lost packets between hosts of two zones.", "loss_pct", 100.0, max),
    ("rm_zones_delay_seconds", "One-way delay between hosts of two zones.", "delay_us", SECOND_US, max),
    (
        "rm_zones_bandwidth_bytes_per_second",
        "Throughput between two zones.",
        "bandwidth_bps",
        BITS,
        min,
    ),
)


@dataclass(frozen=True, slots=True)
class Told:
    """What the service answered; `failed` names the parts that it could not answer."""

    status: Mapping[str, Any] = field(default_factory=dict)
    hosts: Sequence[tuple[Host, Free | None, Sequence[int]]] = ()
    jobs: Sequence[Job] = ()
    reasons: Reasons | None = None  # why those wait that do
    iterations: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    links: Sequence[Mapping[str, Any]] = ()
    pairs: Sequence[Mapping[str, Any]] = ()
    meshes: Sequence[Mapping[str, Any]] = ()
    sources: Sequence[Mapping[str, Any]] = ()
    archives: Sequence[Mapping[str, Any]] = ()
    accounts: Mapping[str, Sums] = field(default_factory=dict)
    failed: Sequence[str] = ()
    now_us: int = 0


def families(told: Told) -> Iterator[Metric]:
    """All families, also those without a sample, so that a dashboard can tell "none" from "unknown"."""
    yield _gauge(
        "rm_scrape_part_failed", "Parts of this answer that the daemon could not give.", ["part"],
        [([part], 1) for part in told.failed],
    )  # fmt: skip
    yield from _daemon(told)
    yield from _hosts(told.hosts)
    yield from _queue(told)
    yield from _jobs(told)
    yield from _links(told.links)
    yield from _pairs(told)
    yield from _meshes(told.meshes)
    yield from _sources(told.sources)
    yield from _archives(told.archives)
    yield from _accounts(told.accounts)


def _gauge(
    name: str, text: str, labels: Sequence[str], rows: Iterable[tuple[Sequence[str], float | None]]
) -> Metric:
    family = GaugeMetricFamily(name, text, labels=labels)
    for values, value in rows:
        if value is not None:
            family.add_metric(values, float(value))
    return family


def _daemon(told: Told) -> Iterator[Metric]:
    facts = told.status.get("daemon", {})
    info = InfoMetricFamily("rm_build", "The daemon's version.")
    policies = InfoMetricFamily("rm_policies", "The policies in force.")
    if facts:
        info.add_metric([], {"version": str(facts["version"])})
        policies.add_metric([], {k: str(v) for k, v in told.status.get("policies", {}).items()})
    yield info
    yield policies
    one: list[str] = []
    yield _gauge("rm_leader_epoch", "One more at each change of the leader.", [], [(one, facts.get("epoch"))])
    started_us = facts.get("started_us")
    yield _gauge(
        "rm_start_time_seconds", "When the daemon started, since the epoch.", [],
        [(one, None if started_us is None else started_us / SECOND_US)],
    )  # fmt: skip
    for name, text, states in (
        ("rm_hosts", "Hosts by state.", list(HostState)),
        ("rm_jobs", "Jobs in memory by state: unfinished ones, and those that ended lately.", list(JobState)),
    ):
        counts = told.status.get(name.removeprefix("rm_"))
        rows = [([str(s)], counts.get(s, 0)) for s in states] if counts is not None else []
        yield _gauge(name, text, ["state"], rows)


def _hosts(hosts: Sequence[tuple[Host, Free | None, Sequence[int]]]) -> Iterator[Metric]:
    names = ["host", "zone"]

    def each(name: str, text: str, value: Any) -> Metric:
        rows = [([h.name, h.zone], value(h, free, jobs)) for h, free, jobs in hosts]
        return _gauge(name, text, names, rows)

    yield each("rm_host_up", "1 if the host's agent answers.", lambda h, f, j: h.state not in _AWAY)
    yield each("rm_host_schedulable", "1 if the host takes new jobs.", lambda h, f, j: h.schedulable)
    yield each("rm_host_jobs", "Jobs on the host.", lambda h, f, j: len(j))
    yield each("rm_host_cpus", "Processors of the host.", lambda h, f, j: h.cpus)
    yield each("rm_host_cpus_free", "Processors that no job has.", lambda h, f, j: f.cpus if f else None)
    yield each("rm_host_gpus", "GPUs of the host.", lambda h, f, j: len(h.gpus))
    yield each("rm_host_gpus_free", "GPUs that no job has.", lambda h, f, j: len(f.gpus) if f else None)


_AWAY = (HostState.DOWN, HostState.UNKNOWN)


def _queue(told: Told) -> Iterator[Metric]:
    pending = [j for j in told.jobs if j.state is JobState.PENDING]
    reasons: dict[str, int] = {}
    for job in pending:
        reason = job.reason if told.reasons is None else told.reasons.of_job(job)
        code = str(reason.code) if reason else "NONE"
        reasons[code] = reasons.get(code, 0) + 1
    rows = [([code], count) for code, count in sorted(reasons.items())]
    yield _gauge("rm_queue_jobs", "Waiting jobs by the reason why they wait.", ["reason"], rows)
    oldest_us = min((j.submitted_us for j in pending), default=told.now_us)
    waited = max(0.0, (told.now_us - oldest_us) / SECOND_US)
    yield _gauge("rm_queue_oldest_seconds", "How long the first submitted job waits.", [], [([], waited)])


def _jobs(told: Told) -> Iterator[Metric]:
    running = [j for j in told.jobs if j.id in told.iterations]
    info = InfoMetricFamily("rm_job", "A running job.", labels=["job_id"])
    iterations = CounterMetricFamily("rm_job_iterations", "Iterations that it reported.", labels=["job_id"])
    pauses = CounterMetricFamily("rm_job_pauses", "Pauses by which it was re-timed.", labels=["job_id"])
    baseline = GaugeMetricFamily(
        "rm_job_iteration_baseline_seconds", "The iteration time that its slot allows.", labels=["job_id"]
    )
    times = GaugeMetricFamily(
        "rm_job_iteration_seconds", "Its newest iterations, at most 1000.", labels=["job_id", "stat"]
    )
    for job in running:
        one, mine = told.iterations[job.id], [str(job.id)]
        info.add_metric(mine, {"name": job.spec.name, "user": job.spec.user})
        iterations.add_metric(mine, one["count"])
        pauses.add_metric(mine, one["pauses"])
        if one["baseline_us"] is not None:
            baseline.add_metric(mine, one["baseline_us"] / SECOND_US)
        for stat in ("mean", "p90", "p99"):
            if one[f"{stat}_us"] is not None:
                times.add_metric([*mine, stat], one[f"{stat}_us"] / SECOND_US)
    yield from (info, iterations, pauses, baseline, times)


ACCOUNT_METRICS = (
    ("rm_account_jobs_ended", "Jobs of the account that ended.", "jobs", 1.0),
    ("rm_account_jobs_failed", "Jobs that did not complete.", "failed", 1.0),
    ("rm_account_waited_seconds", "Time that they waited for their start.", "waited_us", SECOND_US),
    ("rm_account_slowed_seconds", "Time that they lost to others on their links.", "slowed_us", SECOND_US),
    ("rm_account_saved_seconds", "Time that interleaving saved, as estimated.", "saved_us", SECOND_US),
    ("rm_account_cpu_held_seconds", "Time of processors that they held.", "cpu_us", SECOND_US),
    ("rm_account_cpu_used_seconds", "Time of processors that they used.", "cpu_busy_us", SECOND_US),
    ("rm_account_gpu_held_seconds", "Time of GPUs that they held.", "gpu_us", SECOND_US),
    ("rm_account_gpu_watched_seconds", "Of it the part that was watched.", "gpu_watched_us", SECOND_US),
    ("rm_account_gpu_busy_seconds", "Of that the part that was busy.", "gpu_busy_us", SECOND_US),
    ("rm_account_gpu_energy_joules", "What GPUs drew meanwhile.", "energy_mj", 1000.0),
)


def _accounts(accounts: Mapping[str, Sums]) -> Iterator[Metric]:
    for name, text, number, unit in ACCOUNT_METRICS:
        family = CounterMetricFamily(name, text, labels=["account"])
        for account, sums in sorted(accounts.items()):
            family.add_metric([account], getattr(sums, number) / unit)
        yield family
    waits = CounterMetricFamily(
        "rm_account_waited_for_seconds",
        "Time from the submission until they had hosts, by what they waited for.",
        labels=["account", "kind"],
    )
    for account, sums in sorted(accounts.items()):
        for kind in WAIT_KINDS:
            waits.add_metric([account, kind], getattr(sums, f"waited_{kind}_us") / SECOND_US)
    yield waits


def _links(links: Sequence[Mapping[str, Any]]) -> Iterator[Metric]:
    def each(name: str, text: str, key: str, unit: float = 1.0) -> Metric:
        rows = [([k["name"]], None if k[key] is None else k[key] / unit) for k in links]
        return _gauge(name, text, ["link"], rows)

    yield each("rm_link_capacity_bytes_per_second", "What the link carries.", "capacity_bps", BITS)
    yield _gauge(
        "rm_link_jobs", "Jobs that use it.", ["link"], [([k["name"]], len(k["jobs"])) for k in links]
    )
    yield each("rm_link_score", "Compatibility of its jobs; 100 = they never meet.", "score")
    yield each(
        "rm_link_period_seconds", "The circle on which its jobs are aligned.", "perimeter_us", SECOND_US
    )
    yield each(
        "rm_link_gap_seconds", "The smallest gap between phases of different jobs.", "gap_us", SECOND_US
    )
    turned = [
        ([k["name"], str(r["job"])], r["slots"] / r["circle_slots"])
        for k in links
        for r in map(_plain, k["rotations"])
    ]
    yield _gauge("rm_link_rotation_ratio", "A job's rotation, in circles.", ["link", "job_id"], turned)


def _plain(rotation: Any) -> Mapping[str, Any]:
    if isinstance(rotation, Mapping):
        return rotation
    return {"job": rotation.job, "slots": rotation.slots, "circle_slots": rotation.circle_slots}


def _pairs(told: Told) -> Iterator[Metric]:
    everything = told.pairs
    yield _gauge("rm_network_pairs", "Directions that were measured.", [], [([], len(everything))])
    left_out = len(everything) if len(everything) > PAIRS_MOST else 0
    yield _gauge(
        "rm_network_pairs_left_out", "Directions that have no series of their own here: there are too many.",
        [], [([], left_out)],
    )  # fmt: skip
    pairs = [] if left_out else everything
    names = ["source", "destination"]
    both = [([p["source"], p["destination"]], p) for p in pairs]
    for name, text, key, unit in PAIR_METRICS:
        rows = [(labels, None if p.get(key) is None else p[key] / unit) for labels, p in both]
        yield _gauge(name, text, names, rows)
    tried = [(labels, p.get("failures", 0) == 0) for labels, p in both if p.get("failures") is not None]
    yield _gauge("rm_probe_success", "1 if the newest try to measure succeeded.", names, tried)
    yield from _zones(told)


def _zones(told: Told) -> Iterator[Metric]:
    zones = {host.name: host.zone for host, _, _ in told.hosts}
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for pair in told.pairs:
        a, b = zones.get(pair["source"]), zones.get(pair["destination"])
        if a is not None and b is not None:
            groups.setdefault((a, b), []).append(pair)
    if len(groups) > PAIRS_MOST:
        groups = {}
    for name, text, key, unit, worst in ZONE_METRICS:
        rows: list[tuple[Sequence[str], float | None]] = []
        for (a, b), members in sorted(groups.items()):
            values = [p[key] / unit for p in members if p.get(key) is not None]
            if values:
                rows += [([a, b, "median"], median(values)), ([a, b, "worst"], worst(values))]
        yield _gauge(name, text, ["source_zone", "destination_zone", "stat"], rows)


def _meshes(meshes: Sequence[Mapping[str, Any]]) -> Iterator[Metric]:
    def each(name: str, text: str, value: Any) -> Metric:
        return _gauge(name, text, ["mesh"], [([m["name"]], value(m)) for m in meshes])

    cells = [([m["name"], word], count) for m in meshes for word, count in m["statuses"].items()]
    yield _gauge("rm_mesh_cells", "Cells of the mesh's grid by status.", ["mesh", "status"], cells)
    yield each("rm_mesh_measured", "Pairs that its newest run measured.", lambda m: m["measured"])
    yield each("rm_mesh_failed", "Pairs that its newest run could not measure.", lambda m: m["failed"])
    yield each("rm_mesh_skipped", "Tests for which jobs left no gap.", lambda m: m["skipped"])
    yield each("rm_mesh_paused", "1 if somebody paused it.", lambda m: m["state"] == "paused")
    yield each(
        "rm_mesh_last_run_timestamp_seconds", "When its newest run ended, since the epoch.",
        lambda m: m["ended_us"] / SECOND_US if m["ended_us"] else None,
    )  # fmt: skip


def _sources(sources: Sequence[Mapping[str, Any]]) -> Iterator[Metric]:
    def each(name: str, text: str, value: Any) -> Metric:
        return _gauge(name, text, ["source"], [([s["name"]], value(s)) for s in sources])

    yield each(
        "rm_source_up", "1 if the archive answered the newest request.",
        lambda s: s["read_us"] == s["tried_us"] if s["tried_us"] else None,
    )  # fmt: skip
    yield each("rm_source_recorded", "New measurements in the newest answer.", lambda s: s["recorded"])
    yield each("rm_source_refused", "Impossible measurements.", lambda s: s["refused"])
    yield each(
        "rm_source_last_success_timestamp_seconds", "When the archive last answered, since the epoch.",
        lambda s: s["read_us"] / SECOND_US if s["read_us"] else None,
    )  # fmt: skip


def _archives(archives: Sequence[Mapping[str, Any]]) -> Iterator[Metric]:
    def each(name: str, text: str, value: Any) -> Metric:
        return _gauge(name, text, ["archive"], [([a["name"]], value(a)) for a in archives])

    yield each("rm_archive_waiting", "Results that wait for the archive.", lambda a: a["waiting"])
    yield each(
        "rm_archive_dropped", "Results that were given up since the daemon leads.", lambda a: a["dropped"]
    )
    yield each(
        "rm_archive_last_success_timestamp_seconds", "When the archive last took a result, since the epoch.",
        lambda a: a["sent_us"] / SECOND_US if a["sent_us"] else None,
    )  # fmt: skip
