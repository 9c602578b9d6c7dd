"""The lab's spines: a link from each leaf to each of them, and which of these a packet takes.

Leaves and spines are routers, one routing table each, in the namespace of the fabric; a link between two is a
pair of devices with a queue at both ends. A leaf sends a packet with the code point of a spine (`dscp_of`)
over that spine, as static rules on real leaves do, and others by a hash of their flow, as equal-cost
multipath does.
"""

from __future__ import annotations

from collections.abc import Iterator

from rm.lab.spec import LabSpec, dscp_of, leaf_name, network

TABLE = "rm_lab_spines"
LEAF_TABLE, SPINE_TABLE = 1000, 9000  # the first numbers of their routing tables
# one less than the first third octets of the addresses of links' ends; zones have the lower ones
SPINE_ADDRESSES, LEAF_ADDRESSES = 200, 216


def fabric_toml(spec: LabSpec) -> str:
    """What rm.toml has to say of these spines."""
    dscp = ", ".join(str(dscp_of(spine)) for spine in range(spec.spines))
    rate = max(1, round(spec.uplink_rate_mbps))
    return f"[fabric]  spines = {spec.spines}  uplink_mbps = {rate}  dscp = [{dscp}]"


def devices(spec: LabSpec) -> Iterator[tuple[str, str, int, int]]:
    """(the leaf's end, the spine's end, number of the leaf, of the spine) of each link, from 1 on."""
    for leaf in range(1, spec.leaves + 1):
        for spine in range(1, spec.spines + 1):
            yield uplink(leaf, spine), f"s{spine}l{leaf}", leaf, spine


def uplink(leaf: int, spine: int) -> str:
    """The leaf's end of its link to the spine."""
    return f"l{leaf}s{spine}"


def links(spec: LabSpec, slot: int) -> list[str]:
    """ip lines: the links, and what each router knows."""
    net, merge = network(slot), "" if spec.offload else " gso_max_segs 1"
    lines = [f"rule add pref 100 to {net}.0.0/30 lookup main"]
    for up, down, leaf, spine in devices(spec):
        # without ARP a frame carries the sender's own address, which must be the receiver's, too
        mac = f"02:72:{64 + slot:02x}:01:{leaf:02x}:{spine:02x}"
        lines += [f"link add {up} address {mac} type veth peer name {down} address {mac}"]
        lines += [f"link set {end} arp off{merge} up" for end in (up, down)]
        # by which a trace tells the routers apart
        lines += [f"addr add {net}.{SPINE_ADDRESSES + spine}.{leaf}/32 dev {down}"]
        lines += [f"addr add {net}.{LEAF_ADDRESSES + spine}.{leaf}/32 dev {up}"]
        table = LEAF_TABLE + leaf * (spec.spines + 1) + spine
        lines += [
            f"route add default dev {up} table {table}",
            f"rule add pref 200 iif {leaf_name(leaf)} fwmark {spine} lookup {table}",
            f"route add {net}.{leaf}.0/24 dev {down} table {SPINE_TABLE + spine}",
            f"rule add pref 200 iif {down} lookup {SPINE_TABLE + spine}",
        ]
    return lines


def rules(spec: LabSpec) -> list[str]:
    """nft lines: each packet that leaves a leaf is marked with the number of its spine."""
    leaves = ", ".join(f'"{leaf_name(leaf)}"' for leaf in range(1, spec.leaves + 1))
    lines = [f"table ip {TABLE} {{", "chain choice {"]
    lines += ["type filter hook prerouting priority mangle; policy accept;"]
    lines += [f"iifname != {{ {leaves} }} accept;"]
    lines += [
        f"ip dscp {dscp_of(spine - 1)} meta mark set {spine} accept;" for spine in range(1, spec.spines + 1)
    ]
    flow = f"ip saddr . ip daddr . th sport . th dport mod {spec.spines} seed 0x726d offset 1"
    lines += [f"meta l4proto {{ tcp, udp }} meta mark set jhash {flow} accept;"]
    lines += [f"meta mark set jhash ip saddr . ip daddr mod {spec.spines} seed 0x726d offset 1;"]
    return [*lines, "};", "}"]
