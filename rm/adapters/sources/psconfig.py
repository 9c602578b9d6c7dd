"""pSConfig mesh files, in and out: perfSONAR's tasks as our meshes, and our meshes as tasks.

{addresses: {n: {address}}, groups: {g: {type, addresses: [{name}]}}, tests: {t: {type, spec}},
 schedules: {s: {repeat, slip, sliprand}}, tasks: {k: {group, test, schedule}}}

A group of the type `mesh` is all its hosts with each other, one of `disjoint` its a-addresses with its
b-addresses, and one of `list` each of its hosts with the one that the test itself names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from rm.adapters.sources.iso import iso_of, seconds_of
from rm.api.monitoring import Mesh
from rm.core.model.host import Host
from rm.core.monitoring.continuous import LATENCYBG
from rm.core.monitoring.mesh import parse_mesh
from rm.core.monitoring.metrics import SERVICES
from rm.errors import ConfigError, UsageError
from rm.units import format_duration, parse_duration_us

TESTS = {
    "latency": "latency", LATENCYBG: LATENCYBG, "rtt": "latency", "throughput": "throughput", "mtu": "mtu",
    "trace": "trace", "clock": "clock", "dns": "dns", "http": "http",
}  # fmt: skip
NO_SCHEDULE = "every 4h"
ENDPOINTS = {"source", "dest", "schema", "source-node", "dest-node", "flip", "ip-version"}
HOST_KEYS = {"host", "host-node", "schema"}
LATENCY_KEYS = ENDPOINTS | {"packet-count", "packet-interval"}
KNOWN_OF: Mapping[str, set[str]] = {  # keys of a test's spec that are read, or change nothing
    "latency": LATENCY_KEYS,
    LATENCYBG: LATENCY_KEYS | {"duration"},
    "rtt": ENDPOINTS,
    "throughput": ENDPOINTS | {"duration", "bandwidth", "udp"},
    "mtu": ENDPOINTS,
    "trace": ENDPOINTS | {"probe-type"},
    "clock": ENDPOINTS,
    "dns": HOST_KEYS | {"query", "record", "nameserver", "timeout"},
    "http": HOST_KEYS | {"url", "parse", "timeout"},
}
NOT_OURS = (  # keys of a task, and why nothing becomes of them
    ("contexts", "an rm agent has one network to measure from"),
    ("tools", "rm's agents have tests of their own"),
)
BOUNDS = ("start", "until", "max-runs")
# keys of a test of a service -> ours
SERVICE_KEYS = {"query": "query", "record": "record", "nameserver": "nameserver", "url": "url",
                "parse": "contains"}  # fmt: skip
ENDS = {"source": "{% address[0] %}", "dest": "{% address[1] %}"}


def tables_of(
    document: Any, hosts: Iterable[Host], mesh_of: dict[str, str] | None = None
) -> tuple[list[dict[str, Any]], list[str]]:
    """Tables `[[monitor.mesh]]`, one a task, and in sentences what could not be taken over. `mesh_of` gets
    the mesh of each task that became one.

    Raises:
        UsageError: this is not a pSConfig document.
    """
    if not isinstance(document, dict) or not isinstance(document.get("tasks"), dict):
        raise UsageError("This is not a pSConfig file: it has no 'tasks'.")
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
        except (
            ConfigError,
            UsageError,
            ValueError,
            TypeError,
            KeyError,
            AttributeError,
            OverflowError,
        ) as error:
            what = f"there is no {error}" if isinstance(error, KeyError) else str(error)
            said.append(f"Task '{name}' is left out: {what}")
            continue
        taken.add(table["name"])
        tables.append(table)
        if mesh_of is not None:
            mesh_of[str(name)] = table["name"]
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
    table: dict[str, Any] = {"name": _name(name)}
    if kind == LATENCYBG:
        if "schedule" in task:
            said.append(f"Task '{name}' has a schedule; rm measures without a pause ({LATENCYBG}).")
    else:
        table |= _schedule(name, task, document, said)
    for key, why in NOT_OURS:
        if task.get(key):
            said.append(f"Task '{name}' names {key}, which are not taken over: {why}.")
    spec = test.get("spec") or {}
    said.extend(_differences(name, kind, spec))
    if kind in SERVICES:
        table |= {"hosts": _alone(name, group, spec, document, ours, said)}
    else:
        table |= _pairs(name, group, spec, document, ours, said)
        table |= {"between": "all", "peers": 0}
        if kind != LATENCYBG:
            table |= {"rounds": 0}
    return table | {"tests": [TESTS[kind]]} | _spec(kind, spec)


def _schedule(
    name: str, task: Mapping[str, Any], document: Mapping[str, Any], said: list[str]
) -> dict[str, Any]:
    if "schedule" not in task:
        said.append(f"Task '{name}' has no schedule: rm runs it {NO_SCHEDULE}.")
        return {"schedule": NO_SCHEDULE}
    found = document["schedules"][task["schedule"]]
    if "repeat-cron" in found:
        table: dict[str, Any] = {"schedule": str(found["repeat-cron"])}
    else:
        repeat_us = round(seconds_of(found["repeat"]) * 1e6)
        table = {"schedule": f"every {format_duration(repeat_us)}"}
    if bounds := [key for key in BOUNDS if found.get(key) is not None]:
        said.append(f"Task '{name}' runs without the {' and '.join(bounds)} of its schedule.")
    if "slip" in found:  # with sliprand a run begins anywhere in the slip
        table["jitter_s" if found.get("sliprand") else "slip_s"] = seconds_of(found["slip"])
    return table


def _differences(name: str, kind: str, spec: Mapping[str, Any]) -> Iterator[str]:
    """In sentences, what rm does of the test otherwise than perfSONAR."""
    if kind == "rtt":
        yield f"Task '{name}' sends ICMP echoes (rtt); rm measures one-way delays and the round trip by UDP."
    if kind == "throughput" and spec.get("udp"):
        yield f"Task '{name}' tests throughput by UDP; rm does by TCP, and knows no loss at a rate."
    if kind == "throughput" and "duration" in spec:
        yield (
            f"Task '{name}': where both hosts have iperf3, rm tests for a second, not for {spec['duration']}."
        )
    if kind == "trace" and spec.get("probe-type", "udp") != "udp":
        yield f"Task '{name}' traces by {spec['probe-type']}; rm does by UDP."
    if kind == "clock":
        yield f"Task '{name}' asks for clocks over HTTP; rm compares them by packets that carry their times."
    if ignored := sorted(set(spec) - KNOWN_OF[kind]):
        yield f"Task '{name}' has {', '.join(ignored)} in its test, which rm does not use."


def _pairs(
    task: str,
    group: Mapping[str, Any],
    spec: Mapping[str, Any],
    document: Mapping[str, Any],
    ours: Mapping[str, str],
    said: list[str],
) -> dict[str, Any]:
    """Which hosts are measured with which."""
    kind = group.get("type")

    def hosts(members: Iterable[Any]) -> list[str]:
        found = (_host(task, member, document, ours, said) for member in members)
        return list(dict.fromkeys(host for host in found if host))

    table: dict[str, Any]
    if kind == "mesh":
        table = {"hosts": hosts(group["addresses"])}
        if len(table["hosts"]) < 2:
            raise ConfigError("fewer than two of its addresses are our hosts.")
    elif kind == "disjoint":
        table = {"hosts": hosts(group["a-addresses"]), "towards": hosts(group["b-addresses"])}
        if group.get("unidirectional"):
            said.append(f"Task '{task}' measures from a to b only; rm measures every pair both ways.")
    elif kind == "list":
        ends = [spec.get(key) for key in ("source", "dest")]
        named = [{"name": end} for end in ends if isinstance(end, str) and "{%" not in end]
        if not named:
            raise ConfigError("a group of the type 'list' needs a test that names the other end.")
        table = {"hosts": hosts(group["addresses"]), "towards": hosts(named)}
    else:
        raise ConfigError(f"rm has no groups of the type '{kind}'.")
    if "towards" in table and not (table["hosts"] and table["towards"]):
        raise ConfigError("on one side of it there is none of our hosts.")
    if without := _without(task, group, hosts, said):
        table["without"] = without
    return table


def _alone(
    task: str,
    group: Mapping[str, Any],
    spec: Mapping[str, Any],
    document: Mapping[str, Any],
    ours: Mapping[str, str],
    said: list[str],
) -> list[str]:
    """The hosts that test by themselves: the first address of each task of the group, or a named one."""
    members = group.get("addresses" if group.get("type") != "disjoint" else "a-addresses") or ()
    host = spec.get("host")
    if isinstance(host, str) and "{%" not in host:
        members = [{"name": host}]
    elif host is not None and host != ENDS["source"]:
        raise ConfigError(f"its host is {host!r:.60}, which rm does not fill in.")
    for key in ("query", "nameserver", "url", "parse"):
        if "{%" in str(spec.get(key)):
            raise ConfigError(f"its {key} is a template, which rm does not fill in.")
    found = (_host(task, member, document, ours, said) for member in members)
    hosts = list(dict.fromkeys(host for host in found if host))
    if not hosts:
        raise ConfigError("none of its addresses is our host.")
    return hosts


def _without(
    task: str, group: Mapping[str, Any], hosts: Callable[[Iterable[Any]], list[str]], said: list[str]
) -> list[list[str]]:
    """The pairs that the group excludes in both directions; rm measures none in one only."""
    ways: set[tuple[str, str]] = set()
    for exclude in group.get("excludes") or ():
        local = hosts([exclude["local-address"]])
        ways |= {(a, b) for a in local for b in hosts(exclude["target-addresses"]) if a != b}
    if halves := sorted((a, b) for a, b in ways if (b, a) not in ways):
        listed = ", ".join(f"{a} to {b}" for a, b in halves[:3])
        said.append(f"Task '{task}' leaves out one direction ({listed}); rm measures every pair both ways.")
    return sorted([a, b] for a, b in ways if a < b and (b, a) in ways)


def _host(
    task: str,
    member: Mapping[str, Any],
    document: Mapping[str, Any],
    ours: Mapping[str, str],
    said: list[str],
) -> str:
    """Our host that this address is, or ""."""
    if "class" in member:
        said.append(
            f"Task '{task}': {dict(member)!r:.60} names a class of hosts, which is left out: name its hosts "
            "one by one, or give the mesh 'zones' or patterns in 'hosts'."
        )
        return ""
    if "name" not in member:
        said.append(f"Task '{task}': {dict(member)!r:.60} names no address, and is left out.")
        return ""
    label = str(member["name"])
    address = str(document["addresses"].get(label, {}).get("address", label))
    host = ours.get(address.lower()) or ours.get(label.lower()) or ""
    if not host:
        said.append(f"Task '{task}': {address} is not one of our hosts.")
    return host


def _spec(kind: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    table: dict[str, Any] = {}
    if kind in ("latency", LATENCYBG):
        if "packet-count" in spec:
            table["packets"] = int(spec["packet-count"])
        if "packet-interval" in spec:
            table["spacing_s"] = float(spec["packet-interval"])
    if kind == "throughput":
        if "duration" in spec:
            table["duration_s"] = seconds_of(spec["duration"])
        if "bandwidth" in spec:
            table["rate_mbps"] = float(spec["bandwidth"]) / 1e6
    if kind in SERVICES:
        table |= {ours: spec[theirs] for theirs, ours in SERVICE_KEYS.items() if theirs in spec}
        if "timeout" in spec:
            table["timeout_s"] = seconds_of(spec["timeout"])
    return table


def _name(task: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", task).strip("-.")[:63]


def toml_of(tables: Sequence[Mapping[str, Any]], kind: str = "mesh") -> str:
    """For rm.toml."""
    blocks = []
    for table in tables:
        lines = [f"{key} = {_toml(value)}" for key, value in table.items()]
        blocks.append("\n".join([f"[[monitor.{kind}]]", *lines]))
    return "\n\n".join(blocks)


def _toml(value: Any) -> str:
    """Of text and numbers JSON's spelling is TOML's."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_toml(one)}" for key, one in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def document_of(meshes: Iterable[Mesh], addresses: Mapping[str, str]) -> dict[str, Any]:
    """A pSConfig document of meshes as `GET /v1/monitor` returns them; `addresses` by host.

    Each test of a mesh is a task. All pairs of the hosts are in it, but for those of a mesh with `sides`:
    pSConfig knows neither zones nor turns.
    """
    document: dict[str, Any] = {
        "addresses": {}, "groups": {}, "tests": {}, "schedules": {}, "tasks": {},
    }  # fmt: skip
    for mesh in meshes:
        name, hosts = mesh.name, [h for h in mesh.hosts if h in addresses]
        document["addresses"] |= {h: {"address": addresses[h]} for h in hosts}
        document["groups"][name] = _group(mesh, hosts)
        when = {} if LATENCYBG in mesh.tests else {"schedule": name}
        if when:
            document["schedules"][name] = _when(mesh)
        for test in mesh.tests:
            key = name if len(mesh.tests) == 1 else f"{name}-{test}"
            ends = {"host": ENDS["source"]} if test in SERVICES else ENDS
            document["tests"][key] = {"type": test, "spec": ends | _what(test, mesh)}
            document["tasks"][key] = {"group": name, "test": key, **when}
    return document


def _group(mesh: Mesh, hosts: Sequence[str]) -> dict[str, Any]:
    def named(names: Iterable[str]) -> list[dict[str, str]]:
        return [{"name": name} for name in names if name in hosts]

    if set(mesh.tests) <= set(SERVICES):
        group: dict[str, Any] = {"type": "list", "addresses": named(hosts)}
    elif mesh.sides is None:
        group = {"type": "mesh", "addresses": named(hosts)}
    else:
        one, other = mesh.sides
        group = {"type": "disjoint", "a-addresses": named(one), "b-addresses": named(other)}
    ways = [(a, b) for pair in mesh.without if set(pair) <= set(hosts) for a, b in (pair, pair[::-1])]
    if ways:
        group["excludes"] = [
            {"local-address": {"name": a}, "target-addresses": [{"name": b}]} for a, b in ways
        ]
    return group


def _when(mesh: Mesh) -> dict[str, Any]:
    word, _, interval = mesh.schedule.partition(" ")
    found: dict[str, Any] = {"repeat-cron": mesh.schedule}
    if word == "every":
        found = {"repeat": iso_of(parse_duration_us(interval))}
    if mesh.jitter_us:
        return found | {"slip": iso_of(mesh.jitter_us), "sliprand": True}
    return found | ({"slip": iso_of(mesh.slip_us)} if mesh.slip_us else {})


def _what(test: str, mesh: Mesh) -> dict[str, Any]:
    if test in ("latency", LATENCYBG):
        return {"packet-count": mesh.packets, "packet-interval": mesh.spacing_us / 1e6}
    if test == "throughput":
        rate = {"bandwidth": mesh.rate_bps} if mesh.rate_bps else {}
        return {"duration": iso_of(mesh.duration_us), **rate}
    if test in SERVICES:
        keys = {ours: theirs for theirs, ours in SERVICE_KEYS.items() if theirs in KNOWN_OF[test]}
        asked = {keys[ours]: value for ours, value in mesh.service.items() if ours in keys}
        return asked | {"timeout": iso_of(int(mesh.service["timeout_us"]))}
    return {}
