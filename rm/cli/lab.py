"""`rmx lab`: make hosts on this machine, break them, mend them, take them away."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rm.cli.groups import Group
from rm.cli.output import note
from rm.cli.session import emit_json, json_option, table
from rm.errors import UsageError
from rm.paths import state_home

if TYPE_CHECKING:
    from rm.lab import Lab

FAULTS = {
    "crash": "Power HOST off without a shutdown.",
    "boot": "Start a crashed HOST again from its disk.",
    "freeze": "Stop every process of HOST; its kernel still acknowledges packets.",
    "thaw": "End `freeze`.",
    "cut": "Drop every packet from and to HOST, silently.",
    "heal": "End `cut`.",
    "kill-sshd": "Kill sshd on HOST with all its sessions.",
    "start-sshd": "End `kill-sshd`.",
    "fill-disk": "Fill the disk of HOST to the last byte.",
    "free-disk": "End `fill-disk`.",
    "change-host-key": "Give HOST another SSH host key, as a reinstallation does.",
}


@click.group(cls=Group)
@click.option(
    "--dir", "directory", metavar="DIR", help="The lab's directory (default: $XDG_STATE_HOME/rm/lab)."
)
@click.pass_context
def lab(ctx: click.Context, directory: str | None) -> None:
    """Make hosts on this machine to try rm on: network namespaces, each with an sshd of its own.

    As root, or without root in user namespaces where the system allows them.
    """
    ctx.obj = Path(directory) if directory else default_directory()


def default_directory() -> Path:
    """$XDG_STATE_HOME/rm/lab, for root, too: a lab is a user's toy, not the system's."""
    return Path(state_home(os.environ), "rm", "lab")


def _load(directory: Path) -> Lab:
    from rm.lab import load

    return load(directory)


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    """One option per setting, with the defaults that LabSpec has."""
    from rm.lab.spec import LabSpec

    default = LabSpec()
    shown: dict[str, Any] = {"show_default": True}
    for option in reversed(
        [
            click.option(
                "--zones", type=int, help=f"Number of zones.  [default: {default.zones}; 1 with leaves]"
            ),
            click.option(
                "--hosts",
                type=int,
                default=default.hosts,
                help="Number of hosts in total, over all zones.",
                **shown,
            ),
            click.option(
                "--gpus-per-host", type=int, default=default.gpus_per_host, help="Fake GPUs.", **shown
            ),
            click.option("--cpus", type=int, default=default.cpus, help="CPUs declared per host.", **shown),
            click.option("--mem", default=default.mem, help="Memory declared per host.", **shown),
            click.option(
                "--link-mbps",
                type=float,
                default=default.link_mbps,
                help="Rate of a host's link, Mbit/s.",
                **shown,
            ),
            click.option(
                "--queue-packets",
                type=int,
                default=default.queue_packets,
                help="Queue of each link's end.",
                **shown,
            ),
            click.option(
                "--zone-delay-ms",
                type=float,
                default=default.zone_delay_ms,
                help="Between zones, one way.",
                **shown,
            ),
            click.option(
                "--zone-loss-pct",
                type=float,
                default=default.zone_loss_pct,
                help="Between zones, each way.",
                **shown,
            ),
            click.option(
                "--congestion-control",
                default=default.congestion_control,
                help="TCP's, in the hosts.",
                **shown,
            ),
            click.option("--leaves", type=int, default=0, help="Leaf switches, below which the hosts hang."),
            click.option(
                "--spines", type=int, default=0, help="Spine switches, to which each leaf has a link."
            ),
            click.option(
                "--uplink-mbps",
                type=float,
                default=default.uplink_mbps,
                help="Rate of such a link, Mbit/s.  [default: as a host's link]",
            ),
            click.option("--offload", is_flag=True, help="Let links carry merged segments, up to 64 KiB."),
            click.option("--disk-mb", type=int, default=default.disk_mb, help="Disk of a host, MB.", **shown),
            click.option(
                "--degrade",
                multiple=True,
                metavar="HOST:rate=10mbit,loss=5,delay=20ms",
                help="Make one host's link bad; may be repeated.",
            ),
            click.option(
                "--share",
                multiple=True,
                metavar="PATH",
                help="Let hosts write to this path of the machine; may be repeated.",
            ),
        ]
    ):
        command = option(command)
    return command


@lab.command()
@_options
@json_option
@click.pass_obj
def up(
    directory: Path, /, as_json: bool, degrade: tuple[str, ...], zones: int | None, **settings: Any
) -> None:
    """Bring a lab up; returns when every host's sshd answers.

    Hosts are named z1h1, z1h2 … by zone and number, and spread evenly over the zones, or over the leaves.
    """
    from rm.lab import LabSpec, parse_degrade
    from rm.lab import up as bring_up
    from rm.lab.spines import fabric_toml

    # ended from outside is ended all the same: nothing may stay
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    zones = zones if zones is not None else 1 if settings["leaves"] else LabSpec().zones
    spec = LabSpec(zones=zones, degrade=dict(map(parse_degrade, degrade)), **settings)
    made = bring_up(spec, directory, progress=note)
    _show(made, as_json)
    if not as_json and spec.leaves:
        note(f"For rm.toml: {fabric_toml(spec)}")
    if not as_json and made.mode != "root":
        note(f"Only commands inside the lab reach these hosts: {' '.join(made.enter_command())} COMMAND")


@lab.command()
@click.pass_obj
def down(directory: Path) -> None:
    """Take the lab down and remove all of it; without a lab there is nothing to do."""
    from rm.lab.lab import discard, holds_lab

    was_up = holds_lab(directory)
    discard(directory, remove_directory=True)
    note("The lab is down." if was_up else f"No lab is up in {directory}.")


@lab.command()
@json_option
@click.pass_obj
def status(directory: Path, as_json: bool) -> None:
    """List the lab's hosts and their states."""
    _show(_load(directory), as_json)


def _show(made: Lab, as_json: bool) -> None:
    states = {status.name: status for status in made.statuses()}
    if as_json:
        hosts = [
            {
                "name": host.name,
                "zone": host.zone,
                "leaf": host.leaf,
                "address": host.address,
                "state": states[host.name].state,
                "cut": states[host.name].cut,
                "boot_id": states[host.name].boot_id,
                "link_mbps": host.rate_mbps,
                "loss_pct": host.loss_pct,
                "delay_ms": host.delay_ms,
                "gpus": list(host.gpus),
            }
            for host in made.hosts
        ]
        emit_json(
            {
                "directory": str(made.directory),
                "inventory": str(made.inventory),
                "known_hosts": str(made.known_hosts),
                "mode": made.mode,
                "enter": made.enter_command(),
                "hosts": hosts,
            }
        )
        return
    rows = []
    for host in made.hosts:
        state = states[host.name].state + (", cut" if states[host.name].cut else "")
        bad = [f"{host.loss_pct:g} % loss"] * bool(host.loss_pct) + [f"+{host.delay_ms:g} ms"] * bool(
            host.delay_ms
        )
        link = ", ".join([f"{host.rate_mbps:g} Mbit/s", *bad])
        rows.append([host.name, host.zone, host.address, state, link, len(host.gpus)])
    table(["HOST", "ZONE", "ADDRESS", "STATE", "LINK", "GPUS"], rows, right=["GPUS"])


def _fault(name: str, text: str) -> None:
    @lab.command(name, help=text)
    @click.argument("hosts", nargs=-1, required=True, metavar="HOST...")
    @click.pass_obj
    def command(directory: Path, hosts: tuple[str, ...]) -> None:
        made = _load(directory)
        for host in hosts:
            made.host(host)
        for host in hosts:
            getattr(made, name.replace("-", "_"))(host)


for _name, _text in FAULTS.items():
    _fault(_name, _text)


@lab.command("exec", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("host")
@click.argument("argv", nargs=-1, required=True, type=click.UNPROCESSED, metavar="COMMAND...")
@click.pass_obj
def execute(directory: Path, host: str, argv: tuple[str, ...]) -> int:
    """Run COMMAND on HOST as its root, past SSH (works while sshd is dead)."""
    return _run(_load(directory).exec_command(host, _behind(argv)))


@lab.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("host")
@click.argument("argv", nargs=-1, type=click.UNPROCESSED, metavar="[COMMAND]...")
@click.pass_obj
def ssh(directory: Path, host: str, argv: tuple[str, ...]) -> int:
    """Log in to HOST over SSH, or run COMMAND there."""
    return _run(_load(directory).ssh_command(host, _behind(argv)))


@lab.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("argv", nargs=-1, required=True, type=click.UNPROCESSED, metavar="COMMAND...")
@click.pass_obj
def enter(directory: Path, argv: tuple[str, ...]) -> int:
    """Run COMMAND where every host can be reached (as root: simply here)."""
    return _run(_load(directory).enter_command(argv))


def _behind(argv: tuple[str, ...]) -> tuple[str, ...]:
    """The command behind `HOST`, or behind `HOST --`, as of docker and kubectl."""
    return argv[1:] if argv[:1] == ("--",) else argv


def _run(argv: list[str]) -> int:
    try:
        return subprocess.run(argv, check=False).returncode
    except FileNotFoundError:
        raise UsageError(f"There is no program {argv[0]} on this machine.") from None
