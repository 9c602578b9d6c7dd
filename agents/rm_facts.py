"""Facts of a host: what it has, as measured now; nothing is assumed and nothing is made up."""

import os
import sys

from rm_gpus import KERNEL_LOG, gpus, xids
from rm_interfaces import interfaces
from rm_spool import boot_id

SEARCH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
NVIDIA = "/proc/driver/nvidia"  # while its driver is loaded, also when no GPU answers


def program(name):
    """Absolute path of a program, "" when the host has none (a login may lack the sbin directories)."""
    for folder in SEARCH:
        path = os.path.join(folder, name)
        if os.access(path, os.X_OK):
            return path
    return ""


def gather(state, towards=(), kernel_log=KERNEL_LOG):
    """All facts; `state` names the file system whose free space counts, `towards` the other hosts."""
    disk, tool = os.statvfs(state), program("nvidia-smi")
    found = gpus(tool) if tool else []
    return {
        "cpus": len(os.sched_getaffinity(0)),
        "mem_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "gpus": found,
        "gpu_xids": xids(kernel_log) if found or os.path.exists(NVIDIA) else [],
        "interfaces": interfaces(towards, program("ip")),
        "kernel": os.uname().release,
        "machine": os.uname().machine,
        "python": "%d.%d.%d" % sys.version_info[:3],
        "os": _os_release(),
        "hostname": os.uname().nodename,
        "boot_id": boot_id(),
        "booted_us": booted_us(),
        "disk_free_bytes": disk.f_bavail * disk.f_frsize,
        "disk_bytes": disk.f_blocks * disk.f_frsize,
    }


def booted_us(stat="/proc/stat"):
    """When the kernel began, to the second, by the host's clock; 0 where it does not say."""
    try:
        with open(stat) as file:
            return next((int(line.split()[1]) * 1000000 for line in file if line.startswith("btime ")), 0)
    except OSError:
        return 0


def _os_release():
    try:
        with open("/etc/os-release") as file:
            for line in file:
                if line.startswith("PRETTY_NAME="):
                    return line.split("=", 1)[1].strip().strip('"')
    except OSError:
        pass
    return "Linux"
