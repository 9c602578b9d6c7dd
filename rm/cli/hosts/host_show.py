"""`rmx host show`: one host, what the inventory declares of it, and what its agent found."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from rm.cli.output import printable
from rm.cli.session import Session, emit_json, host_operand, json_option, one_host, table
from rm.cli.shown import moment
from rm.units import format_bandwidth, format_bytes

if TYPE_CHECKING:
    from rm.api.hosts import Gpu, Host, Nic


def state_of(host: Host) -> str:
    if host.drained_by:
        return "DRAINING" if host.jobs else "DRAINED"
    return host.state


def free_of(host: Host) -> tuple[int, int, int]:
    """Idle processors, bytes of memory and GPUs; none of a host that takes no job."""
    return (host.free.cpus, host.free.mem_bytes, len(host.free.gpus)) if host.free else (0, 0, 0)


def cards(host: Host) -> str:
    """The interface that carries jobs' traffic; `+2`: two more are as fast (rails)."""
    rails = [nic for nic in host.nics[1:] if nic.speed_bps >= host.nic_bps > 0]
    return (host.interface or "-") + (f" +{len(rails)}" if rails else "")


@click.command()
@host_operand
@json_option
@click.pass_obj
def show(session: Session, /, host: str | None, host_word: str | None, as_json: bool) -> None:
    """Show HOST: what it has, its GPUs, its network interfaces and its jobs."""
    found = session.client.host(one_host(host, host_word))
    if as_json:
        emit_json({"host": found})
        return
    for label, value in _lines(found):
        if value:
            click.echo(f"{label + ':':<11}{printable(value)}")
    if found.gpus:
        click.echo()
        gpus = [_gpu(gpu) for gpu in found.gpus]
        table(("GPU", "MODEL", "MEMORY", "UUID"), gpus, right=("GPU", "MEMORY"))
    if found.nics:
        click.echo()
        table(
            ("INTERFACE", "ADDRESS", "SPEED", "MTU", "NUMA", "RDMA", "ROUTES"),
            [_nic(nic) for nic in found.nics],
            right=("SPEED", "MTU", "NUMA", "ROUTES"),
        )


def _lines(host: Host) -> Iterator[tuple[str, Any]]:
    def said(name: str, value: object, text: str) -> str:
        return f"{text} (found)" if name in host.found and value else text

    free_cpus, free_bytes, free_gpus = free_of(host)
    yield "Host", host.name
    yield "State", state_of(host)
    yield "Reason", host.drained_by or host.reason
    yield "Address", f"{host.login}@{host.address}:{host.port}"
    yield "Zone", host.zone
    system = " ".join(filter(None, (host.machine, f"Linux {host.kernel}" if host.kernel else "")))
    yield "System", f"{system}, since {moment(host.booted_us)}" if host.booted_us else system
    yield "Partitions", ",".join(host.partitions)
    yield "Features", ",".join(host.features)
    yield "Cpus", said("cpus", host.cpus, f"{free_cpus} free of {host.cpus}")
    memory = f"{format_bytes(free_bytes)} free of {format_bytes(host.mem_bytes)}"
    yield "Memory", said("mem_bytes", host.mem_bytes, memory)
    yield "Gpus", said("gpus", host.gpus, f"{free_gpus} free of {len(host.gpus)}")
    link = format_bandwidth(host.nic_bps) if host.nic_bps else "speed unknown"
    yield "Link", said("nic_bps", host.nic_bps, link)
    yield "Interface", said("interface", host.interface, host.interface)
    yield "Jobs", ",".join(map(str, host.jobs or ()))
    yield "Runtime", host.containers
    yield "Agent", host.agent_version


def _gpu(gpu: Gpu) -> tuple[Any, ...]:
    size = format_bytes(gpu.mem_bytes) if gpu.mem_bytes else "-"
    return gpu.index, gpu.model or "-", size, gpu.uuid or "-"


def _nic(nic: Nic) -> tuple[Any, ...]:
    return (
        nic.name,
        nic.address or "-",
        format_bandwidth(nic.speed_bps) if nic.speed_bps else "-",
        nic.mtu_bytes or "-",
        nic.numa_node if nic.numa_node >= 0 else "-",
        nic.rdma or "-",
        nic.routes,
    )
