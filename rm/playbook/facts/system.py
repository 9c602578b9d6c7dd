"""Facts of the kernel, the host's names, Python, the account and the service manager."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def facts(raw: Mapping[str, Any]) -> dict[str, Any]:
    name = str(raw["hostname"])
    fqdn = str(raw.get("fqdn") or name)
    version = list(raw["python_version"])
    python = [int(part) for part in version[:3]]
    bits = str(raw.get("userspace_bits", "64"))
    machine = str(raw["uname"][4])
    init = str(raw.get("init", ""))
    load = [float(part) for part in raw.get("loadavg", ())] or [0.0, 0.0, 0.0]
    found: dict[str, Any] = {
        "system": raw["uname"][0],
        "kernel": raw["uname"][2],
        "kernel_version": raw["uname"][3],
        "architecture": machine,
        "machine": machine,
        "userspace_bits": bits,
        "userspace_architecture": "i386" if machine == "x86_64" and bits == "32" else machine,
        "hostname": name.partition(".")[0],
        "nodename": name,
        "fqdn": fqdn,
        "domain": fqdn.partition(".")[2],
        "python_version": ".".join(map(str, python)),
        "python": {
            "executable": raw["python_executable"],
            "type": raw.get("python_type", "cpython"),
            "version": {
                **dict(zip(("major", "minor", "micro"), python, strict=True)),
                "releaselevel": str(version[3]) if len(version) > 3 else "final",
                "serial": version[4] if len(version) > 4 else 0,
            },
            "version_info": version,
        },
        "service_mgr": {"runit-init": "runit", "openrc-init": "openrc", "init": "sysvinit"}.get(init, init),
        "user_id": raw["user"],
        "user_uid": raw["uid"],
        "user_gid": raw.get("gid", raw["uid"]),
        "user_dir": raw["home"],
        "user_shell": raw.get("shell", ""),
        "user_gecos": raw.get("gecos", ""),
        "real_user_id": raw["uid"],
        "effective_user_id": raw.get("euid", raw["uid"]),
        "real_group_id": raw.get("gid", raw["uid"]),
        "effective_group_id": raw.get("egid", raw.get("gid", raw["uid"])),
        "machine_id": raw.get("machine_id", ""),
        "uptime_seconds": int(raw.get("uptime_s", 0)),
        "loadavg": dict(zip(("1m", "5m", "15m"), load, strict=True)),
        "env": dict(raw.get("environment", {})),
        "cmdline": _words(str(raw.get("cmdline", ""))),
        "proc_cmdline": _words(str(raw.get("cmdline", ""))),
        "fips": bool(raw.get("fips")),
        "apparmor": {"status": "enabled" if raw.get("apparmor") else "disabled"},
        "selinux": _selinux(raw.get("selinux")),
        "selinux_python_present": True,
    }
    for kind, (name_of_type, blob) in dict(raw.get("host_keys", {})).items():
        found[f"ssh_host_key_{kind}_public"] = blob
        found[f"ssh_host_key_{kind}_public_keytype"] = name_of_type
    return found


def _words(line: str) -> dict[str, Any]:
    """The kernel's command line as a mapping; a word without a value is true."""
    found: dict[str, Any] = {}
    for word in line.split():
        name, equals, value = word.partition("=")
        found[name] = value if equals else True
    return found


def _selinux(raw: Mapping[str, str] | None) -> dict[str, Any]:
    if raw is None:
        return {"status": "disabled"}
    modes = {"1": "enforcing", "0": "permissive"}
    return {
        "status": "enabled",
        "policyvers": int(raw["policyvers"]) if raw["policyvers"].isdigit() else "unknown",
        "config_mode": raw["config_mode"],
        "mode": modes.get(raw["enforce"], "unknown"),
        "type": raw["type"],
    }
