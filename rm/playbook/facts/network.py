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
    found["default_ipv4"] = {}
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
        if four:
            described["ipv4"] = _address(four[0])
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
        if default.get("dev") == name and four:
            wanted = next((a for a in four if a["local"] == default.get("prefsrc")), four[0])
            found["default_ipv4"] = {
                **_address(wanted),
                "interface": name,
                "gateway": default.get("gateway", ""),
                "macaddress": described["macaddress"],
                "mtu": described["mtu"],
                "type": described["type"],
            }
    return found


def _address(given: Mapping[str, Any]) -> dict[str, str]:
    network = ipaddress.ip_interface(f"{given['local']}/{given['prefixlen']}").network
    return {
        "address": given["local"],
        "prefix": str(given["prefixlen"]),
        "netmask": str(network.netmask),
        "network": str(network.network_address),
        "broadcast": str(given.get("broadcast", network.broadcast_address)),
    }
