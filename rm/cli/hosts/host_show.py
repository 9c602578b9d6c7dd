"""`rmx host show`: one host, what the inventory declares of it, and what its agent found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import click

from rm.cli.session import Session, emit_json, host_operand, json_option, one_host, printable, table
from rm.errors import NotFound
from rm.units import format_bandwidth, format_bytes


def state_of(host: Mapping[str, Any]) -> str:
    if host["drained_by"]:
        return "DRAINING" if host.get("jobs") else "DRAINED"
    return str(host["state"])


def cards(host: Mapping[str, Any]) -> str:
    """The interface that carries jobs' traffic; `+2`: two more are as fast (rails)."""
    rails = [nic for nic in host["nics"][1:] if nic["speed_bps"] >= host["nic_bps"] > 0]
    return (host["interface"] or "-") + (f" +{len(rails)}" if rails else "")


@click.command()
@host_operand
@json_option
@click.pass_obj
def show(session: Session, /, host: str | None, host_word: str | None, as_json: bool) -> None:
    """Show HOST: what it has, its GPUs, its network interfaces and its jobs."""
    name = one_host(host, host_word)
    found = next((one for one in session.client.get("hosts")["hosts"] if one["name"] == name), None)
    if found is None:
        raise NotFound(f"There is no host '{name}'.", "`rmx hosts` lists them.")
    if as_json:
        emit_json({"host": found})
        return
    for label, value in _lines(found):
        if value:
            click.echo(f"{label + ':':<11}{printable(value)}")
    if found["gpus"]:
        click.echo()
        gpus = [_gpu(gpu) for gpu in found["gpus"]]
        table(("GPU", "MODEL", "MEMORY", "UUID"), gpus, right=("GPU", "MEMORY"))
    if found["nics"]:
        click.echo()
        table(
            ("INTERFACE", "ADDRESS", "SPEED", "MTU", "NUMA", "RDMA", "ROUTES"),
            [_nic(nic) for nic in found["nics"]],
            right=("SPEED", "MTU", "NUMA", "ROUTES"),
        )


def _lines(host: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    def said(name: str, text: str) -> str:
        return f"{text} (found)" if name in host["found"] and host[name] else text

    def left(free: int, of: int) -> str:
        return f"{format_bytes(free)} free of {format_bytes(of)}"

    free = host.get("free") or {"cpus": 0, "mem_bytes": 0, "gpus": []}
    yield "Host", host["name"]
    yield "State", state_of(host)
    yield "Reason", host["drained_by"] or host["reason"]
    yield "Address", f"{host['login']}@{host['address']}:{host['port']}"
    yield "Zone", host["zone"]
    yield "Partitions", ",".join(host["partitions"])
    yield "Cpus", said("cpus", f"{free['cpus']} free of {host['cpus']}")
    yield (
        "Memory",
        said("mem_bytes", f"{format_bytes(free['mem_bytes'])} free of {format_bytes(host['mem_bytes'])}"),
    )
    yield "Gpus", said("gpus", f"{len(free['gpus'])} free of {len(host['gpus'])}")
    yield "Link", said("nic_bps", format_bandwidth(host["nic_bps"]) if host["nic_bps"] else "speed unknown")
    yield "Interface", said("interface", host["interface"])
    yield "Jobs", ",".join(map(str, host.get("jobs") or ()))
    yield "Agent", host["agent_version"]


def _gpu(gpu: Mapping[str, Any]) -> tuple[Any, ...]:
    size = format_bytes(gpu["mem_bytes"]) if gpu["mem_bytes"] else "-"
    return gpu["index"], gpu["model"] or "-", size, gpu["uuid"] or "-"


def _nic(nic: Mapping[str, Any]) -> tuple[Any, ...]:
    return (
        nic["name"],
        nic["address"] or "-",
        format_bandwidth(nic["speed_bps"]) if nic["speed_bps"] else "-",
        nic["mtu_bytes"] or "-",
        nic["numa_node"] if nic["numa_node"] >= 0 else "-",
        nic["rdma"] or "-",
        nic["routes"],
    )
