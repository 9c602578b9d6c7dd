"""What a job names that this cluster has not: hosts, partitions, zones, features, types of GPUs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from rm.core.model.asked.gpu_type import is_of_type
from rm.core.model.host import Host
from rm.core.model.job import JobSpec
from rm.errors import Refusal
from rm.features import parse
from rm.units import fold_hosts

SHOWN = 8  # names in a sentence
SHOWN_CHARACTERS = 200  # of one


class Against(NamedTuple):
    """What stands against a job; `said` is a sentence without its full stop."""

    refusal: Refusal
    said: str


def unknown_names(spec: JobSpec, hosts: Mapping[str, Host], ruled: Collection[str] = ()) -> list[Against]:
    """Each kind of unknown names; none while there are no hosts. `ruled`: the partitions that have rules,
    which may have no hosts.

    Which GPUs there are is known once every host was found out.
    """
    if not hosts:
        return []
    return list(_unknown(spec, hosts, ruled))


def _unknown(spec: JobSpec, hosts: Mapping[str, Host], ruled: Collection[str]) -> Iterator[Against]:
    named = dict.fromkeys((*spec.hosts_only, *spec.hosts_excluded))
    if strange := [name for name in named if name not in hosts]:
        yield _unknown_of(Refusal.UNKNOWN_HOST, "host", strange, [fold_hosts(hosts)])
    partitions = dict.fromkeys(name for host in hosts.values() for name in host.partitions)
    missing = [name for name in spec.partitions if name not in partitions]
    if strange := [name for name in missing if name not in ruled]:
        yield _unknown_of(Refusal.UNKNOWN_PARTITION, "partition", strange, partitions)
    empty = [name for name in missing if name in ruled]
    if empty and len(missing) == len(spec.partitions):  # else it may run in another one that it names
        others = f"; partitions with hosts: {_listed(partitions, ', ')}" if partitions else ""
        yield Against(Refusal.NEVER_FITS, f"there is no host in partition {_listed(empty, ' or ')}{others}")
    zones = dict.fromkeys(host.zone for host in hosts.values())
    if spec.zone and spec.zone not in zones:
        yield _unknown_of(Refusal.UNKNOWN_ZONE, "zone", [spec.zone], zones)
    if asked := [one for one in map(parse, (spec.constraint, spec.prefer)) if one is not None]:
        there = dict.fromkeys(name for host in hosts.values() for name in sorted(host.all_features))
        strange = [name for one in asked for name in one.names() if name not in there]
        if strange and all(host.cpus for host in hosts.values()):
            yield _unknown_of(Refusal.UNKNOWN_FEATURE, "feature", dict.fromkeys(strange), there)
    models = dict.fromkeys(gpu.model for host in hosts.values() for gpu in host.gpus)
    found_out = all(host.cpus for host in hosts.values())
    if spec.gpu_type and found_out and not any(is_of_type(model, spec.gpu_type) for model in models):
        known = [model or "no known type" for model in models]
        yield _unknown_of(Refusal.UNKNOWN_GPU_TYPE, "GPU of type", [spec.gpu_type], known)


def _unknown_of(refusal: Refusal, what: str, strange: Collection[str], known: Collection[str]) -> Against:
    """`there is no partition gpus; there are: gpu, cpu`"""
    missing = f"there is no {what} {_listed(strange, ' or ')}"
    there = f"there are: {_listed(known, ', ')}" if known else "there are none"
    return Against(refusal, f"{missing}; {there}")


def _listed(names: Collection[str], between: str) -> str:
    shown = [name[:SHOWN_CHARACTERS] for name in names][:SHOWN]
    return between.join([*shown, *([f"{len(names) - SHOWN} more"] if len(names) > SHOWN else [])])
