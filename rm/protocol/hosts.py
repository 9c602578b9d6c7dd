"""Operations on a host as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct

from rm.protocol.request import Request
from rm.protocol.scalars import LIST_MAX, AtUs, Bps, Bytes, Count, Job, Seconds, Sentence, Word


class Pong(Struct, frozen=True, kw_only=True):
    now_us: AtUs


class Ping(Request[Pong], frozen=True, kw_only=True, tag="ping"):
    """The host's clock."""


class Adopted(Struct, frozen=True, kw_only=True):
    """`running`: jobs of the other cluster, whose tasks have not ended; while there are some it is obeyed.
    `known_as` is the host's name in this cluster since its boot."""

    running: Annotated[list[Job], Meta(max_length=LIST_MAX)] = []
    known_as: Word = ""


class Adopt(Request[Adopted], frozen=True, kw_only=True, tag="adopt"):
    """Make the host belong to this cluster. A host of another cluster is taken over only if `instead_of`
    names that cluster; then all files of its jobs are removed, and with `stop_jobs` their tasks are killed
    first. It takes the name `host`, unless it has another than `renamed_from`."""

    cluster: Word
    led_at: Word = ""
    instead_of: Word = ""
    stop_jobs: bool = False
    host: Word = ""
    renamed_from: Word = ""


class Gpu(Struct, frozen=True, kw_only=True):
    """What the driver reports of one GPU; null or left out: it does not report it."""

    index: Annotated[int, Meta(ge=0, le=1 << 16)]
    uuid: Word = ""
    model: Word = ""
    mem_bytes: Bytes = 0
    bus: Word = ""
    ecc_uncorrected: Count | None = None  # since the driver was loaded
    ecc_uncorrected_ever: Count | None = None
    retirement_pending: bool | None = None
    remapping_pending: bool | None = None
    remapping_failed: bool | None = None
    link_width: Count | None = None
    link_width_max: Count | None = None
    busy_pct: Count | None = None  # of the driver's last sample, of a second at most


class Xid(Struct, frozen=True, kw_only=True):
    """One kind of complaint of the driver in the kernel's log: how often, and how long ago the last."""

    bus: Word
    code: Count
    count: Count
    ago_s: Seconds
    said: Sentence = ""


class Interface(Struct, frozen=True, kw_only=True):
    """`altnames` are other names of the interface.
    `speed_bps` is 0 and `numa_node` -1 where the driver does not report it; `rdma` is the RDMA device.
    `network` is the network of the address, `10.1.0.0/24`, empty while the link is down. `routed` is the
    widest network around the address to which gateways behind the interface lead.

    `routes` is how many of the other hosts are reached through it, and `control` that the daemon is.
    """

    name: Word
    address: Word = ""
    network: Word = ""
    routed: Word = ""
    up: bool = True
    speed_bps: Bps = 0
    mtu_bytes: Count = 0
    numa_node: Annotated[int, Meta(ge=-1, le=1 << 16)] = -1
    rdma: Word = ""
    routes: Count = 0
    control: bool = False
    altnames: Annotated[list[Word], Meta(max_length=64)] = []


class HostFacts(Struct, frozen=True, kw_only=True):
    """What the host has, as measured now; 0 or empty: not known. `kernel` is its release, `machine` what it
    runs on, as uname(2) has them; it has run since `booted_us`, by the host's clock."""

    boot_id: Word = ""
    booted_us: AtUs = 0
    cpus: Annotated[int, Meta(ge=0, le=1 << 16)] = 0
    mem_bytes: Bytes = 0
    gpus: Annotated[list[Gpu], Meta(max_length=1_024)] = []
    gpu_xids: Annotated[list[Xid], Meta(max_length=1_024)] = []
    interfaces: Annotated[list[Interface], Meta(max_length=65_536)] = []
    kernel: Word = ""
    machine: Word = ""
    python: Word = ""
    os: Word = ""
    hostname: Word = ""
    disk_free_bytes: Bytes | None = None
    disk_bytes: Bytes | None = None


class Facts(Request[HostFacts], frozen=True, kw_only=True, tag="facts"):
    """What the host has. `towards`: names or addresses of the other hosts, whose routes are looked up."""

    towards: Annotated[Sequence[Word], Meta(max_length=64)] = ()
