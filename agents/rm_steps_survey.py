"""`survey`: what a host is that rm has not run on yet. It looks, and changes nothing."""

import os
import platform
import pwd
import socket
import threading
import time

import rm_bpf
import rm_clock
from rm_kernel import cgroup_mounts, cgroup_root, read_text
from rm_steps_base import asks, find_tool

CONNECT_S = 3.0
CONTROLLERS = ("cpu", "cpuset", "memory", "pids", "freezer", "devices")


def _controllers():
    """(version of the control groups, 0 = none; what they control)."""
    root = cgroup_root()
    found = set(read_text(os.path.join(root, "cgroup.controllers")).split()) if root else set()
    first = {name for name in CONTROLLERS if cgroup_mounts("cgroup", name)}
    if root and os.path.exists(os.path.join(root, "cgroup.procs")):
        found |= {"freezer", "devices"}  # of every group, the latter by BPF
    version = 2 if root and not first else 1 if first else 2 if root else 0
    return version, sorted(found | first)


def _interfaces():
    found = {}
    for name in sorted(os.listdir("/sys/class/net")):
        about = "/sys/class/net/%s/" % name
        speed = read_text(about + "speed").strip()
        found[name] = {
            "mtu_bytes": int(read_text(about + "mtu").strip() or 0),
            "mbps": int(speed) if speed.isdigit() else 0,
            "up": read_text(about + "operstate").strip() in ("up", "unknown"),
        }
    return found


def _interface_of(address):
    code, out = asks([find_tool("ip") or "ip", "-o", "addr"])
    for line in out.splitlines() if code == 0 else ():
        words = line.split()
        if len(words) > 3 and words[3].partition("/")[0] == address:
            return words[1].partition("@")[0]
    return ""


def _addresses(name):
    """What programs find by a name, nothing where it is not known."""
    try:
        return sorted({found[4][0] for found in socket.getaddrinfo(name, None)})
    except (OSError, UnicodeError):  # the latter: it cannot be a name
        return []


def _peer(peer, answers):
    """From which of our interfaces a peer is reached, what its sshd's port says to a connection, and whether
    programs find it by its name."""
    address, port = peer["address"], peer["port"]
    answer = {"name": peer["name"], "interface": "", "problem": "", "named": bool(_addresses(peer["name"]))}
    answers.append(answer)
    try:
        kind = socket.getaddrinfo(address, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(kind[0], socket.SOCK_DGRAM) as probe:
            probe.connect(kind[4])  # sends nothing: asks for the route
            answer["interface"] = _interface_of(probe.getsockname()[0])
        socket.create_connection((address, port), CONNECT_S).close()
    except OSError as problem:
        answer["problem"] = str(problem)


def _free(path):
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    about = os.statvfs(path)
    return about.f_bavail * about.f_frsize


def _mount_of(path):
    """(what is mounted, type of the file system) at the longest mount point above a path."""
    best = ("", "", "")
    for line in read_text("/proc/self/mounts").splitlines():
        words = line.split()
        point = words[1] if len(words) > 2 else ""
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best[0]):
            best = (point, words[0], words[2])
    return list(best[1:])


def _name_of(uid):
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return ""


def _uids(names):
    found = {}
    for name in names:
        try:
            found[name] = pwd.getpwnam(name).pw_uid
        except KeyError:
            found[name] = None
    return found


def do_survey(run, args):
    version, controllers = _controllers()
    peers, threads = [], []
    for peer in args["peers"]:
        threads.append(threading.Thread(target=_peer, args=(peer, peers), daemon=True))
        threads[-1].start()
    for thread in threads:
        thread.join()
    root = os.geteuid() == 0
    sudo = "" if root else find_tool("sudo")
    return {
        "changed": False,
        "now_us": time.time_ns() // 1000,
        "synchronized": rm_clock.state()["synchronized"],
        "python": platform.python_version(),
        "kernel": platform.release(),
        "uid": os.geteuid(),
        "login": _name_of(os.geteuid()),
        "root": root or bool(sudo and asks([sudo, "-n", "true"])[0] == 0),
        "cgroup": version,
        "controllers": controllers,
        "tools": [name for name in ("tc", "nft", "ip", "sudo") if find_tool(name)],
        "bpf": os.path.exists("/proc/sys/kernel/unprivileged_bpf_disabled"),
        "bursts": rm_bpf.takes(rm_bpf.TYPE_TRAFFIC) if root else None,
        "interfaces": _interfaces(),
        "own_name": [platform.node(), _addresses(platform.node())],
        "peers": sorted(peers, key=lambda peer: peer["name"]),
        "home": _mount_of("/home"),
        "free_bytes": {path: _free(path) for path in ("/opt", "/var/lib", "/tmp")},
        "uids": _uids(args["users"]),
    }
