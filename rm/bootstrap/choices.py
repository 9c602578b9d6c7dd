"""What rm.toml chooses, made: policies, their options, how hosts are reached, alerts and their channels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rm.adapters.channels.alertmanager import AlertmanagerChannel
from rm.adapters.channels.command import CommandChannel
from rm.adapters.channels.mail import MailChannel
from rm.adapters.channels.webhook import WebhookChannel
from rm.adapters.hosts.settings import SshSettings
from rm.config import Config, policy_options
from rm.core.alerts.alert import Rule
from rm.core.alerts.channel import Channel
from rm.core.alerts.idle_gpus import CONDITION as IDLE_GPUS
from rm.core.journal.journal import Chosen
from rm.core.monitoring.history import Retention
from rm.core.registry import KINDS, load, names, options_in_force
from rm.core.scheduling.engine import Policies, Tuning
from rm.core.scheduling.guarded import Faults, guarded
from rm.daemon.alerts.setup import ChannelTable, channels_of, check_conditions, rules_of
from rm.daemon.services.digests import addresses_of
from rm.errors import ConfigError
from rm.units import DAY_US, SECOND_US

# That the leader makes in one turn, in which nobody else is served: tens of milliseconds.
PLACEMENTS, REFUSALS = 32, 200


def ssh_settings(config: Config) -> SshSettings:
    """How this installation reaches its hosts."""
    return SshSettings(
        known_hosts=Path(config.ssh.known_hosts),
        identity_files=tuple(Path(f) for f in config.ssh.identity_files),
        connect_timeout_s=config.ssh.connect_timeout_s,
        dead_after_s=config.ssh.dead_after_s,
        agent_dead_after_s=config.ssh.agent_dead_after_s,
        down_after_s=config.hosts.down_after_s,
        python=config.hosts.python,
        weak_algorithms=config.ssh.weak_algorithms,
        config=config.ssh.config,
    )


def policies_of(config: Config, faults: Faults | None = None) -> Policies:
    """The policies that rm.toml names, with their options; their defects are kept in `faults`."""
    chosen = config.policies

    def one(kind: str, name: str) -> Any:
        try:
            return load(kind, name, _options(config, kind, name))
        except ConfigError as error:
            is_known = name.strip().replace("_", "-") in names(kind)
            key = f"[policies.options.{kind}.{name}]" if is_known else f"policies.{kind}"
            raise ConfigError(f"{key}: {error.what}", error.hint) from None

    found = one("queue", chosen.queue), one("placement", chosen.placement), one("comm", chosen.comm)
    return Policies(*(found if faults is None else guarded(*found, faults)))


def named_policies(config: Config) -> dict[str, Chosen]:
    """The policies of `policies_of` for the journal: their names and all their options."""
    chosen = {kind: getattr(config.policies, kind) for kind in KINDS}
    return {
        kind: Chosen(name, options_in_force(kind, name, _options(config, kind, name)))
        for kind, name in chosen.items()
    }


def _options(config: Config, kind: str, name: str) -> dict[str, Any]:
    """The policy's table; where hosts have no traffic classes, nothing counts on them to keep jobs apart."""
    options = dict(policy_options(config, kind, name))
    if (kind, name) == ("comm", "metronome") and not config.shaping.enabled:
        options["shaping"] = False
    return options


def tuning_of(config: Config) -> Tuning:
    least = config.policies.min_score or float("-inf")
    slice_us = int(config.jobs.slice_s * SECOND_US)
    asked = config.policies
    return Tuning(
        asked.candidates,
        least,
        asked.patience,
        placements=PLACEMENTS,
        refusals=REFUSALS,
        slice_us=slice_us,
    )


def alert_rules(config: Config) -> tuple[Rule, ...]:
    """Raises ConfigError, also for what is wrong with channels."""
    alerts = config.alerts
    check_conditions("alerts.drain_on", alerts.drain_on)
    if IDLE_GPUS in alerts.drain_on:
        raise ConfigError(
            f"alerts.drain_on: '{IDLE_GPUS}' is a fault of a job, not of its host.",
            "Leave it out of drain_on.",
        )
    if alerts.gpus_idle_stop_s and not 0 < alerts.gpus_idle_s <= alerts.gpus_idle_stop_s:
        raise ConfigError(
            f"alerts.gpus_idle_stop_s is {alerts.gpus_idle_stop_s:g}, alerts.gpus_idle_s is "
            f"{alerts.gpus_idle_s:g}: users hear of idle GPUs before their jobs are stopped.",
            "Set gpus_idle_s above 0 and at most gpus_idle_stop_s.",
        )
    channels = channels_of(config.alerts.channel)
    keeping = tuple(c.name for c in channels if c.alertmanager)
    return rules_of(config.alerts.rule, [c.name for c in channels], keeping)


def channel_of(table: ChannelTable) -> Channel:
    if table.command:
        return CommandChannel(table.command, table.timeout_s)
    if table.alertmanager:
        return AlertmanagerChannel(table.alertmanager, table.timeout_s, table.ca_file)
    if table.mail_to:
        return MailChannel(
            to=table.mail_to,
            sender=table.mail_from,
            server=table.server,
            tls=table.smtp_tls,
            user=table.smtp_user,
            password_file=table.smtp_password_file,
            timeout_s=table.timeout_s,
            ca_file=table.ca_file,
        )
    return WebhookChannel(
        address=table.webhook,
        address_file=table.webhook_file,
        secret_file=table.secret_file,
        timeout_s=table.timeout_s,
        ca_file=table.ca_file,
    )


def letters_of(config: Config) -> MailChannel | None:
    """The mail server of the jobs' mails: the one of the channel that jobs.mail names.

    Raises:
        ConfigError: there is no such channel, or it sends no mail.
    """
    name = config.jobs.mail
    if not name:
        return None
    table = next((t for t in channels_of(config.alerts.channel) if t.name == name), None)
    channel = channel_of(table) if table is not None else None
    if not isinstance(channel, MailChannel):
        why = "there is no [[alerts.channel]] of this name" if table is None else "it has no mail_to"
        raise ConfigError(f"jobs.mail is '{name}': {why}.", "Name a channel with mail_to.")
    return channel


def digests_of(config: Config) -> dict[str, tuple[str, ...]]:
    """Whom to mail what was used for an account: account -> addresses.

    Raises:
        ConfigError: sharing.digest says something else, or there is no channel for it.
    """
    to = addresses_of(config.sharing.digest)
    if to and letters_of(config) is None:
        raise ConfigError("sharing.digest is set, and jobs.mail is not.", "Let jobs.mail name a channel.")
    return to


def retention_of(config: Config) -> Retention:
    """How long the history of the network is kept."""
    days = (config.monitor.raw_days, config.monitor.hourly_days, config.monitor.daily_days)
    return Retention(*(int(d * DAY_US) for d in days))
