"""pSConfig mesh files, in and out: perfSONAR's tasks as our meshes, and our meshes as tasks.

{addresses: {n: {address}}, groups: {g: {type, addresses: [{name}]}}, tests: {t: {type, spec}},
 schedules: {s: {repeat, slip, sliprand}}, tasks: {k: {group, test, schedule}}}
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rm.adapters.sources.iso import iso_of, seconds_of
from rm.core.host import Host
from rm.core.mesh import parse_mesh
from rm.errors import ConfigError, UsageError
from rm.units import format_duration, parse_duration_us

TESTS = {
    "latency": "latency", "latencybg": "latency", "rtt": "latency", "throughput": "throughput", "mtu": "mtu",
}  # fmt: skip
TYPES = {"latency": "latency", "throughput": "throughput", "mtu": "mtu"}
NO_SCHEDULE = "every 4h"
ENDS = {"source": "{% address[0] %}", "dest": "{% address[1] %}"}


def tables_of(document: Any, hosts: Iterable[Host]) -> tuple[list[dict[str, Any]], list[str]]:
    """Tables `[[monitor.mesh]]`, one a task, and in sentences what could not be taken over.

    Raises:
        UsageError: this is no pSConfig document.
    """
    if not isinstance(document, dict) or not isinstance(document.get("tasks"), dict):
        raise UsageError("This is no pSConfig file: it has no 'tasks'.")
    ours = {name.lower(): host.name for host in hosts for name in (host.address, host.name)}
    tables: list[dict[str, Any]] = []
    said: list[str] = []
    taken: set[str] = set()
    for name, task in document["tasks"].items():
        try:
            table = _table(str(name), task, document, ours, said)
            if table["name"] in taken:
                raise ConfigError(f"There are two meshes '{table['name']}'.")
            parse_mesh(table)
        except (ConfigError, UsageError, ValueError, TypeError, KeyError, AttributeError) as error:
            what = f"there is no {error}" if isinstance(error, KeyError) else str(error)
            said.append(f"Task '{name}' is left out: {what}")
            continue
        taken.add(table["name"])
        tables.append(table)
    return tables, said


def _table(
    name: str, task: Any, document: Mapping[str, Any], ours: Mapping[str, str], said: list[str]
) -> dict[str, Any]:
    group, test = (document[f"{key}s"][task[key]] for key in ("group", "test"))
    kind = test.get("type")
    if kind not in TESTS:
        raise ConfigError(f"rm has no test of the type '{kind}'.")
    if task.get("disabled"):
        raise ConfigError("it is disabled.")
    table: dict[str, Any] = {"name": re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-.")[:63]}
    table |= _schedule(task, document)
    table |= {"hosts": _hosts(name, group, document, ours, said), "between": "all", "rounds": 0}
    return table | {"tests": [TESTS[kind]]} | _spec(kind, test.get("spec") or {})


def _schedule(task: Mapping[str, Any], document: Mapping[str, Any]) -> dict[str, Any]:
    if "schedule" not in task:
        return {"schedule": NO_SCHEDULE}
    found = document["schedules"][task["schedule"]]
    if "repeat-cron" in found:
        table: dict[str, Any] = {"schedule": str(found["repeat-cron"])}
    else:
        repeat_us = round(seconds_of(found["repeat"]) * 1e6)
        table = {"schedule": f"every {format_duration(repeat_us)}"}
    if "slip" in found:  # with sliprand a run begins anywhere in the slip
        table["jitter_s" if found.get("sliprand") else "slip_s"] = seconds_of(found["slip"])
    return table


def _hosts(
    task: str, group: Mapping[str, Any], document: Mapping[str, Any], ours: Mapping[str, str], said: list[str]
) -> list[str]:
    kind = group.get("type")
    if kind == "mesh":
        members = list(group["addresses"])
    elif kind == "disjoint":
        members = [*group["a-addresses"], *group["b-addresses"]]
        said.append(f"Task '{task}' measures one side with the other; its mesh measures all with all.")
    else:
        raise ConfigError(f"a group of the type '{kind}' names no pairs of hosts.")
    if group.get("excludes"):
        said.append(f"Task '{task}' leaves out some pairs; its mesh does not.")
    hosts: list[str] = []
    for member in members:
        label = str(member.get("name"))
        address = str(document["addresses"].get(label, {}).get("address", label))
        host = ours.get(address.lower()) or ours.get(label.lower())
        if host is None:
            said.append(f"Task '{task}': {address} is none of our hosts.")
        elif host not in hosts:
            hosts.append(host)
    if len(hosts) < 2:
        raise ConfigError("fewer than two of its addresses are our hosts.")
    return hosts


def _spec(kind: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    table: dict[str, Any] = {}
    if kind in ("latency", "latencybg"):
        if "packet-count" in spec:
            table["packets"] = int(spec["packet-count"])
        if "packet-interval" in spec:
            table["spacing_s"] = float(spec["packet-interval"])
    if kind == "throughput":
        if "duration" in spec:
            table["duration_s"] = seconds_of(spec["duration"])
        if "bandwidth" in spec:
            table["rate_mbps"] = float(spec["bandwidth"]) / 1e6
    return table


def toml_of(tables: Sequence[Mapping[str, Any]]) -> str:
    """For rm.toml; of text, numbers and lists JSON's spelling is TOML's."""
    blocks = []
    for table in tables:
        lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in table.items()]
        blocks.append("\n".join(["[[monitor.mesh]]", *lines]))
    return "\n\n".join(blocks)


def document_of(meshes: Iterable[Mapping[str, Any]], addresses: Mapping[str, str]) -> dict[str, Any]:
    """A pSConfig document of meshes as `GET /v1/monitor` tells them; `addresses` by host.

    Each test of a mesh is a task. All pairs of the hosts are in it: pSConfig knows neither zones nor turns.
    """
    document: dict[str, Any] = {
        "addresses": {}, "groups": {}, "tests": {}, "schedules": {}, "tasks": {},
    }  # fmt: skip
    for mesh in meshes:
        name, hosts = mesh["name"], [h for h in mesh["hosts"] if h in addresses]
        document["addresses"] |= {h: {"address": addresses[h]} for h in hosts}
        document["groups"][name] = {"type": "mesh", "addresses": [{"name": h} for h in hosts]}
        document["schedules"][name] = _when(mesh)
        for test in mesh["tests"]:
            key = name if len(mesh["tests"]) == 1 else f"{name}-{test}"
            document["tests"][key] = {"type": TYPES[test], "spec": ENDS | _what(test, mesh)}
            document["tasks"][key] = {"group": name, "test": key, "schedule": name}
    return document


def _when(mesh: Mapping[str, Any]) -> dict[str, Any]:
    word, _, interval = mesh["schedule"].partition(" ")
    found: dict[str, Any] = {"repeat-cron": mesh["schedule"]}
    if word == "every":
        found = {"repeat": iso_of(parse_duration_us(interval))}
    if mesh["jitter_us"]:
        return found | {"slip": iso_of(mesh["jitter_us"]), "sliprand": True}
    return found | ({"slip": iso_of(mesh["slip_us"])} if mesh["slip_us"] else {})


def _what(test: str, mesh: Mapping[str, Any]) -> dict[str, Any]:
    if test == "latency":
        return {"packet-count": mesh["packets"], "packet-interval": mesh["spacing_us"] / 1e6}
    if test == "throughput":
        rate = {"bandwidth": mesh["rate_bps"]} if mesh["rate_bps"] else {}
        return {"duration": iso_of(mesh["duration_us"]), **rate}
    return {}
