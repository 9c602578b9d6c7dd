"""`setup`: what this host says about itself, as raw texts; rm/playbook/facts turns them into names."""

import contextlib
import os
import sys

from rm_steps_base import asks, execute, expanded, find_tool, plain_environment

_DMI = ("bios_date", "bios_vendor", "bios_version", "board_name", "board_vendor", "board_version",
        "chassis_vendor", "product_name", "product_serial", "product_uuid", "product_version",
        "sys_vendor")  # fmt: skip


TEXT_MOST = 1 << 20


def _text(path, limit=TEXT_MOST):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(limit)
    except OSError:
        return ""


def _ip(*words):
    program = find_tool("ip")
    try:
        code, out = asks([program, "-json", *words]) if program else (1, "")
    except OSError:
        return ""
    return out if code == 0 else ""


def _addresses_and_routes():
    """What `ip -json address` and `ip -json route` say, of one process that says both."""
    program = find_tool("ip")
    if program:
        argv, both = [program, "-json", "-batch", "-"], "address\nroute\n"
        with contextlib.suppress(OSError):
            code, out, _ = execute(argv, env=plain_environment(), stdin=both)
            lines = out.splitlines()
            if code == 0 and len(lines) == 2:
                return lines
    return [_ip("address"), _ip("route")]


def _routes6():
    """What `ip -json -6 route` says, "" where the kernel has no default route, which is all that is read."""
    nowhere = "0" * 32 + " 00 "
    text = _text("/proc/net/ipv6_route")
    routes = text.splitlines() if len(text) < TEXT_MOST else []  # of a longer one the default may be cut off
    # the kernel's own default, which refuses, has the last metric of all, and `ip` does not show it
    if routes and not any(one.startswith(nowhere) and one.split()[5] != "f" * 8 for one in routes):
        return ""
    return _ip("-6", "route")


def _mounts():
    """Mounted file systems with their sizes: only those on devices or on the network."""
    found, seen = [], set()
    for line in _text("/proc/self/mounts").splitlines():
        words = line.split(" ")
        device, path, kind, options = words[0], words[1], words[2], words[3]
        if (not device.startswith(("/", r"\\")) and ":/" not in device) or kind == "none" or path in seen:
            continue
        seen.add(path)
        real = path.encode().decode("unicode_escape", "replace") if "\\" in path else path
        one = {"device": device, "mount": real, "fstype": kind, "options": options}
        with contextlib.suppress(OSError):
            size = os.statvfs(real)
            one["statvfs"] = [size.f_bsize, size.f_frsize, size.f_blocks, size.f_bfree, size.f_bavail,
                              size.f_files, size.f_ffree]  # fmt: skip
        found.append(one)
    return found


def _uuids():
    found = {}
    with contextlib.suppress(OSError):
        for name in os.listdir("/dev/disk/by-uuid"):
            found[os.path.realpath("/dev/disk/by-uuid/" + name)] = name
    return found


def _service_manager():
    if os.path.isdir("/run/systemd/system"):
        return "systemd"
    first = _text("/proc/1/comm").strip()
    if first in ("", "init") and os.path.realpath("/sbin/init").endswith("systemd"):
        return "systemd"  # not running: a chroot, say
    return first


def _virtual():
    """What hints at a virtual machine or container."""
    found = {"cgroup": _text("/proc/1/cgroup")[:2000], "cpuinfo_hypervisor": False}
    found["container"] = _container_of_init()
    found["dockerenv"] = os.path.exists("/.dockerenv") or os.path.exists("/.dockerinit")
    found["hypervisor_type"] = _text("/sys/hypervisor/type").strip()
    found["kvm"] = os.path.exists("/dev/kvm")
    return found


def _container_of_init():
    with contextlib.suppress(OSError), open("/proc/1/environ", "rb") as file:
        for one in file.read().split(b"\0"):
            if one.startswith(b"container="):
                return one.partition(b"=")[2].decode(errors="replace")
    return ""


def _local(folder):
    """*.fact of a directory: JSON or INI texts, or the output of executable ones."""
    found = {}
    with contextlib.suppress(OSError):
        for name in sorted(os.listdir(folder)):
            path = os.path.join(folder, name)
            if name.endswith(".fact"):
                runs = os.access(path, os.X_OK) and os.path.isfile(path)
                found[name[:-5]] = asks([path], timeout_s=30)[1] if runs else _text(path)
    return found


def _selinux():
    if not os.path.isdir("/sys/fs/selinux"):
        return None
    config = dict(line.split("=", 1) for line in _text("/etc/selinux/config").splitlines() if "=" in line[1:])
    return {
        "enforce": _text("/sys/fs/selinux/enforce").strip(),
        "policyvers": _text("/sys/fs/selinux/policyvers").strip(),
        "config_mode": config.get("SELINUX", "unknown"),
        "type": config.get("SELINUXTYPE", "unknown"),
    }


def _host_keys():
    found = {}
    for kind in ("rsa", "ecdsa", "ed25519", "dsa"):
        words = _text("/etc/ssh/ssh_host_%s_key.pub" % kind).split()
        if len(words) >= 2:
            found[kind] = words[:2]
    return found


def _fully_qualified():
    """The host's name with its domain, by the resolver's files: a name server may make one wait."""
    import socket

    name = socket.gethostname()
    if "." in name:
        return name
    for line in _text("/etc/hosts").splitlines():
        words = line.partition("#")[0].split()[1:]
        if name in words:
            return next((word for word in words if word.startswith(name + ".")), words[0])
    return name


def do_setup(run, args):
    import pwd
    import socket
    import time

    me = pwd.getpwuid(os.getuid())
    now = time.time()
    local = time.localtime(now)
    addresses, routes = _addresses_and_routes()
    raw = {
        "uname": list(os.uname()),
        "hostname": socket.gethostname(),
        "fqdn": _fully_qualified(),
        "os_release": _text("/etc/os-release") or _text("/usr/lib/os-release"),
        "redhat_release": _text("/etc/redhat-release"),
        "debian_version": _text("/etc/debian_version"),
        "meminfo": _text("/proc/meminfo"),
        "cpuinfo": _text("/proc/cpuinfo", 1 << 17),
        "cpus": os.cpu_count() or 1,
        "cpus_usable": len(os.sched_getaffinity(0)),
        "addresses": addresses,
        "routes": routes,
        "routes6": _routes6(),
        "resolv": _text("/etc/resolv.conf"),
        "mounts": _mounts(),
        "uuids": _uuids(),
        "python_version": list(sys.version_info[:5]),
        "python_executable": sys.executable or "python3",
        "python_type": sys.implementation.name,
        "init": _service_manager(),
        "managers": [name for name in ("apt-get", "dnf5", "dnf", "yum", "zypper", "pacman", "apk")
                     if find_tool(name)],
        "user": me.pw_name, "uid": me.pw_uid, "gid": me.pw_gid, "home": me.pw_dir, "shell": me.pw_shell,
        "gecos": me.pw_gecos, "euid": os.geteuid(),
        "egid": os.getegid(),
        "environment": dict(os.environ),
        "now": now, "utc_offset_s": local.tm_gmtoff, "timezone": local.tm_zone,
        "timezone_dst": time.tzname[1],
        "machine_id": _text("/etc/machine-id").strip() or _text("/var/lib/dbus/machine-id").strip(),
        "uptime_s": float((_text("/proc/uptime") or "0").split()[0]),
        "loadavg": (_text("/proc/loadavg") or "0 0 0").split()[:3],
        "cmdline": _text("/proc/cmdline").strip(),
        "dmi": {name: _text("/sys/class/dmi/id/" + name).strip() for name in _DMI},
        "virtual": _virtual(),
        "selinux": _selinux(),
        "apparmor": os.path.exists("/sys/kernel/security/apparmor"),
        "fips": _text("/proc/sys/crypto/fips_enabled").strip() == "1",
        "userspace_bits": "64" if sys.maxsize > 2**32 else "32",
        "host_keys": _host_keys(),
        "local": _local(expanded(args.get("fact_path") or "/etc/ansible/facts.d")),
        "speeds": {name: _text("/sys/class/net/%s/speed" % name).strip() for name in _interfaces()},
    }  # fmt: skip
    return {"changed": False, "raw_facts": raw}


def _interfaces():
    with contextlib.suppress(OSError):
        return os.listdir("/sys/class/net")
    return []
