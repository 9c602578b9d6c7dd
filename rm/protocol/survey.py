"""What the operation `survey` of the executor of steps (`agents/rm_steps_survey.py`) says of a new host."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from rm.protocol.scalars import LIST_MAX, AtUs, Bytes, Count, Word

Uid = Annotated[int, Meta(ge=0, le=1 << 32)]


class Card(Struct, frozen=True, kw_only=True):
    """A network interface; 0: the driver does not report it."""

    mtu_bytes: Count
    mbps: Count
    up: bool


class Peer(Struct, frozen=True, kw_only=True):
    """Another host, as this one finds it: the interface that leads there, why its sshd is not reached, and
    whether its name is known."""

    name: Word
    interface: Word
    problem: Word
    named: bool


class Survey(Struct, frozen=True, kw_only=True):
    """`cgroup` is the version of the control groups, 0 without any. `own_name` is the host's name with the
    addresses that it leads to, `home` what is mounted at /home and the type of that file system; `bursts`
    is null where nobody may ask."""

    now_us: AtUs
    synchronized: bool
    python: Word
    kernel: Word
    uid: Uid
    login: Word
    root: bool
    cgroup: Annotated[int, Meta(ge=0, le=2)]
    controllers: Annotated[list[Word], Meta(max_length=64)]
    tools: Annotated[list[Word], Meta(max_length=64)]
    bpf: bool
    bursts: bool | None
    interfaces: Annotated[dict[Word, Card], Meta(max_length=LIST_MAX)]
    own_name: tuple[Word, Annotated[list[Word], Meta(max_length=64)]]
    peers: Annotated[list[Peer], Meta(max_length=64)]
    home: tuple[Annotated[str, Meta(max_length=4_096)], Word]
    free_bytes: Annotated[dict[Word, Bytes], Meta(max_length=64)]
    uids: Annotated[dict[Word, Uid | None], Meta(max_length=LIST_MAX)]
