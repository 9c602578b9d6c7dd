"""The device files of this host's GPUs, and which of them a job with certain GPUs may open.

Found by the kernel's own lists, never by a tool's: /proc/devices (which major numbers belong to GPUs),
/proc/driver/nvidia (each GPU's UUID, bus and minor number, its MIG capabilities) and /sys/class/drm. A device
is (major, minor); the minor is None for all of a major.
"""

import contextlib
import os
import re
import stat

from rm_kernel import read_text

# kinds in /proc/devices that a job without GPUs opens none of
FENCED = re.compile(r"nvidia|drm$|kfd$|accel$")
# of these a job with any GPU may open all: what programs use beside the GPUs' own files
SHARED = ("nvidia-uvm", "nvidia-nvlink", "nvidia-caps-imex-channels", "kfd")
NVIDIA_MAJOR = 195
NVIDIA_SHARED = (254, 255)  # nvidia-modeset, nvidiactl
AMD = "0x1002"


class Gpu:
    """One GPU: its UUID ("" when the driver does not report it), its place on the bus, its device files."""

    def __init__(self, uuid, bus, own):
        self.uuid, self.bus, self.own = uuid, bus, set(own)


class Devices:
    """What there is now. `gpus` is in the order of their indices, which is the bus's."""

    def __init__(self, root=""):
        self.root = root
        kinds = _kinds(root)
        self.majors = {major for major, name in kinds if FENCED.match(name)}
        self.gpus, self.shared = [], set()
        if not self.majors:
            return
        self.shared = {(major, None) for major, name in kinds if name in SHARED}
        caps = next((major for major, name in kinds if name == "nvidia-caps"), None)
        if NVIDIA_MAJOR in self.majors:
            self.shared |= {(NVIDIA_MAJOR, minor) for minor in NVIDIA_SHARED}
        drawn = _drm(root)
        self.gpus = _nvidia(root, caps, drawn) or _amd(drawn)

    def open_to(self, wanted):
        """(devices that a job with these GPUs may open, those of them that are not known here).

        A GPU is named by its UUID or its index, as in the launch.
        """
        by_name = {}
        for index, gpu in enumerate(self.gpus):
            by_name[str(index)] = gpu
            by_name[gpu.uuid] = gpu
        unknown = [name for name in wanted if name not in by_name]
        allowed = set(self.shared) if wanted else set()
        for name in wanted:
            if name in by_name:
                allowed |= by_name[name].own
        return allowed, unknown

    def files(self):
        """(path, device) of every device file below /dev that is fenced."""
        found = []
        for folder, _, names in os.walk(self.root + "/dev"):
            for name in names:
                path = os.path.join(folder, name)
                with contextlib.suppress(OSError):
                    about = os.lstat(path)
                    if stat.S_ISCHR(about.st_mode) and os.major(about.st_rdev) in self.majors:
                        found.append((path, (os.major(about.st_rdev), os.minor(about.st_rdev))))
        return found


def is_in(device, allowed):
    return device in allowed or (device[0], None) in allowed


def version(root=""):
    """Changes when a driver comes or goes, or its GPUs do."""
    try:
        gpus = sorted(os.listdir(root + "/proc/driver/nvidia/gpus"))
    except OSError:
        gpus = []
    return read_text(root + "/proc/devices"), tuple(gpus)


def _kinds(root):
    """[(major, name)] of the character devices."""
    characters = read_text(root + "/proc/devices").partition("Block devices:")[0]
    return [(int(major), name) for major, name in re.findall(r"^\s*(\d+) (\S+)$", characters, re.MULTILINE)]


def _nvidia(root, caps, drawn):
    home, found = root + "/proc/driver/nvidia", []
    try:
        buses = os.listdir(home + "/gpus")
    except OSError:
        return []
    for bus in buses:
        told = dict(
            re.findall(r"^(.+?):\s*(.*)$", read_text("%s/gpus/%s/information" % (home, bus)), re.MULTILINE)
        )
        minor = told.get("Device Minor", "").strip()
        if not minor.isdigit():
            continue
        own = {
            (NVIDIA_MAJOR, int(minor)),
            *(device for device, (at, _) in drawn.items() if at == bus.lower()),
        }
        if caps is not None:
            own |= {(caps, number) for number in _mig("%s/capabilities/gpu%s/mig" % (home, minor))}
        found.append(Gpu(told.get("GPU UUID", "").strip(), bus.lower(), own))
    return sorted(found, key=lambda gpu: gpu.bus)


def _mig(home):
    """The minor numbers of the capabilities of a GPU's instances."""
    for folder, _, names in os.walk(home):
        for name in names:
            if name == "access":
                text = read_text(os.path.join(folder, name))
                yield from map(int, re.findall(r"DeviceFileMinor:\s*(\d+)", text))


def _amd(drawn):
    buses = {}
    for device, (bus, vendor) in drawn.items():
        if vendor == AMD:
            buses.setdefault(bus, set()).add(device)
    return [Gpu("", bus, own) for bus, own in sorted(buses.items())]


def _drm(root):
    """device -> (bus, vendor) of the files under /dev/dri."""
    home, found = root + "/sys/class/drm", {}
    try:
        names = os.listdir(home)
    except OSError:
        return found
    for name in names:
        number = re.fullmatch(r"(\d+):(\d+)\s*", read_text("%s/%s/dev" % (home, name)))
        if number:
            device = "%s/%s/device" % (home, name)
            bus = os.path.basename(os.path.realpath(device)).lower()
            found[int(number.group(1)), int(number.group(2))] = (bus, read_text(device + "/vendor").strip())
    return found
