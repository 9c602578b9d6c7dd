"""Configuration: defaults < rm.toml < environment (RM_SECTION__KEY) < flags, into one frozen Config.

Every key, its meaning and its default are documented in the shipped rm.toml. Durations carry
their unit in the name (`_s`, seconds). All problems raise ConfigError, which names the file and
line, the variable or the flag.
"""

from __future__ import annotations

import dataclasses
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_type_hints

import msgspec
from msgspec.structs import replace

from rm import paths
from rm.core import registry
from rm.core.people.rights import Role
from rm.errors import ConfigError, UsageError
from rm.hints import did_you_mean
from rm.licenses import parse as parse_licenses
from rm.typed import convert
from rm.units import parse_lease_us, parse_time_limit_us

Positive = Annotated[float, msgspec.Meta(gt=0)]
NotNegative = Annotated[float, msgspec.Meta(ge=0)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Score = Annotated[float, msgspec.Meta(ge=0, le=100)]
Count = Annotated[int, msgspec.Meta(ge=0)]
AtLeastOne = Annotated[int, msgspec.Meta(ge=1)]
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
    allow_root: bool = False
    run_root_as: str = ""
    output: str = ""
    deliver: str = "rm-%j.out"
    partition: str = ""
    launch: Literal["auto", "tasks", "batch"] = "auto"
    cluster_name: str = "rm"
    gpu_ids: Literal["uuid", "index"] = "uuid"
    time_limit: str = "UNLIMITED"
    recent_s: NotNegative = 300.0
    keep_days: Positive = 30
    keep_finished: Count = 100_000
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
    login_limits: bool = True
    limits: tuple[str, ...] = ()
    no_new_privs: bool = False
    seccomp: bool = False
    check_ids: bool = True
    unenforced: Literal["tell", "refuse"] = "tell"


class HostsConfig(msgspec.Struct, frozen=True):
    inventory: str = ""
    down_after_s: Positive = 20.0
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
    options: Mapping[str, Mapping[str, Options]] = {}


class FabricConfig(msgspec.Struct, frozen=True):
    """The switches above the hosts; which leaf a host hangs on is its inventory variable rm_leaf."""

    spines: Count = 0
    uplink_mbps: Count = 0


class ShapingConfig(msgspec.Struct, frozen=True):
    enabled: bool = True
    queue_packets: AtLeastOne = 30


class MonitorConfig(msgspec.Struct, frozen=True):
    """`mesh`, `maintenance` and `source` are tables that `rm.core` reads, each in a file of its name, one by
    one, so that a malformed one does not stop the daemon. Without meshes there are the usual ones, which
    the first three numbers are for."""

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


class AuditConfig(msgspec.Struct, frozen=True):
    keep_days: Positive = 400.0


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
    audit: AuditConfig = AuditConfig()
    limits: LimitsConfig = LimitsConfig()


# tables whose keys belong to another's options class, which checks them when it is made
OPEN_TABLES = ("policies.options", "regulate")
# keys that are written as [[section.key]], once for each of their tables
LISTED_TABLES = ("monitor.mesh", "monitor.maintenance", "monitor.source", "alerts.rule", "alerts.channel")
SECTIONS: dict[str, Any] = get_type_hints(Config)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Loaded:
    """A Config and where each of its values came from: dotted key -> origin."""

    config: Config
    origins: Mapping[str, str]


def load(
    path: str | None = None,
    env: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
    euid: int | None = None,
) -> Loaded:
    """Read, merge, validate.

    Args:
        path: the rm.toml to read; None looks in the usual places and does without.
        flags: dotted key -> value, from the command line; the strongest layer.
    """
    env = os.environ if env is None else env
    euid = paths.effective_user() if euid is None else euid
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    file = path or next(
        (f for f in paths.config_files(env, euid) if env.get("RM_CONFIG") or os.path.exists(f)), ""
    )
    if file:
        for key, value, origin in _file_values(file):
            values[key], origins[key] = value, origin
    for name, text in sorted(env.items()):
        if name.startswith("RM_") and "__" in name:
            key = name[3:].lower().replace("__", ".")
            _check_key(key, f"the environment variable {name}")
            values[key], origins[key] = _from_text(key, text, name), name
    for key, value in (flags or {}).items():
        _check_key(key, "a flag")
        values[key] = value
        origins[key] = "--" + key.rpartition(".")[2].replace("_", "-")
    config = _resolve(_convert(values, origins), env, euid)
    return Loaded(config, {key: origins.get(key, "default") for key, _ in flatten(config)})


def load_config(
    path: str | None = None, env: Mapping[str, str] | None = None, flags: Mapping[str, Any] | None = None
) -> Config:
    return load(path, env, flags).config


def partition_fences(jobs: JobsConfig) -> dict[str, int]:
    """The leases of partitions in microseconds; ConfigError names the one that is none."""
    found = {}
    for text in jobs.partition_fences:
        partition, _, lease = text.partition("=")
        try:
            found[partition.strip()] = parse_lease_us(lease)
        except UsageError:
            partition = ""
        if not partition.strip():
            raise ConfigError(f"jobs.partition_fences has '{text}'.", 'Write "PARTITION=60s", or 0 for none.')
    return found


def licenses(jobs: JobsConfig) -> dict[str, int]:
    """How many of each licence there are; ConfigError says what is none."""
    try:
        return dict(parse_licenses(",".join(jobs.licenses)))
    except UsageError as error:
        raise ConfigError(f"jobs.licenses: {error.what}", 'Write ["NAME=NUMBER", ...].') from None


def policy_options(config: Config, kind: str, name: str) -> Options:
    """The table `[policies.options.KIND.NAME]`, for `rm.core.registry.load`."""
    return config.policies.options.get(kind, {}).get(name.strip().replace("-", "_"), {})


def options_for(config: Config, section: str, kind: type[T]) -> T:
    """The open section `[regulate]` as `kind`, a dataclass."""
    table = getattr(config, section)
    known = [f.name for f in dataclasses.fields(kind)]  # type: ignore[arg-type]
    for key in table:
        if key not in known:
            raise ConfigError(f"[{section}] has no key '{key}'.", did_you_mean(key, known))
    try:
        return convert(dict(table), kind)
    except msgspec.ValidationError as error:
        raise ConfigError(f"[{section}]: {_plain(str(error))}") from None


def _policy_tables(policies: PoliciesConfig) -> PoliciesConfig:
    """Options of policies that do not exist are a slip; hyphens in names stand for underscores."""
    tables: dict[str, dict[str, Options]] = {}
    for kind, named in policies.options.items():
        if kind not in registry.KINDS:
            raise ConfigError(
                f"[policies.options.{kind}]: there is no such kind of policy.",
                did_you_mean(kind, registry.KINDS),
            )
        known = registry.names(kind)
        for name, table in named.items():
            if name.replace("_", "-") not in known:
                raise ConfigError(
                    f"[policies.options.{kind}.{name}]: there is no such policy.", did_you_mean(name, known)
                )
            tables.setdefault(kind, {})[name.replace("-", "_")] = table
    return replace(policies, options=tables)


def flatten(config: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """All (dotted key, value) pairs in the order of the sections."""
    if isinstance(config, msgspec.Struct):
        for name in config.__struct_fields__:
            yield from flatten(getattr(config, name), f"{prefix}{name}.")
    elif isinstance(config, Mapping):
        for key, value in config.items():
            yield from flatten(value, f"{prefix}{key}.")
    else:
        yield prefix.removesuffix("."), config


def _file_values(file: str) -> Iterator[tuple[str, Any, str]]:
    try:
        text = Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"The configuration file {file} cannot be read: {error.strerror}.", "Check --config or RM_CONFIG."
        ) from None
    except UnicodeDecodeError:
        raise ConfigError(f"The configuration file {file} is not UTF-8 text.") from None
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(
            f"The configuration file {file} is not valid TOML: {_plain(str(error))}",
            "The shipped rm.toml shows the form.",
        ) from None
    lines = _line_numbers(text)
    for key, value in flatten(tables):
        if value == {}:
            continue
        line = lines.get(key)
        origin = f"{file}:{line}" if line else file
        _check_key(key, origin)
        yield key, value, origin
    for section, value in tables.items():  # an empty table yields no value above, yet may be misspelt
        if section not in SECTIONS:
            _check_key(f"{section}.", f"{file}:{lines.get(section, 1)}")
        elif not isinstance(value, Mapping):
            raise ConfigError(f"'{section}' in {file} is a section: write [{section}].")


_HEADER = re.compile(r"\s*\[\[?\s*([\w.\-\"' ]+?)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"\s*([\w.\-\"']+)\s*=")


def _line_numbers(text: str) -> dict[str, int]:
    """Dotted key -> line, for messages only; TOML's odder spellings are simply not found."""
    found: dict[str, int] = {}
    section = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            section = re.sub(r"[\"' ]", "", header[1])
            found.setdefault(section, number)
        elif key := _KEY.match(line):
            name = re.sub(r"[\"' ]", "", key[1])
            found.setdefault(f"{section}.{name}" if section else name, number)
    return found


def _check_key(key: str, where: str) -> None:
    section, _, rest = key.partition(".")
    if section not in SECTIONS:
        raise ConfigError(
            f"There is no section [{section}] ({where}).", did_you_mean(section, list(SECTIONS))
        )
    if any(key.startswith(table + ".") for table in OPEN_TABLES):
        return
    known = SECTIONS[section].__struct_fields__
    if rest and rest not in known:
        raise ConfigError(f"[{section}] has no key '{rest}' ({where}).", did_you_mean(rest, known))


def _from_text(key: str, text: str, variable: str) -> Any:
    """The value of an environment variable, by the type of the key it sets."""
    section, _, name = key.partition(".")
    kind = None if section in OPEN_TABLES else get_type_hints(SECTIONS[section]).get(name)
    if kind is str:
        return text
    if kind == tuple[str, ...] and not text.startswith("["):
        return [part.strip() for part in text.split(",") if part.strip()]
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        if kind is not None:
            raise ConfigError(
                f"{variable}='{text}' is not a value for {key}.", "Write it as in rm.toml."
            ) from None
        return text


def _convert(values: Mapping[str, Any], origins: Mapping[str, str]) -> Config:
    tree: dict[str, Any] = {}
    for key, value in values.items():
        *parents, last = key.split(".")
        table = tree
        for parent in parents:
            table = table.setdefault(parent, {})
        table[last] = value
    try:
        return convert(tree, Config)
    except msgspec.ValidationError as error:
        what, _, path = str(error).partition(" - at `$.")
        key = path.rstrip("`").partition("[")[0]
        raise ConfigError(f"{key} ({origins.get(key, 'rm.toml')}): {_plain(what)}") from None


def _plain(text: str) -> str:
    sentence = text.replace("`", "'").rstrip(".")
    return sentence[:1].lower() + sentence[1:] + "."


def _resolve(config: Config, env: Mapping[str, str], euid: int) -> Config:
    """Fill the empty places and check what types cannot say."""
    daemon, ssh, jobs = config.daemon, config.ssh, config.jobs
    state = paths.expanded(daemon.state_dir or paths.state_dir(env, euid), env)
    socket = paths.expanded(daemon.socket or paths.socket_path(env, euid), env)
    if len(os.fsencode(socket)) > 107:
        raise ConfigError(f"daemon.socket is longer than the 107 bytes a Unix socket may have: {socket}")
    if daemon.log_level not in ("debug", "info", "warning", "error"):
        raise ConfigError(f"daemon.log_level is '{daemon.log_level}'.", "Use debug, info, warning or error.")
    if config.fabric.spines and not config.fabric.uplink_mbps:
        raise ConfigError(
            f"fabric.spines is {config.fabric.spines}, but fabric.uplink_mbps is 0.",
            "Say how much one link from a leaf to a spine carries, in Mbit/s.",
        )
    if config.privacy.metrics not in list(Role):
        raise ConfigError(
            f"privacy.metrics is '{config.privacy.metrics}'.", f"Use {', '.join(Role)}: who may read them."
        )
    if config.https.listen and not (config.https.certificate and config.https.key):
        raise ConfigError(
            "https.listen is set, but https.certificate or https.key is not.",
            "Name a PEM file of the certificate (with its chain) and one of its key.",
        )
    if jobs.run_root_as == "root":
        raise ConfigError(
            "jobs.run_root_as must name another user.", "To run root's jobs as root set jobs.allow_root."
        )
    if "/" in jobs.deliver or jobs.deliver.startswith("."):
        raise ConfigError(
            f"jobs.deliver is '{jobs.deliver}'.", "It is a file's name, without / and without a dot in front."
        )
    try:
        parse_time_limit_us(jobs.time_limit)
    except UsageError as error:
        raise ConfigError(f"jobs.time_limit: {error.what}", error.hint) from None
    try:
        parse_lease_us(jobs.fence)
    except UsageError as error:
        raise ConfigError(f"jobs.fence: {error.what}", "Write 60s or 5min, or 0 for none.") from None
    partition_fences(jobs)
    licenses(jobs)
    for key in ("prolog", "epilog"):
        if (path := getattr(jobs, key)) and not path.startswith("/"):
            raise ConfigError(
                f"jobs.{key} is '{path}'.", "Write the absolute path of a program of the hosts."
            )
    return replace(
        config,
        policies=_policy_tables(config.policies),
        daemon=replace(
            daemon,
            socket=socket,
            state_dir=state,
            log_dir=paths.expanded(daemon.log_dir, env),
            database=daemon.database or f"sqlite:///{os.path.join(state, 'rm.sqlite3')}",
        ),
        ssh=replace(
            ssh,
            known_hosts=paths.expanded(ssh.known_hosts or os.path.join(state, "known_hosts"), env),
            identity_files=tuple(paths.expanded(file, env) for file in ssh.identity_files),
        ),
    )
