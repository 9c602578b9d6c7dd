"""Fills the empty places of a Config, and checks what its types cannot say."""

from __future__ import annotations

import os
from collections.abc import Mapping

from msgspec.structs import replace

from rm import paths
from rm.config.sections import Config, JobsConfig, Options, PoliciesConfig
from rm.core import registry
from rm.core.people.rights import Role
from rm.errors import ConfigError, UsageError
from rm.hints import did_you_mean
from rm.licenses import parse as parse_licenses
from rm.units import parse_lease_us, parse_time_limit_us


def resolve(config: Config, env: Mapping[str, str], euid: int) -> Config:
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
    dscp = config.fabric.dscp
    if dscp and (len(dscp) != config.fabric.spines or len(set(dscp)) < len(dscp)):
        raise ConfigError(
            f"fabric.dscp is {list(dscp)}, and fabric.spines is {config.fabric.spines}.",
            "Name one code point for each spine, all different; or none.",
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
    folder = _absolute("directory", config.playbooks.directory, "folder", env)
    vault_password = _absolute("vault_password_file", config.playbooks.vault_password_file, "file", env)
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
        playbooks=replace(config.playbooks, directory=folder, vault_password_file=vault_password),
        ssh=replace(
            ssh,
            known_hosts=paths.expanded(ssh.known_hosts or os.path.join(state, "known_hosts"), env),
            identity_files=tuple(paths.expanded(file, env) for file in ssh.identity_files),
        ),
    )


def _absolute(key: str, text: str, what: str, env: Mapping[str, str]) -> str:
    """A path of `[playbooks]`, which the daemon and its runs read from different directories."""
    path = paths.expanded(text, env) if text else ""
    if path and not os.path.isabs(path):
        raise ConfigError(f"playbooks.{key} is '{path}'.", f"Write the absolute path of a {what}.")
    return path


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
