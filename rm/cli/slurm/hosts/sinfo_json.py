"""`sinfo --json`: the hosts, with the fields that rm knows under their names in Slurm 22.05."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from rm.cli.slurm.hosts.listed import (
    cpus_taken,
    gres_of,
    mem_taken_bytes,
    reason_of,
    reason_us,
    state_of,
    who_of,
)
from rm.cli.slurm.jobs import size
from rm.units import MIB

if TYPE_CHECKING:
    from rm.api.hosts import Host

STATES = {
    "drained": ("idle", ["DRAIN"]),
    "draining": ("mixed", ["DRAIN"]),
    "down": ("down", ["NOT_RESPONDING"]),
}


def document(hosts: Iterable[Host]) -> dict[str, Any]:
    return {"meta": {"plugin": {"name": "rm"}}, "errors": [], "nodes": [_host(host) for host in hosts]}


def _host(host: Host) -> dict[str, Any]:
    taken, taken_bytes = cpus_taken(host), mem_taken_bytes(host)
    used_gpus = len(host.gpus) - (len(host.free.gpus) if host.free else len(host.gpus))
    state, flags = STATES.get(state_of(host), (state_of(host), []))
    reason = reason_of(host)
    features = ",".join(host.features)
    tres = [f"cpu={host.cpus}", f"mem={size(host.mem_bytes)}"]
    used = [f"cpu={taken}"] if taken else []
    used += [f"mem={size(taken_bytes)}"] if taken_bytes else []
    return {
        "name": host.name,
        "hostname": host.name,
        "address": host.address,
        "port": host.port,
        "state": state,
        "state_flags": flags,
        "partitions": list(host.partitions),
        "cpus": host.cpus,
        "alloc_cpus": taken,
        "idle_cpus": host.cpus - taken,
        "real_memory": host.mem_bytes // MIB,
        "alloc_memory": taken_bytes // MIB,
        "features": features,
        "active_features": features,
        "gres": gres_of(host) if host.gpus else "",
        "gres_used": f"gpu:{used_gpus}" if host.gpus else "",
        "tres": ",".join([*tres, *([f"gres/gpu={len(host.gpus)}"] if host.gpus else [])]),
        "tres_used": ",".join([*used, *([f"gres/gpu={used_gpus}"] if used_gpus else [])]) or None,
        "reason": reason,
        "reason_changed_at": (reason_us(host) or 0) // 1_000_000 if reason else 0,
        "reason_set_by_user": who_of(host) or None,
        "slurmd_version": host.agent_version or None,
    }
