"""Facts of processors, memory, firmware and virtual machines."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_DMI = {
    "bios_date": "bios_date", "bios_vendor": "bios_vendor", "bios_version": "bios_version",
    "board_name": "board_name", "board_vendor": "board_vendor", "board_version": "board_version",
    "chassis_vendor": "chassis_vendor", "product_name": "product_name", "product_serial": "product_serial",
    "product_uuid": "product_uuid", "product_version": "product_version", "sys_vendor": "system_vendor",
}  # fmt: skip
_KVM = ("KVM", "Bochs", "AHV", "oVirt", "OpenStack", "Amazon EC2", "Google Compute Engine")


def facts(raw: Mapping[str, Any]) -> dict[str, Any]:
    firmware = dict(raw.get("dmi", {}))
    found = {ours: firmware.get(name) or "NA" for name, ours in _DMI.items()}
    return {**_memory(raw), **_processors(raw), **found, **_virtual(raw, firmware)}


def _memory(raw: Mapping[str, Any]) -> dict[str, Any]:
    kilobytes = dict(re.findall(r"^(\w+):\s+(\d+) kB", str(raw.get("meminfo", "")), re.MULTILINE))

    def mb(name: str) -> int:
        return int(kilobytes.get(name, 0)) // 1024

    free = mb("MemFree") + mb("Cached") + mb("Buffers")
    return {
        "memtotal_mb": mb("MemTotal"),
        "memfree_mb": mb("MemFree"),
        "swaptotal_mb": mb("SwapTotal"),
        "swapfree_mb": mb("SwapFree"),
        "memory_mb": {
            "real": {
                "total": mb("MemTotal"), "used": mb("MemTotal") - mb("MemFree"), "free": mb("MemFree"),
            },
            "nocache": {"free": free, "used": mb("MemTotal") - free},
            "swap": {
                "total": mb("SwapTotal"), "free": mb("SwapFree"), "used": mb("SwapTotal") - mb("SwapFree"),
                "cached": mb("SwapCached"),
            },
        },
    }  # fmt: skip


def _processors(raw: Mapping[str, Any]) -> dict[str, Any]:
    described: list[str] = []
    sockets: dict[str, int] = {}
    siblings = cores = 1
    for block in str(raw.get("cpuinfo", "")).split("\n\n"):
        fields = {
            key.strip(): value.strip() for key, _, value in (x.partition(":") for x in block.split("\n"))
        }
        if "processor" not in fields:
            continue
        described += [fields[k] for k in ("processor", "vendor_id", "model name") if k in fields]
        if "physical id" in fields:
            sockets[fields["physical id"]] = int(fields.get("cpu cores", 1))
            siblings, cores = int(fields.get("siblings", 1)), int(fields.get("cpu cores", 1))
    count = len(sockets) or int(raw["cpus"])
    return {
        "processor": described,
        "processor_count": count,
        "processor_cores": cores,
        "processor_threads_per_core": max(1, siblings // cores) if cores else 1,
        "processor_vcpus": raw["cpus"],
        "processor_nproc": raw["cpus_usable"],
    }


def _virtual(raw: Mapping[str, Any], firmware: Mapping[str, str]) -> dict[str, Any]:
    """What kind of guest (or host) this is, by what the kernel and the firmware say of themselves."""
    seen = dict(raw.get("virtual", {}))
    guests: list[str] = []
    container = str(seen.get("container", ""))
    groups = str(seen.get("cgroup", ""))
    if container in ("lxc", "podman", "docker", "systemd-nspawn"):
        guests += [container, "container"]
    elif container:
        guests.append("container")
    if (seen.get("dockerenv") or "/docker" in groups) and "docker" not in guests:
        guests += ["docker", "container"]
    product, vendor = firmware.get("product_name", ""), firmware.get("sys_vendor", "")
    for name, kind in (
        ("VMware", "VMware"),
        ("VirtualBox", "virtualbox"),
        ("RHEV", "RHEV"),
        ("Virtual Machine", "VirtualPC"),
    ):
        if name in product and (kind != "VirtualPC" or "Microsoft" in vendor):
            guests.append(kind)
    if vendor == "QEMU" or any(name in product or name in vendor for name in _KVM):
        guests.append("kvm")
    if seen.get("hypervisor_type") == "xen":
        guests.append("xen")
    hosts = ["kvm"] if seen.get("kvm") else []
    kind = guests[0] if guests else hosts[0] if hosts else "NA"
    return {
        "virtualization_type": kind,
        "virtualization_role": "guest" if guests else "host" if hosts else "NA",
        "virtualization_tech_guest": sorted(set(guests)),
        "virtualization_tech_host": hosts,
    }
