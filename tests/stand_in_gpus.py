"""Files of a host with NVIDIA GPUs, and AMD ones if asked: what the kernel tells of them, without any.

Device files can be made for any number; where no driver is behind it, opening one fails with ENXIO when the
kernel lets the process through, and with EPERM when it does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# answers in the columns that it is asked for; a value is a word of the shell, which knows $gpu
DRIVERS_PROGRAM = """#!/bin/sh
for word; do case $word in --query-gpu=*) asked=${word#*=};; esac; done
for gpu in 0 1; do
  line=
  for name in $(echo "$asked" | tr , ' '); do
    case $name in
      index) value=$gpu;;
      uuid) value=GPU-$gpu;;
      name) value='NVIDIA H100 80GB HBM3';;
      memory.total) value=81559;;
VALUES
      *) value='[N/A]';;
    esac
    line="$line${line:+, }$value"
  done
  echo "$line"
done
"""
NVIDIA, UVM, CAPS, DRM, KFD = 195, 510, 511, 226, 236
OPENED, CLOSED = "No such device or address", "Operation not permitted"


def nvidia(root: Path, minors: list[int], mig: int = 0, uuids: Sequence[str] = ()) -> None:
    """GPU k is /dev/nvidia<minors[k]>, with UUID GPU-k or `uuids[k]`; each has `mig` instances."""
    kinds = f"{NVIDIA} nvidia\n{NVIDIA} nvidiactl\n{UVM} nvidia-uvm\n{CAPS} nvidia-caps\n{DRM} drm\n"
    _devices(root, kinds)
    home = root / "proc/driver/nvidia"
    for index, minor in enumerate(minors):
        bus = f"0000:{0x1B + index:02x}:00.0"
        gpu = home / "gpus" / bus
        gpu.mkdir(parents=True)
        uuid = uuids[index] if uuids else f"GPU-{index}"
        (gpu / "information").write_text(
            f"Model: \t\t Stand-in\nIRQ:   \t\t 18\nGPU UUID: \t {uuid}\nBus Location: \t {bus}\n"
            f"Device Minor: \t {minor}\nGPU Excluded:\t No\n"
        )
        for instance in range(mig):
            access = home / f"capabilities/gpu{minor}/mig/gi{instance}/access"
            access.parent.mkdir(parents=True)
            number = 100 * minor + instance
            access.write_text(f"DeviceFileMinor: {number}\nDeviceFileMode: 292\nDeviceFileModify: 1\n")
        _drm(root, index, bus, "0x10de")


def amd(root: Path, count: int) -> None:
    _devices(root, f"{DRM} drm\n{KFD} kfd\n")
    for index in range(count):
        _drm(root, index, f"0000:{0x43 + index:02x}:00.0", "0x1002")
    _drm(root, count, "0000:02:00.0", "0x1a03")  # the console's


def nvidia_smi(values: Mapping[str, str]) -> str:
    """A script in place of the driver's program, with two GPUs: `values` of the columns that a test needs."""
    lines = (f"      {name}) value={value};;" for name, value in values.items())
    return DRIVERS_PROGRAM.replace("VALUES", "\n".join(lines))


def cdi(uuids: Sequence[str]) -> dict[str, Any]:
    """What `nvidia-ctk cdi generate` writes into /etc/cdi for GPUs that are /dev/nvidia0 and so on."""
    shared = [{"path": f"/dev/{name}"} for name in ("nvidiactl", "nvidia-uvm")]
    devices = [
        {"name": name, "containerEdits": {"deviceNodes": [{"path": f"/dev/nvidia{index}"}]}}
        for index, uuid in enumerate(uuids)
        for name in (str(index), uuid)
    ]
    return {
        "cdiVersion": "0.5.0",
        "kind": "nvidia.com/gpu",
        "devices": devices,
        "containerEdits": {"deviceNodes": shared},
    }


def _devices(root: Path, kinds: str) -> None:
    (root / "proc").mkdir(parents=True, exist_ok=True)
    text = f"Character devices:\n  1 mem\n  5 /dev/tty\n{kinds}\nBlock devices:\n  7 loop\n{DRM} virtblk\n"
    (root / "proc/devices").write_text(text)


def _drm(root: Path, index: int, bus: str, vendor: str) -> None:
    device = root / "sys/devices/pci0000:00" / bus
    device.mkdir(parents=True)
    (device / "vendor").write_text(vendor + "\n")
    for name, minor in ((f"card{index}", index), (f"renderD{128 + index}", 128 + index)):
        folder = root / "sys/class/drm" / name
        folder.mkdir(parents=True)
        (folder / "dev").write_text(f"{DRM}:{minor}\n")
        (folder / "device").symlink_to(device)
