"""An inventory's hosts as the core's, and a host's variables as text that the core can keep."""

from __future__ import annotations

import json
import re
from typing import Any

from rm.core.model.host import Gpu, Host
from rm.errors import ConfigError, UsageError
from rm.hints import did_you_mean
from rm.playbook.inventory.inventory import Inventory, InventoryHost
from rm.playbook.model.connection import NAMES, last_name
from rm.units import parse_memory_bytes

NIC_BPS_MAX = 10**14
_HOST_FIELDS = (
    *NAMES["ansible_host"], *NAMES["ansible_port"], *NAMES["ansible_user"],
    "rm_zone", "rm_cpus", "rm_mem", "rm_gpus", "rm_nic_mbps", "rm_interface", "rm_partitions", "rm_features",
)  # fmt: skip


def to_hosts(inventory: Inventory) -> list[Host]:
    """The core's hosts, in inventory order; raises ConfigError with file and line.

    Everything but the fields' own variables (`ansible_ssh_private_key_file` included) goes to
    `Host.variables`, encoded by `encode`; the variable `group_names` carries the groups. Without rm_cpus,
    rm_mem, rm_gpus, rm_nic_mbps or rm_interface the host's agent finds them.
    """
    return [_to_host(inventory, entry) for entry in inventory.hosts.values()]


def _to_host(inventory: Inventory, entry: InventoryHost) -> Host:
    variables = entry.variables
    port, address, login = (last_name(variables, f"ansible_{it}") for it in ("port", "host", "user"))

    def fail(name: str, hint: str) -> ConfigError:
        line = entry.lines.get(name, entry.line)
        what = f"{inventory.filename}:{line}: {name} of host '{entry.name}' is {variables[name]!r}."
        return ConfigError(what, hint)

    def integer(name: str, default: int, low: int, high: int) -> int:
        try:
            value = int(str(variables.get(name, default)))
        except ValueError:
            raise fail(name, f"It must be a whole number of at least {low}.") from None
        if not low <= value <= high:
            raise fail(name, f"It must lie between {low} and {high}.")
        return value

    def megabits(name: str) -> int:
        if name not in variables:
            return 0
        from fractions import Fraction  # slow to load, and few hosts say it

        try:
            bps = Fraction(str(variables[name])) * 1_000_000
        except (ValueError, ZeroDivisionError):
            raise fail(name, "It must be a number of Mbit/s.") from None
        if not 0 <= bps <= NIC_BPS_MAX or bps.denominator != 1:
            raise fail(name, "It must be at most 100000000 Mbit/s, and whole bits per second.")
        return int(bps)

    def memory(name: str, value: Any) -> int:
        try:
            return parse_memory_bytes(str(value))
        except UsageError as problem:
            raise fail(name, problem.hint) from None

    gpus: list[Gpu] = []
    declared = variables.get("rm_gpus", 0)
    if isinstance(declared, dict):
        count = declared.get("count", 1)
        if not isinstance(count, int) or not 0 <= count <= 1024:
            raise fail("rm_gpus", "The count must be a whole number up to 1024.")
        declared = [{k: v for k, v in declared.items() if k != "count"}] * count
    if isinstance(declared, (int, str)) and not isinstance(declared, bool):
        declared = [{}] * integer("rm_gpus", 0, 0, 1024)
    if not isinstance(declared, list):
        raise fail("rm_gpus", "Write a number, {count, model, mem}, or a list of {uuid, model, mem}.")
    for index, gpu in enumerate(declared):
        unknown = set(gpu) - {"uuid", "model", "mem"} if isinstance(gpu, dict) else {str(gpu)}
        if unknown:
            raise fail("rm_gpus", did_you_mean(min(unknown), ("uuid", "model", "mem", "count")))
        size = memory("rm_gpus", gpu["mem"]) if "mem" in gpu else 0
        gpus.append(Gpu(index, str(gpu.get("uuid", "")), str(gpu.get("model", "")), size))

    def names(name: str) -> tuple[str, ...]:
        given = variables.get(name, ())
        if isinstance(given, str):
            given = [word for word in re.split(r"[,\s]+", given) if word]
        if not isinstance(given, (list, tuple)):
            raise fail(name, "Write a list of names.")
        return tuple(map(str, given))

    rest = {k: v for k, v in variables.items() if k not in (*_HOST_FIELDS, "group_names")}
    return Host(
        name=entry.name,
        zone=str(variables.get("rm_zone", "default")),
        address=str(variables.get(address, entry.name)),
        port=integer(port, 22, 1, 65_535),
        login=str(variables.get(login, "root")),
        cpus=integer("rm_cpus", 0, 0, 1_000_000),
        mem_bytes=memory("rm_mem", variables["rm_mem"]) if "rm_mem" in variables else 0,
        gpus=tuple(gpus),
        nic_bps=megabits("rm_nic_mbps"),
        interface=str(variables.get("rm_interface", "")),
        partitions=names("rm_partitions"),
        features=names("rm_features"),
        variables=(
            *((str(k), encode(v)) for k, v in sorted(rest.items())),
            ("group_names", encode([name for name in entry.groups if name != "ungrouped"] or ["ungrouped"])),
        ),
    )


def encode(value: Any) -> str:
    """A variable as a string from which `decode` gets the same value back."""
    if isinstance(value, str):
        try:
            json.loads(value)
        except ValueError:
            return str(value)  # sealed by ansible-vault or not
    return json.dumps(value, default=str)


def decode(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
