"""What a paper's demo plays: machines, jobs, and the ways to run them that are compared. Data only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rm.demo.scenario import QUEUE_PACKETS, Training
from rm.lab import LabSpec


@dataclass(frozen=True, slots=True)
class Way:
    """Policies, as rm.toml chooses them; `options` by kind. `dscp`: code points name spines to leaves."""

    name: str
    placement: str
    comm: str
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    dscp: tuple[int, ...] = ()

    def tables(self, spec: LabSpec, shapes: bool) -> str:
        """The part of rm.toml that makes it."""
        lines = ["[policies]", f'placement = "{self.placement}"', f'comm = "{self.comm}"']
        for kind, name in (("placement", self.placement), ("comm", self.comm)):
            if given := self.options.get(kind):
                lines.append(f"[policies.options.{kind}.{name}]")
                lines += [f"{key} = {json.dumps(value)}" for key, value in given.items()]
        lines += ["[shaping]", f"enabled = {json.dumps(shapes)}", f"queue_packets = {QUEUE_PACKETS}"]
        if spec.spines:
            rate = round(spec.uplink_rate_mbps)
            lines += [
                "[fabric]",
                f"spines = {spec.spines}",
                f"uplink_mbps = {rate}",
                f"dscp = {list(self.dscp)}",
            ]
        return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class Scene:
    """`jobs` begin `delays_ms` after they were released, on hosts that the way's placement chooses, or that
    `nodelists` name. `alone_on` are two hosts on which a job is measured alone."""

    paper: str
    idea: str
    lab: LabSpec
    jobs: tuple[Training, ...]
    ways: tuple[Way, ...]
    delays_ms: tuple[float, ...]
    alone_on: tuple[str, str]
    nodelists: tuple[tuple[str, ...], ...] = ()
    measures: bool = False  # the network, before the jobs: placement goes by it
    runs: int = 1  # of each way
    iterations: int = 45
    iterations_alone: int = 20
