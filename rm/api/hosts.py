"""Hosts and their keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from rm.api.answer import Answer, Count, Request

State = Literal["UNKNOWN", "UP", "DOWN", "DRAINING", "DRAINED"]


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    index: int
    uuid: str = ""
    model: str = ""
    mem_bytes: int = 0


class Nic(msgspec.Struct, frozen=True, kw_only=True):
    """A network interface; `numa_node` is -1 and `speed_bps` 0 where its driver does not report it. `routes`
    is how many other hosts are reached through it, `network` the network of its address: "" while its link is
    down. `routed` is the widest network around the address to which gateways behind the interface lead.
    `altnames` are other names that the kernel knows it by."""

    name: str
    address: str
    speed_bps: int
    mtu_bytes: int
    numa_node: int
    rdma: str
    routes: int
    network: str = ""
    routed: str = ""
    altnames: list[str] = []


class HostRequest(Request, frozen=True, kw_only=True):
    """A host to add or to change. Its agent detects what is 0 or empty; `address` defaults to the
    name."""

    name: str
    zone: str = "default"
    address: str = ""
    port: Annotated[int, Meta(ge=0, le=65535)] = 22
    login: str = "root"
    cpus: Count = 0
    mem_bytes: Count = 0
    gpus: Sequence[Gpu] = ()
    nic_bps: Count = 0
    interface: str = ""
    partitions: Sequence[str] = ()
    features: Sequence[str] = ()
    variables: Mapping[str, Any] | Sequence[tuple[str, str]] = ()


class AddHosts(Request, frozen=True, kw_only=True):
    hosts: Annotated[Sequence[HostRequest], Meta(min_length=1)]


class Free(msgspec.Struct, frozen=True, kw_only=True):
    """`gpus`: the idle ones; `gpu_mem`: [index, bytes] of each GPU that no job has for itself. `strays`: the
    jobs of which an attempt that was given up still runs there, whose share is not free."""

    cpus: int
    mem_bytes: int
    gpus: Sequence[int]
    gpu_mem: Sequence[tuple[int, int]]
    strays: Sequence[int] = ()


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """`found` names the fields that the host's agent found; the inventory declared the others.
    `nics`: its network interfaces, the one that carries jobs' traffic first. `unenforced` is what its kernel
    cannot limit for a job: memory, cpus, processes, ipc, gpus; `unshaped` what it cannot do to the traffic of
    jobs: classes, bursts; `containers` its runtime of them. `machine` is what it runs on (x86_64), `kernel`
    the release, which runs since `booted_us`. `since_us`: its agent's last hello, or since when it does not
    answer. `drained_us`: since when it is drained, 0 where that is not known. `unwritable`: it is drained
    since its spool cannot be written, until it can. `free` and `jobs` are there in lists;
    `variables`, text or JSON by name, for administrators who ask for them."""

    name: str
    zone: str
    address: str
    port: int
    login: str
    cpus: int
    mem_bytes: int
    gpus: Sequence[Gpu]
    nic_bps: int
    interface: str
    found: Sequence[str]
    nics: Sequence[Nic]
    partitions: Sequence[str]
    features: Sequence[str] = ()
    state: State
    drained_by: str
    drained_us: int = 0
    unwritable: bool
    reason: str
    boot_id: str
    agent_version: str
    unenforced: Sequence[str]
    unshaped: Sequence[str] = ()
    containers: str = ""
    machine: str = ""
    kernel: str = ""
    booted_us: int = 0
    since_us: int
    schedulable: bool
    free: Free | UnsetType | None = UNSET
    jobs: Sequence[int] | UnsetType = UNSET
    variables: Mapping[str, str] | UnsetType = UNSET


class OneHost(Answer, frozen=True, kw_only=True):
    host: Host


class Hosts(Answer, frozen=True, kw_only=True):
    hosts: Sequence[Host]


class Drain(Request, frozen=True, kw_only=True):
    reason: str = ""


class AdoptHost(Request, frozen=True, kw_only=True):
    """`stop_jobs`: kill what the other cluster's jobs run there."""

    stop_jobs: bool = False


class AcceptKey(Request, frozen=True, kw_only=True):
    """The fingerprint of the key to pin, exactly as it is presented."""

    fingerprint: Annotated[str, Meta(min_length=1)]


class Key(msgspec.Struct, frozen=True, kw_only=True):
    type: str
    fingerprint: str


class HostKeys(Answer, frozen=True, kw_only=True):
    presented: Key
    pinned: Key | None
