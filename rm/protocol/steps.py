"""Playbook steps on a host."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from rm.protocol.request import Request
from rm.protocol.scalars import Count

STEPS_MAX = 65_536
Bag = dict[str, Any]


class StepResults(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`results` are (`id`, `changed`, `failed`, `msg`, `diff`, …) in order; `cut`: the reply has grown beyond
    1 MiB, and the steps without a result are to be asked for again."""

    results: Annotated[list[Bag], Meta(max_length=STEPS_MAX)]
    planned: Bag
    failed_task: Count | None
    cut: bool = False


class Steps(Request[StepResults], frozen=True, kw_only=True, tag="steps"):
    """Playbook steps: (`id`, `task`, `op`, `args`, `check`, `user`, `environment`, `ignore_errors`, `parts`,
    `at_home`, `timeout`, `async`) each. `planned` is what check mode remembers from request to request,
    `failed_task` the task that failed, whose other steps still run."""

    steps: Annotated[list[Bag], Meta(max_length=STEPS_MAX)]
    check: bool = False
    diff: bool = False
    planned: Bag | UnsetType = UNSET
    failed_task: Count | UnsetType = UNSET
