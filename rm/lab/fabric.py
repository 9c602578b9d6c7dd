"""The lab's network as text for `ip -batch`, `tc -batch` and `nft -f`.

One network namespace, the fabric, holds a bridge and router address per zone, or per leaf (`spines.py`), and
the far end of every host's link. A host's link is shaped at both ends by a token bucket with a packet queue.
Packets between zones are routed through the device `wan0`, whose other end a small program delays (see
`delay.py`); packets to and from the machine that runs rm go through `control`, undelayed.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Sequence

from rm.lab import spines
from rm.lab.spec import LabHost, LabSpec, network, switches, zone_name

# an ordinary user's path may lack the directories of ip, tc, nft and sshd
SEARCH = os.pathsep.join(
    (os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin")
)
DELAYED_TABLE = 100
TABLE = "rm_lab"


class FabricError(Exception):
    """A network tool refused a batch; the message holds its answer."""


def _run(argv: Sequence[str], text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv, input=text, capture_output=True, text=True, check=False, env={**os.environ, "PATH": SEARCH}
    )


def routes() -> list[str]:
    """The targets of this network namespace's IPv4 routes."""
    done = _run(["ip", "-4", "route", "show"])
    if done.returncode:
        raise FabricError(f"`ip route` failed: {done.stderr.strip()}")
    return [line.split()[0] for line in done.stdout.splitlines() if line.strip()]


def run_batch(argv: Sequence[str], lines: Iterable[str]) -> None:
    text = "\n".join(lines) + "\n"
    done = _run(argv, text)
    if done.returncode != 0:
        answer = " / ".join(done.stderr.strip().splitlines()[:3])
        raise FabricError(f"`{' '.join(argv)}` failed: {answer}")


def ip(lines: Iterable[str]) -> None:
    run_batch(["ip", "-batch", "-"], lines)


def tc(lines: Iterable[str]) -> None:
    run_batch(["tc", "-batch", "-"], lines)


def nft(lines: Iterable[str]) -> None:
    run_batch(["nft", "-f", "-"], lines)


def queue(device: str, rate_mbps: float, packets: int) -> list[str]:
    """tc lines: `device` sends at `rate_mbps` from a queue of `packets` packets."""
    # two milliseconds' worth: enough that a late timer loses no rate; at least two packets
    burst = max(4000, int(rate_mbps * 1e6 / 8 * 0.002))
    return [
        # the limit is the inner queue's, which the second line replaces
        f"qdisc replace dev {device} root handle 10: tbf rate {rate_mbps * 1e6:.0f}bit burst {burst}"
        f" limit {burst * 10}",
        f"qdisc replace dev {device} parent 10:1 handle 11: pfifo limit {packets}",
    ]


def wires(hosts: Sequence[LabHost], spec: LabSpec) -> list[tuple[str, str, float]]:
    """What `delay.py` has to carry: (from device, to device, delay in ms)."""
    carried = []
    if has_wan(spec):
        carried.append(("wan1", "wan1", spec.zone_delay_ms))
    for host in hosts:
        if host.delay_ms:
            carried.append((f"b-{host.name}", f"c-{host.name}", host.delay_ms))
            carried.append((f"c-{host.name}", f"b-{host.name}", host.delay_ms))
    return carried


def has_wan(spec: LabSpec) -> bool:
    return spec.zones > 1 and spec.zone_delay_ms > 0


def backbone(spec: LabSpec, slot: int, hosts: Sequence[LabHost], control: bool) -> list[str]:
    """ip lines: bridges, routers, the delayed way between zones, extra wires of delayed hosts."""
    net = network(slot)
    lines = ["link set lo up"]
    for name, number in switches(spec).items():
        lines += [
            f"link add {name} address 02:72:{64 + slot:02x}:00:{number:02x}:01 type bridge stp_state 0"
            " mcast_snooping 0",
            f"link set {name} up",
            f"addr add {net}.{number}.1/24 dev {name}",
        ]
    if control:
        lines += [f"addr add {net}.0.2/30 dev control", "link set control up"]
    if spec.leaves:
        lines += spines.links(spec, slot)
    if has_wan(spec):
        lines += ["link add wan0 type veth peer name wan1"]
        # without ARP, frames on wan0 carry its own address, so what wan1 sends back is taken in and routed
        lines += ["link set wan0 arp off", "link set wan1 arp off", "link set wan0 up", "link set wan1 up"]
        # by this address a trace tells the second router from the first
        lines += [f"addr add {net}.0.6/32 dev wan0"]
        lines += [f"route add default dev wan0 table {DELAYED_TABLE}"]
        lines += [f"rule add pref 100 to {net}.0.0/30 lookup main"]
        lines += [
            f"rule add pref 200 iif {zone_name(zone)} lookup {DELAYED_TABLE}"
            for zone in range(1, spec.zones + 1)
        ]
    for host in hosts:
        if host.delay_ms:
            name = host.name
            lines += [
                f"link add m-{name} type bridge stp_state 0 mcast_snooping 0",
                f"link add a-{name} type veth peer name b-{name}",
                f"link add c-{name} type veth peer name d-{name}",
                f"link set a-{name} master m-{name}",
                f"link set d-{name} master {host.bridge}",
            ]
            # no ARP on the program's ends, or the fabric would answer there for its own addresses
            lines += [f"link set {end}-{name} arp off" for end in "bc"]
            lines += [f"link set {end}-{name} up" for end in "mabcd"]
    return lines


def port(host: LabHost, init_pid: int, offload: bool) -> list[str]:
    """ip lines: the host's link, its `eth0` put into the namespace of `init_pid`."""
    name = host.name
    bridge = f"m-{name}" if host.delay_ms else host.bridge
    merge = "" if offload else " gso_max_segs 1"
    return [
        f"link add {name} type veth peer name eth0 address {host.mac} netns {init_pid}",
        f"link set {name} master {bridge}{merge} up",
    ]


def drop_port(name: str) -> None:
    """Deletes a host's link at once; it may have gone by itself with the host's last process, or just go."""
    done = _run(["ip", "link", "del", name])
    if done.returncode and not any(gone in done.stderr for gone in ("Cannot find device", "No such device")):
        raise FabricError(f"`ip link del {name}` failed: {done.stderr.strip()}")


def inside(host: LabHost, spec: LabSpec) -> list[str]:
    """ip lines for the host's own namespace.

    The congestion control is a property of the routes: as the default that its sysctl names, a network
    namespace may choose only an unrestricted one.
    """
    merge = "" if spec.offload else " gso_max_segs 1"
    net = host.gateway.rpartition(".")[0]
    control = f"congctl {spec.congestion_control}"
    return [
        "link set lo up",
        f"link set eth0{merge} up",
        f"addr add {host.address}/24 dev eth0",
        f"route replace {net}.0/24 dev eth0 proto kernel scope link src {host.address} {control}",
        f"route add default via {host.gateway} {control}",
    ]


def _chance(percent: float) -> str:
    # ARP is spared: one lost request would stall a host for a second, which no loss rate explains
    return f"meta protocol ip numgen random mod 100000 < {round(percent * 1000)}"


def rules(spec: LabSpec, hosts: Sequence[LabHost]) -> list[str]:
    """nft lines: lossy links and zones, and the set of hosts that are cut off."""
    lossy = [host for host in hosts if host.loss_pct]
    lines = [f"table bridge {TABLE} {{", "set cut { type ifname; };", "chain from_hosts {"]
    lines += ["type filter hook prerouting priority -300; policy accept;", "iifname @cut drop;"]
    lines += [f'iifname "{host.name}" {_chance(host.loss_pct)} drop;' for host in lossy]
    lines += ["};", "chain to_hosts {"]
    lines += ["type filter hook postrouting priority 300; policy accept;", "oifname @cut drop;"]
    lines += [f'oifname "{host.name}" {_chance(host.loss_pct)} drop;' for host in lossy]
    lines += ["};", "}"]
    if spec.zone_loss_pct and spec.zones > 1:
        zones = ", ".join(f'"{zone_name(zone)}"' for zone in range(1, spec.zones + 1))
        lines += [
            f"table inet {TABLE} {{",
            "chain between_zones {",
            "type filter hook forward priority 0; policy accept;",
            f'iifname {{ {zones} }} oifname != "control" {_chance(spec.zone_loss_pct)} drop;',
            "};",
            "}",
        ]
    return lines + (spines.rules(spec) if spec.leaves else [])


def cut(host: str, on: bool) -> list[str]:
    return [f'{"add" if on else "delete"} element bridge {TABLE} cut {{ "{host}" }}']
