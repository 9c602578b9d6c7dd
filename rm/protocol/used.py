"""What hosts tell of what attempts used."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from rm.protocol.scalars import Count, DurationUs, Word


class NetworkUsed(Struct, frozen=True, kw_only=True):
    """Bytes of IP packets that passed an interface of the host."""

    interface: Word
    received_bytes: Count
    sent_bytes: Count


class Used(Struct, frozen=True, kw_only=True):
    """Time of processors in the program and in the kernel; the most memory at once without file caches, and
    with them; bytes of disks. Of GPUs: the time that was watched, added up over them, how much of it they
    were busy, the most memory of one, and what they drew, in millijoules. Of all tasks together: `network`,
    by interface."""

    user_us: DurationUs = 0
    system_us: DurationUs = 0
    mem_bytes: Count = 0
    peak_bytes: Count = 0
    read_bytes: Count = 0
    written_bytes: Count = 0
    gpu_us: DurationUs = 0
    gpu_busy_us: DurationUs = 0
    gpu_mem_bytes: Count = 0
    energy_mj: Count = 0
    network: Annotated[tuple[NetworkUsed, ...], Meta(max_length=64)] = ()
