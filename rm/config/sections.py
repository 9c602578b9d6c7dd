"""The sections of rm.toml, one type each: every key with its default and its bounds.

The shipped rm.toml documents each key. Durations carry their unit in the name (`_s`, seconds).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_type_hints

import msgspec

Positive = Annotated[float, msgspec.Meta(gt=0, le=1e12)]
NotNegative = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Score = Annotated[float, msgspec.Meta(ge=0, le=100)]
Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
AtLeastOne = Annotated[int, msgspec.Meta(ge=1, lt=1 << 62)]
Options = Mapping[str, Any]


class DaemonConfig(msgspec.Struct, frozen=True):
    """`url`, `peers`, `ca_file` and `token_file` are for clients (`rm.client.address`)."""

    socket: str = ""
    advertise: str = ""
    url: str = ""
    peers: tuple[str, ...] = ()
    ca_file: str = ""
    token_file: str = ""
    state_dir: str = ""
    database: str = ""
    log_dir: str = ""
    lease_s: Positive = 3.0
    journal_days: NotNegative = 14.0
    log_level: str = "info"
    log_json: bool = False
    admins: tuple[str, ...] = ()
    shared: bool = False


class JobsConfig(msgspec.Struct, frozen=True):
    grace_s: NotNegative = 30.0
    unkillable_s: NotNegative = 600.0
    allow_root: bool = False
    run_root_as: str = ""
    output: str = ""
    deliver: str = "rm-%j.out"
    partition: str = ""
    launch: Literal["auto", "tasks", "batch"] = "auto"
    clients: Literal["submit", "read", "off"] = "submit"
    cluster_name: str = "rm"
    gpu_ids: Literal["uuid", "index"] = "uuid"
    time_limit: str = "UNLIMITED"
    recent_s: NotNegative = 300.0
    keep_days: Positive = 30
    keep_finished: Count = 100_000
    usage_days: Positive = 800
    max_log_bytes: Count = 64 * 1024 * 1024
    max_losses: Count = 2
    max_requeues: Count = 0
    slice_s: NotNegative = 1.0
    dependency_never: Literal["cancel", "keep"] = "cancel"
    fence: str = "0"
    partition_fences: tuple[str, ...] = ()
    licenses: tuple[str, ...] = ()
    mail: str = ""
    prolog: str = ""
    epilog: str = ""
    program_s: Annotated[float, msgspec.Meta(gt=0, le=120)] = 60.0


class FenceConfig(msgspec.Struct, frozen=True):
    """What keeps a job on a host to what it was given. `rm.daemon.execution.fence` reads `limits`."""

    gpus: bool = True
    cpus: Literal["weight", "limit", "cores", "off"] = "weight"
    processes: Annotated[int, msgspec.Meta(ge=0, lt=1 << 22)] = 65_536
    private_tmp: str = ""
    private_ipc: bool = True
    login_limits: bool = True
    limits: tuple[str, ...] = ()
    no_new_privs: bool = False
    seccomp: bool = False
    check_ids: bool = True
    unenforced: Literal["tell", "refuse"] = "tell"


class HostsConfig(msgspec.Struct, frozen=True):
    inventory: str = ""
    down_after_s: Positive = 20.0
    remember_ends_s: Count = 604_800
    log_reserve_mb: Count = 512
    sessions: AtLeastOne = 128
    agent_dir: str = "/opt/rm/agents"
    python: str = "python3"


class SshConfig(msgspec.Struct, frozen=True):
    known_hosts: str = ""
    identity_files: tuple[str, ...] = ()
    connect_timeout_s: Positive = 10.0
    dead_after_s: Positive = 6.0
    agent_dead_after_s: Positive = 15.0
    connections: AtLeastOne = 64
    weak_algorithms: bool = False
    config: str = ""


class PoliciesConfig(msgspec.Struct, frozen=True):
    """Policies by name (the file name under rm/policies/KIND), and options: kind -> name -> table."""

    queue: str = "priority"
    placement: str = "metronome"
    comm: str = "metronome"
    candidates: AtLeastOne = 4
    min_score: NotNegative = 0.0
    patience: NotNegative = 0.0
    options: Mapping[str, Mapping[str, Options]] = {}


class FabricConfig(msgspec.Struct, frozen=True):
    """The switches above the hosts; which leaf a host hangs on is its inventory variable rm_leaf."""

    spines: Count = 0
    uplink_mbps: Count = 0
    dscp: tuple[Annotated[int, msgspec.Meta(ge=0, le=63)], ...] = ()


class ShapingConfig(msgspec.Struct, frozen=True):
    enabled: bool = True
    queue_packets: AtLeastOne = 30


class MonitorConfig(msgspec.Struct, frozen=True):
    """`mesh`, `maintenance`, `source` and `archive` are tables that `rm.core` reads, each in a file of its
    name, one by one, so that a malformed one does not stop the daemon. Without meshes there are the usual
    ones, which the first three numbers are for."""

    enabled: bool = True
    interval_s: Positive = 60.0
    throughput_interval_s: Positive = 3600.0
    probe_count: AtLeastOne = 100
    parallel: AtLeastOne = 32
    timezone: str = ""
    raw_days: Positive = 2.0
    hourly_days: Positive = 14.0
    daily_days: Positive = 400.0
    mesh: tuple[Options, ...] = ()
    maintenance: tuple[Options, ...] = ()
    source: tuple[Options, ...] = ()
    archive: tuple[Options, ...] = ()


class AlertsConfig(msgspec.Struct, frozen=True):
    """`rule` and `channel` are tables that `rm.daemon.alerts.setup` reads."""

    enabled: bool = True
    every_s: Positive = 5.0
    facts_s: Positive = 300.0
    disk_free_mb: Count = 1024
    rotation_score: Score = 90.0
    attempts: AtLeastOne = 6
    backoff_s: Positive = 1.0
    keep_days: Positive = 14.0
    drain: bool = False
    drain_on: tuple[str, ...] = ("loss", "delay", "bandwidth", "disk", "gpu")
    drain_after: AtLeastOne = 5
    return_after: Count = 20
    drain_share: Share = 0.25
    gpus_idle_s: NotNegative = 0.0
    gpus_idle_stop_s: NotNegative = 0.0
    rule: tuple[Options, ...] = ()
    channel: tuple[Options, ...] = ()


class WebConfig(msgspec.Struct, frozen=True):
    """The daemon's page: where it listens ("" = nowhere), names it is called by, who is let in, its URL."""

    listen: str = ""
    names: tuple[str, ...] = ()
    anonymous: bool = False
    session_hours: Positive = 12.0
    proxy_header: str = ""
    proxy_addresses: tuple[str, ...] = ()
    proxy_secret_file: str = ""
    url: str = ""


class LimitsConfig(msgspec.Struct, frozen=True):
    """What one user may ask of the daemon."""

    body_bytes: AtLeastOne = 16 * 1024 * 1024
    specs_per_request: AtLeastOne = 10_000
    array_size: AtLeastOne = 100_001
    pending_jobs: AtLeastOne = 100_000
    pending_bytes: AtLeastOne = 512 * 1024 * 1024
    pending_demands: AtLeastOne = 2_000
    finished_bytes: AtLeastOne = 4 << 30
    max_priority: int = 0
    connections: AtLeastOne = 1024
    followers: AtLeastOne = 512
    sessions: AtLeastOne = 64
    bytes_under_way: AtLeastOne = 32 * 1024 * 1024
    requests_per_s: Positive = 50.0
    request_burst: AtLeastOne = 1000
    header_s: Positive = 10.0
    idle_s: Positive = 75.0
    log_reserve_mb: Count = 512


class HttpsConfig(msgspec.Struct, frozen=True):
    """A door for who is not on this machine: where it listens ("" = nowhere), with which certificate, and
    where users reach it."""

    listen: str = ""
    certificate: str = ""
    key: str = ""
    url: str = ""


class RolesConfig(msgspec.Struct, frozen=True):
    """Users, and groups of the system as @group."""

    operators: tuple[str, ...] = ()
    admins: tuple[str, ...] = ()


class PrivacyConfig(msgspec.Struct, frozen=True):
    """What users do not see of each other and of the cluster; operators and administrators do."""

    jobs: bool = False
    hosts: bool = False
    usage: bool = False
    metrics: str = "nobody"


class PlaybooksConfig(msgspec.Struct, frozen=True):
    """The playbooks that may be started from the page and the API: those of a folder, some of rm's own."""

    directory: str = ""
    shipped: tuple[str, ...] = ()
    role: Literal["operator", "admin"] = "operator"
    at_once: AtLeastOne = 2
    time_limit_hours: NotNegative = 24.0
    keep_days: Positive = 90.0
    keep_runs: AtLeastOne = 2_000
    vault_password_file: str = ""
    record: bool = True


class AuditConfig(msgspec.Struct, frozen=True):
    keep_days: Positive = 400.0


class SharingConfig(msgspec.Struct, frozen=True):
    """What counts as usage of an account, and for how long; `refuse_never`: a job that limits of accounts and
    QOS would never let run is refused when it is submitted, instead of waiting. `rm.daemon.services.digests`
    reads `digest`."""

    gpu: NotNegative = 1.0
    cpu: NotNegative = 0.0
    mem_gib: NotNegative = 0.0
    half_life_days: NotNegative = 7.0
    refuse_never: bool = True
    digest: tuple[str, ...] = ()
    digest_hour: Annotated[int, msgspec.Meta(ge=0, lt=24)] = 6


class Config(msgspec.Struct, frozen=True):
    daemon: DaemonConfig = DaemonConfig()
    jobs: JobsConfig = JobsConfig()
    fence: FenceConfig = FenceConfig()
    hosts: HostsConfig = HostsConfig()
    ssh: SshConfig = SshConfig()
    policies: PoliciesConfig = PoliciesConfig()
    fabric: FabricConfig = FabricConfig()
    regulate: Options = {}
    shaping: ShapingConfig = ShapingConfig()
    monitor: MonitorConfig = MonitorConfig()
    alerts: AlertsConfig = AlertsConfig()
    web: WebConfig = WebConfig()
    https: HttpsConfig = HttpsConfig()
    roles: RolesConfig = RolesConfig()
    privacy: PrivacyConfig = PrivacyConfig()
    playbooks: PlaybooksConfig = PlaybooksConfig()
    audit: AuditConfig = AuditConfig()
    limits: LimitsConfig = LimitsConfig()
    sharing: SharingConfig = SharingConfig()


# tables whose keys belong to another's options class, which checks them when it is made
OPEN_TABLES = ("policies.options", "regulate")
# keys that are written as [[section.key]], once for each of their tables
LISTED_TABLES = (
    "monitor.mesh",
    "monitor.maintenance",
    "monitor.source",
    "monitor.archive",
    "alerts.rule",
    "alerts.channel",
)
SECTIONS: dict[str, Any] = get_type_hints(Config)
