"""Archives of a pSConfig file as ours: where its tasks' results go.

{archives: {n: {archiver: "http", data: {_url, op, _headers, verify-ssl, timeout, retry-policy}, runs, ttl}},
 tasks: {k: {archives: [n, …]}}}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from rm.adapters.sources.iso import seconds_of
from rm.core.monitoring.archive import parse_archive
from rm.errors import ConfigError, RmError, UsageError
from rm.units import format_duration

NOT_OURS = ("bind",)  # keys of its data
HEADERS_FILE = "/etc/rm/archive-{}.json"


def archives_of(
    document: Mapping[str, Any], mesh_of: Mapping[str, str], said: list[str]
) -> list[dict[str, Any]]:
    """Tables `[[monitor.archive]]`, one an archive that a task names; what is not the same joins `said`.

    `mesh_of`: tasks that became meshes -> the names of these.
    """
    users: dict[str, list[str]] = {}
    for task, mesh in mesh_of.items():
        named = document["tasks"][task].get("archives") or ()
        if not isinstance(named, list | tuple):
            said.append(f"The archives of task '{task}' are left out: they are no list.")
            continue
        for name in named:
            users.setdefault(str(name), []).append(mesh)
    tables: list[dict[str, Any]] = []
    for name, meshes in users.items():
        try:
            archive = document["archives"][name]
            table = _table(name, archive) | {"meshes": meshes}
            parse_archive(table)
        except (RmError, ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
            what = f"there is no {error}" if isinstance(error, KeyError) else str(error)
            said.append(f"Archive '{name}' is left out: {what}")
            continue
        said.extend(_differences(name, archive["data"]))
        tables.append(table)
    return tables


def _table(name: str, archive: Mapping[str, Any]) -> dict[str, Any]:
    if archive["archiver"] != "http":
        raise ConfigError(f"rm has no archiver '{archive['archiver']}'; it has http.")
    if archive.get("transform"):
        raise UsageError("it transforms results by a jq script, which rm does not run.")
    data = archive["data"]
    table: dict[str, Any] = {"name": name, "url": data["_url"], "op": data.get("op", "post")}
    if data.get("_headers"):
        if not isinstance(data["_headers"], Mapping):
            raise UsageError("its '_headers' are no object, and not shown: they may be secret.")
        table["headers_file"] = HEADERS_FILE.format(name)
    if "timeout" in data:
        table["timeout"] = _duration(data["timeout"])
    if "ttl" in archive:
        table["ttl"] = _duration(archive["ttl"])
    if "runs" in archive:
        table["runs"] = archive["runs"]
    policy = data.get("retry-policy") or []
    table["retry_policy"] = [{"attempts": e["attempts"], "wait": _duration(e["wait"])} for e in policy]
    return table


def _duration(value: Any) -> str:
    return format_duration(round(seconds_of(value) * 1e6))


def _differences(name: str, data: Mapping[str, Any]) -> Iterator[str]:
    if headers := sorted(data.get("_headers") or {}):
        yield (
            f"Archive '{name}': write its headers ({', '.join(headers)}) as a JSON object to "
            f"{HEADERS_FILE.format(name)}, which only rm's user may read."
        )
    if urlsplit(data["_url"]).scheme == "https" and not data.get("verify-ssl"):
        yield (
            f"Archive '{name}': pScheduler does not verify its certificate, rm does; 'ca_file' names a "
            "private authority, and 'verify_ssl = false' does as pScheduler."
        )
    if not data.get("retry-policy"):
        yield f"Archive '{name}' has no retry policy: what is not taken at once is lost, as in pScheduler."
    if ignored := [key for key in NOT_OURS if key in data]:
        yield f"Archive '{name}' has {', '.join(ignored)}, which rm does not use."
