"""Facts of interfaces and addresses, from `ip -json address` and `ip -json route`."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Mapping
from typing import Any


def _parsed(text: Any) -> list[dict[str, Any]]:
    try:
        found = json.loads(text or "[]")
    except ValueError:
        return []
    return [item for item in found if item]


def facts(raw: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"interfaces": [], "all_ipv4_addresses": [], "all_ipv6_addresses": []}
    default = next((r for r in _parsed(raw.get("routes")) if r.get("dst") == "default"), {})
    default6 = next((r for r in _parsed(raw.get("routes6")) if r.get("dst") == "default"), {})
    speeds = dict(raw.get("speeds", {}))
    found["default_ipv4"], found["default_ipv6"] = {}, {}
    found["dns"] = _resolver(str(raw.get("resolv", "")))
    reachable: dict[str, list[str]] = {"ipv4": [], "ipv6": []}
    for link in _parsed(raw.get("addresses")):
        name = link["ifname"]
        four = [a for a in link.get("addr_info", ()) if a.get("family") == "inet"]
        six = [a for a in link.get("addr_info", ()) if a.get("family") == "inet6"]
        described: dict[str, Any] = {
            "device": name,
            "active": "UP" in link.get("flags", ()),
            "mtu": link.get("mtu"),
            "macaddress": link.get("address", ""),
            "type": "loopback" if "LOOPBACK" in link.get("flags", ()) else "ether",
        }
        if str(speeds.get(name, "")).isdigit():
            described["speed"] = int(speeds[name])
        described["promisc"] = "PROMISC" in link.get("flags", ())
        if four:
            described["ipv4"] = _address(four[0])
        if len(four) > 1:
            described["ipv4_secondaries"] = [_address(a) for a in four[1:]]
        if six:
            described["ipv6"] = [
                {"address": a["local"], "prefix": str(a["prefixlen"]), "scope": a.get("scope", "")}
                for a in six
            ]
        found["interfaces"].append(name)
        found[name.replace("-", "_").replace(".", "_")] = described
        if described["type"] != "loopback":
            found["all_ipv4_addresses"] += [a["local"] for a in four]
            found["all_ipv6_addresses"] += [a["local"] for a in six]
        reachable["ipv4"] += [a["local"] for a in four]
        reachable["ipv6"] += [a["local"] for a in six]
        if default6.get("dev") == name and any(a.get("scope") == "global" for a in six):
            one = next(a for a in six if a.get("scope") == "global")
            found["default_ipv6"] = {
                "address": one["local"],
                "prefix": str(one["prefixlen"]),
                "scope": "global",
                "interface": name,
                "gateway": default6.get("gateway", ""),
                "macaddress": described["macaddress"],
                "mtu": described["mtu"],
                "type": described["type"],
            }
        if default.get("dev") == name and four:
            wanted = next((a for a in four if a["local"] == default.get("prefsrc")), four[0])
            found["default_ipv4"] = {
                **_address(wanted),
                "interface": name,
                "alias": name,
                "gateway": default.get("gateway", ""),
                "macaddress": described["macaddress"],
                "mtu": described["mtu"],
                "type": described["type"],
            }
    found["locally_reachable_ips"] = reachable
    return found


def _resolver(text: str) -> dict[str, Any]:
    """/etc/resolv.conf: name servers, search list, domain, options."""
    found: dict[str, Any] = {}
    for line in text.splitlines():
        words = line.split()
        if not words or words[0][0] in "#;":
            continue
        if words[0] == "nameserver":
            found.setdefault("nameservers", []).extend(words[1:])
        elif words[0] in ("search", "sortlist"):
            found[words[0]] = words[1:]
        elif words[0] == "domain" and len(words) > 1:
            found["domain"] = words[1]
        elif words[0] == "options":
            pairs = (word.partition(":") for word in words[1:])
            found["options"] = {key: value if colon else True for key, colon, value in pairs}
    return found


def _address(given: Mapping[str, Any]) -> dict[str, str]:
    network = ipaddress.ip_interface(f"{given['local']}/{given['prefixlen']}").network
    return {
        "address": given["local"],
        "prefix": str(given["prefixlen"]),
        "netmask": str(network.netmask),
        "network": str(network.network_address),
        "broadcast": str(given.get("broadcast", "")),
    }
