"""Facts of the kernel, the host's names, Python, the account and the service manager."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def facts(raw: Mapping[str, Any]) -> dict[str, Any]:
    name = str(raw["hostname"])
    fqdn = str(raw.get("fqdn") or name)
    python = [int(part) for part in raw["python_version"][:3]]
    init = str(raw.get("init", ""))
    return {
        "system": raw["uname"][0],
        "kernel": raw["uname"][2],
        "architecture": raw["uname"][4],
        "machine": raw["uname"][4],
        "hostname": name.partition(".")[0],
        "nodename": name,
        "fqdn": fqdn,
        "domain": fqdn.partition(".")[2],
        "python_version": ".".join(map(str, python)),
        "python": {
            "executable": raw["python_executable"],
            "version": dict(zip(("major", "minor", "micro"), python, strict=True)),
        },
        "service_mgr": {"systemd": "systemd", "runit": "runit", "openrc-init": "openrc"}.get(init, init),
        "user_id": raw["user"],
        "user_uid": raw["uid"],
        "user_dir": raw["home"],
        "machine_id": raw.get("machine_id", ""),
        "uptime_seconds": int(raw.get("uptime_s", 0)),
    }
