"""What rm.toml can get wrong beyond types: names and words that only their users understand."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from rm.adapters.cron import interval_us, zone_of
from rm.bootstrap.choices import (
    alert_rules,
    channel_of,
    digests_of,
    letters_of,
    policies_of,
    ssh_settings,
)
from rm.config import Config, options_for
from rm.core.model.host import Host
from rm.core.model.host_acceptance import accept_host
from rm.core.monitoring.mesh import Mesh
from rm.daemon.alerts.setup import channels_of
from rm.daemon.execution.fence import fence_of
from rm.daemon.monitoring.meshes import meshes_of
from rm.errors import ConfigError, UsageError
from rm.policies.regulate.controller import ControllerOptions
from rm.web.addresses import doors_of
from rm.web.https import HttpsDoor
from rm.web.pages.settings import settings_of


def _regulate(config: Config) -> ControllerOptions:
    return options_for(config, "regulate", ControllerOptions)


def _channels(config: Config) -> None:
    for table in channels_of(config.alerts.channel):
        channel_of(table)


class Declared(NamedTuple):
    """The hosts of rm.toml's inventory that rm accepts, and a sentence for each one that is left out."""

    hosts: list[Host]
    left_out: list[str]


def inventory_of(config: Config) -> Declared:
    """Where the configuration names no inventory, no engine of templates is loaded. Raises ConfigError: it
    cannot be read."""
    declared = Declared([], [])
    if not config.hosts.inventory:
        return declared
    from rm.adapters.playbook.inventory_files import hosts_for_daemon

    try:
        hosts = hosts_for_daemon(config.hosts.inventory)[0]
    except ConfigError as error:
        raise ConfigError(f"hosts.inventory: {error.what}", error.hint) from None
    for host in hosts:
        try:
            accept_host(host)
            declared.hosts.append(host)
        except UsageError as error:  # the others must not wait for one
            left_out = f"{config.hosts.inventory}: {error.what} It is left out until that is mended there."
            declared.left_out.append(left_out)
    return declared


def _database(config: Config) -> None:
    """Its address only: nothing is connected to. Without SQLAlchemy in the commands that need none."""
    from rm.adapters.store.database import make_engine

    try:
        make_engine(config.daemon.database).dispose()
    except ConfigError as error:
        raise ConfigError(f"daemon.database: {error.what}", error.hint) from None


def _https(config: Config) -> None:
    if config.https.listen:
        HttpsDoor(config.https)


CHECKS: tuple[Callable[[Config], Any], ...] = (
    policies_of, _regulate, lambda config: zone_of(config.monitor.timezone), alert_rules, _channels,
    lambda config: fence_of(config.fence), ssh_settings, lambda config: settings_of(config.web), _https,
    doors_of, letters_of, digests_of,
)  # fmt: skip


def must_hold(config: Config, located: Callable[[str], str] = str) -> None:
    """What a daemon does not start with. Raises ConfigError, the first that there is."""
    for check in CHECKS:
        try:
            check(config)
        except ConfigError as error:
            raise ConfigError(located(error.what), error.hint) from None


def complaints(config: Config) -> Iterator[str]:
    """Everything that is wrong, a sentence each; also meshes and archives, without which a daemon starts."""
    yield from dict.fromkeys(_complaints(config))  # two checks may meet one mistake


def _complaints(config: Config) -> Iterator[str]:
    for check in (*CHECKS, _database):
        try:
            check(config)
        except ConfigError as error:
            yield str(error)
    try:
        yield from inventory_of(config).left_out
    except ConfigError as error:
        yield str(error)
    try:
        zone = zone_of(config.monitor.timezone)
    except ConfigError:
        return

    def interval(mesh: Mesh) -> int:
        return interval_us(mesh.schedule, zone, time.time_ns() // 1000)

    yield from meshes_of(config.monitor, interval).left_out()
