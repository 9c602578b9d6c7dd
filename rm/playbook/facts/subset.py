"""Which facts `setup` brings: `gather_subset` names topics of facts, `filter` patterns of their names."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from typing import Any

from rm.playbook.model.problems import BadArgument

# a topic, by Ansible's name, to the facts that it brings; a name that ends in * is a beginning
_BRINGS: Mapping[str, tuple[str, ...]] = {
    "apparmor": ("apparmor",),
    "cmdline": ("cmdline", "proc_cmdline"),
    "date_time": ("date_time",),
    "distribution": ("distribution*", "os_family"),
    "dns": ("dns",),
    "env": ("env",),
    "fips": ("fips",),
    "local": ("local",),
    "lsb": ("lsb",),
    "pkg_mgr": ("pkg_mgr",),
    "platform": ("system", "kernel*", "architecture", "machine", "userspace_*", "hostname", "nodename",
                 "fqdn", "domain", "python_version", "machine_id"),
    "python": ("python",),
    "selinux": ("selinux*",),
    "service_mgr": ("service_mgr",),
    "ssh_pub_keys": ("ssh_host_*",),
    "user": ("user_*", "real_*", "effective_*"),
    "loadavg": ("loadavg",),
    "virtual": ("virtualization_*",),
    "mounts": ("mounts",),
    "hardware": ("uptime_seconds", "mem*", "swap*", "processor*", "bios_*", "board_*", "chassis_*",
                 "product_*", "system_vendor", "form_factor", "devices", "mounts"),
    "network": ("interfaces", "default_ipv4", "default_ipv6", "all_ipv4_addresses", "all_ipv6_addresses",
                "locally_reachable_ips"),
}  # fmt: skip
_MINIMAL = frozenset((
    "apparmor", "cmdline", "date_time", "distribution", "dns", "env", "fips", "local", "lsb", "pkg_mgr",
    "platform", "python", "selinux", "service_mgr", "ssh_pub_keys", "user",
))  # fmt: skip
_ALL = frozenset(_BRINGS)
# topics that rm has no facts of
_EMPTY = frozenset(("caps", "chroot", "fibre_channel", "iscsi", "nvme", "systemd", "system_capabilities",
                    "is_chroot"))  # fmt: skip
_ELSEWHERE = frozenset(("facter", "ohai"))  # other tools
_OTHER_NAMES = {"devices": "hardware", "dmi": "hardware", "ssh_host_pub_keys": "ssh_pub_keys"}
_NEEDS = {"hardware": {"platform"}, "network": {"platform", "distribution"}, "virtual": {"platform"},
          "service_mgr": {"platform", "distribution"}, "pkg_mgr": {"distribution"}}  # fmt: skip


def topics_of(wanted: Sequence[str]) -> frozenset[str]:
    """The topics that a `gather_subset` means. Raises BadArgument."""
    found = set(_MINIMAL)
    added: set[str] = set()
    dropped: set[str] = set()
    for word in wanted or ("all",):
        name, no = word.removeprefix("!"), word.startswith("!")
        if name == "all":
            found, dropped = (found, dropped | (_ALL - _MINIMAL)) if no else (found | _ALL, dropped)
        elif name == "min":
            dropped |= _MINIMAL if no else set()
        elif no:
            dropped.add(name)  # one that is not there is not a mistake
        else:
            if name in _ELSEWHERE:
                raise BadArgument(f"'gather_subset' asks for facts of {name}, which rm does not run")
            added.add(_topic(name))
    found = (found - dropped) | added
    return frozenset(found.union(*(_NEEDS.get(topic, set()) for topic in added)))


def _topic(name: str) -> str:
    if name in _ALL or name in _EMPTY:
        return name
    if name in _OTHER_NAMES:
        return _OTHER_NAMES[name]
    for topic, brings in _BRINGS.items():
        if any(fnmatch.fnmatchcase(name, one) for one in brings):
            return topic
    known = ", ".join(sorted((*_ALL, "all", "min")))
    raise BadArgument(f"'gather_subset' names '{name}'; known are {known}")


def chosen(facts: Mapping[str, Any], subset: Sequence[str], patterns: Sequence[str]) -> dict[str, Any]:
    """The facts, by their names without `ansible_`, that these arguments of `setup` leave."""
    topics = topics_of(subset)
    found = facts if topics >= _ALL else {n: value for n, value in facts.items() if _topic_of(n) in topics}
    found = {**found, "gather_subset": list(subset) or ["all"], "module_setup": True}
    if not patterns:
        return found
    wanted = [one for pattern in patterns for one in (pattern, f"ansible_{pattern}")]
    return {n: value for n, value in found.items()
            if any(fnmatch.fnmatchcase(f"ansible_{n}", one) for one in wanted)}  # fmt: skip


def _topic_of(name: str) -> str:
    for topic, brings in _BRINGS.items():
        if any(fnmatch.fnmatchcase(name, one) for one in brings):
            return topic
    return "network"  # an interface
