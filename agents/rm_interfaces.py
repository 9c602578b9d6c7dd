"""Network interfaces of a host, and which of them carries the traffic to the other hosts.

The kernel's routes decide, as they do for the jobs: never the order of the interfaces, nor their names.
"""

import fcntl
import json
import os
import socket
import struct
import subprocess
import time

SIOCGIFADDR, SIOCGIFNETMASK, IFF_UP = 0x8915, 0x891B, 1
SYSFS = "/sys/class/net"
RDMA = "/sys/class/infiniband"
RESOLVE_S = 3.0  # for all names together: a silent name server must not hold up the hello
ROUTES_S = 5.0
ALTNAMES_MOST = 64


def interfaces(towards, ip, sysfs=SYSFS, rdma=RDMA):
    """[{name, altnames, address, network, routed, up, speed_bps, mtu_bytes, numa_node, rdma, routes,
    control}].

    `altnames` are other names of the interface (Linux 5.5), as `ip link property` gives them.
    `network` is the network of the address, "10.1.0.0/24", "" while the link is down or leads to one host.
    `routed` is the widest network that holds the address and to which gateways behind the interface lead,
    "10.1.0.0/16" for a rail of which each host has a network of its own; "" without such a route.
    `routes` is how many of the hosts `towards` (names or addresses) are reached through the interface, and
    `control` says that the daemon is. `speed_bps` is 0 and `numa_node` -1 where the driver does not report
    it. `ip` is the path of the program, "" where the host has none: then no route is known.
    """
    found = [_interface(name, sysfs) for _, name in socket.if_nameindex()]
    devices = _rdma(rdma)
    peers = _resolved(towards)
    daemon = os.environ.get("SSH_CONNECTION", "").split(" ")[0]
    asked = [*peers, daemon] if daemon else peers
    answers = _answers(ip, ["link show", *("route get " + each for each in asked)])
    routes = _through(answers, asked)
    altnames = {answer["ifname"]: answer.get("altnames", []) for answer in answers if "ifname" in answer}
    through = routes[: len(peers)]
    table = _answers(ip, ["route show"])  # apart: it may be too long for the time there is
    for one in found:
        one["routed"] = _routed(table, one["name"], one["address"]) if one["network"] else ""
        one["altnames"] = altnames.get(one["name"], [])[:ALTNAMES_MOST]
        one["rdma"] = devices.get(one["name"], "")
        one["routes"] = through.count(one["name"])
        one["control"] = bool(daemon) and routes[len(peers) :] == [one["name"]]
    return found


def _interface(name, sysfs):
    def number(path, otherwise, base=10):
        try:
            with open(os.path.join(sysfs, name, path)) as file:
                return int(file.read(), base)
        except (OSError, ValueError):
            return otherwise

    return {
        "name": name,
        "address": _address(name),
        "network": _network(name) if number("carrier", 0) else "",
        "up": bool(number("flags", 0, 16) & IFF_UP),
        "speed_bps": max(0, number("speed", 0)) * 1_000_000,
        "mtu_bytes": max(0, number("mtu", 0)),
        "numa_node": max(-1, number("device/numa_node", -1)),
    }


def _address(name):
    """The first IPv4 address, "" without one."""
    raw = _asked(name, SIOCGIFADDR)
    return socket.inet_ntoa(raw) if raw else ""


def _network(name):
    """Of that address, "" without one."""
    address, mask = (int.from_bytes(_asked(name, what), "big") for what in (SIOCGIFADDR, SIOCGIFNETMASK))
    bits = bin(mask).count("1")
    return "%s/%d" % (socket.inet_ntoa((address & mask).to_bytes(4, "big")), bits) if 0 < bits < 32 else ""


def _asked(name, what):
    """The four bytes that the kernel tells of the interface, none where there are none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            return fcntl.ioctl(asking, what, struct.pack("256s", name.encode()[:15]))[20:24]
        except OSError:
            return b""


def _rdma(top):
    """{interface: RDMA device}: mlx5_0 of ib0, also where a bond or a VLAN lies between (RoCE)."""
    found = {}
    for device in sorted(_listed(top)):
        for port in _listed(os.path.join(top, device, "ports")):
            names = os.path.join(top, device, "ports", port, "gid_attrs", "ndevs")
            for index in _listed(names):
                try:
                    with open(os.path.join(names, index)) as file:
                        found.setdefault(file.read().strip(), device)
                except OSError:  # an unused entry cannot be read
                    continue
        for name in _listed(os.path.join(top, device, "device", "net")):
            found.setdefault(name, device)
    return found


def _listed(folder):
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _resolved(names):
    """One address of each name that has one, in order."""
    until, found = time.monotonic() + RESOLVE_S, []
    for name in names:
        if time.monotonic() > until:
            break
        try:
            found.append(socket.getaddrinfo(name, None, type=socket.SOCK_DGRAM)[0][4][0])
        except (OSError, UnicodeError):
            continue
    return found


def _answers(ip, questions):
    """What `ip` says to these; nothing where it fails, or the host has none."""
    if not ip or not questions:
        return []
    try:
        asked = "".join(question + "\n" for question in questions).encode()
        done = subprocess.run([ip, "-json", "-force", "-batch", "-"], input=asked, timeout=ROUTES_S,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)  # fmt: skip
        answers = [answer for line in done.stdout.splitlines() if line.strip() for answer in json.loads(line)]
    except (OSError, TypeError, ValueError, subprocess.SubprocessError):
        return []
    return [answer for answer in answers if isinstance(answer, dict)]


def _through(answers, addresses):
    """The interface through which the kernel would send to each address, "" where it knows no way."""
    # an address without a route has no answer: each answer says which address it is about
    through = {answer.get("dst"): answer.get("dev", "") for answer in answers}
    return [through.get(address, "") for address in addresses]


def _routed(table, name, address):
    """The widest network around the address to which gateways behind the interface lead, alone or beside
    others."""
    found = []
    for route in table:
        network, slash, bits = str(route.get("dst")).partition("/")
        # via: a gateway of the other family (RFC 5549)
        ways = {hop.get("dev") for hop in route.get("nexthops", [route]) if "gateway" in hop or "via" in hop}
        if slash and name in ways and _within(address, network, int(bits)):
            found.append((int(bits), network))
    return "%s/%d" % min(found)[::-1] if found else ""


def _within(address, network, bits):
    one, other = (int.from_bytes(socket.inet_aton(each), "big") for each in (address, network))
    return (one ^ other) >> (32 - bits) == 0
