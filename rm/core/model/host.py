"""Hosts, their GPUs and their zones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

from rm.compiled_later import compiled_later
from rm.core.model.kept import WithFeatures

_WORD = compiled_later(r"[a-z0-9]+")
_LITERAL = compiled_later(r"[0-9.]+|[0-9a-fA-F:.]*:[0-9a-fA-F:.]*(%.+)?")  # an address of IPv4 or of IPv6
FINDABLE = ("cpus", "mem_bytes", "gpus", "nic_bps", "interface")  # by a host's agent


class HostState(StrEnum):
    UNKNOWN = "UNKNOWN"  # not yet reached since it was added
    UP = "UP"
    DOWN = "DOWN"  # does not answer: crashed, frozen, cut off, sshd gone, or host key refused
    DRAINING = "DRAINING"  # finishes its jobs, takes no new ones
    DRAINED = "DRAINED"

    __hash__ = str.__hash__  # as JobState does


@dataclass(frozen=True, slots=True)
class Gpu:
    index: int
    uuid: str = ""
    model: str = ""
    mem_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Nic:
    """A network interface that can carry jobs' traffic. `numa_node` is -1 and `speed_bps` 0 where its driver
    does not report it; `rdma` is its RDMA device, such as mlx5_0; `routes` is how many other hosts it leads
    to; `network` is the network of its address, 10.1.0.0/24, "" while its link is down; `routed` is the
    widest network around it to which gateways behind the interface lead, "" without one. `altnames` are other
    names that the kernel knows it by."""

    name: str
    address: str = ""
    speed_bps: int = 0
    mtu_bytes: int = 0
    numa_node: int = -1
    rdma: str = ""
    routes: int = 0
    network: str = ""
    routed: str = ""
    altnames: tuple[str, ...] = ()

    def is_called(self, name: str) -> bool:
        return name == self.name or name in self.altnames


@dataclass(frozen=True, slots=True)
class Host(WithFeatures):
    """One bare-metal host of the inventory plus what its agent last said.

    `nic_bps` is the capacity of its host link (Metronome's B_l(n)), `interface` the network
    interface that carries job traffic. `login` is the SSH user the daemon connects as.
    cpus, mem_bytes, gpus, nic_bps and interface left at zero or empty are filled in by what
    the agent finds; `found` names these fields, which each hello of the agent renews.
    `reason` says, by one sentence, why the state is not UP. `since_us` is of its agent's last hello, or
    since when it does not answer: what was sent to the agent before may be gone.
    """

    name: str
    zone: str
    address: str
    port: int = 22
    login: str = "root"
    cpus: int = 0
    mem_bytes: int = 0
    gpus: tuple[Gpu, ...] = ()
    nic_bps: int = 0
    interface: str = ""
    partitions: tuple[str, ...] = ()
    features: tuple[str, ...] = ()  # declared
    state: HostState = HostState.UNKNOWN
    drained_by: str = ""  # sentence with who and why; "" = not drained
    drained_us: int = 0  # since when; 0 = not drained, or by a version that did not keep it
    unwritable: bool = False  # drained because it cannot write its spool: that ends when it can
    reason: str = ""
    boot_id: str = ""
    agent_version: str = ""
    since_us: int = 0
    variables: tuple[tuple[str, str], ...] = ()  # inventory variables for playbooks
    found: tuple[str, ...] = ()
    nics: tuple[Nic, ...] = ()  # the one that carries jobs' traffic first; found at each hello
    unenforced: tuple[str, ...] = ()  # memory, cpus, processes, ipc, gpus: what its kernel does not limit
    unshaped: tuple[str, ...] = ()  # what its kernel cannot do to jobs' traffic: classes, bursts
    containers: str = ""  # the runtime of containers that it has: podman, apptainer or enroot; "" = none
    machine: str = ""  # x86_64, aarch64 …
    kernel: str = ""  # its release
    booted_us: int = 0  # by the host's clock

    @property
    def all_features(self) -> frozenset[str]:
        """Those declared, and the words of its GPUs' models in lower case: nvidia, a100, 80gb."""
        try:
            return self._all_features
        except AttributeError:
            found = _features(self.features, self._models)
            object.__setattr__(self, "_all_features", found)
            return found

    @property
    def declared(self) -> dict[str, Any]:
        """The fields that an agent could fill in, and that the inventory says instead."""
        return {name: getattr(self, name) for name in FINDABLE if name not in self.found}

    @property
    def gpu_features(self) -> frozenset[str]:
        """Those of its GPUs, which nobody need declare."""
        return gpu_features(self._models)

    @property
    def _models(self) -> frozenset[str]:
        return frozenset(gpu.model for gpu in self.gpus)

    @property
    def literal_address(self) -> str:
        """Where other hosts reach it, which may not know its name: what the inventory has if that is an
        address, else the interface's that carries jobs' traffic; the name while none was found."""
        if _LITERAL.fullmatch(self.address):
            return self.address
        return next((nic.address for nic in self.nics[:1] if nic.address), self.address)

    @property
    def schedulable(self) -> bool:
        return self.state is HostState.UP and not self.drained_by


def gpu_features(models: Iterable[str]) -> frozenset[str]:
    """Those of GPUs of these models, which nobody need declare."""
    return _features((), frozenset(models))


@lru_cache(maxsize=4_096)  # hosts are alike, and a pass asks all of them
def _features(declared: tuple[str, ...], models: frozenset[str]) -> frozenset[str]:
    words = (word for model in models for word in _WORD.findall(model.lower()))
    return frozenset((*declared, *words))


@dataclass(frozen=True, slots=True)
class Zone:
    """A zone: hosts near each other. `delay_us` is the delay from the users (the daemon)."""

    name: str
    delay_us: int = 0


def selected(host: Host, patterns: Sequence[str], zones: Sequence[str]) -> bool:
    """Is the host meant by these names or patterns, and these zones? None of a kind means all."""
    by_name = not patterns or any(fnmatchcase(host.name, p) for p in patterns)
    return by_name and (not zones or host.zone in zones)
