"""Playbook steps on a host."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from rm.protocol.request import Request
from rm.protocol.scalars import Count, Word

STEPS_MAX = 65_536
# What a module takes and what it gives are the modules' own, named as Ansible's; what check mode remembers is
# the executor's own, and comes back to it as it was.
Open = dict[str, Any]
Wait = Annotated[float, Meta(ge=0)]  # seconds


NAMES = {"timeout_s": "timeout", "background_s": "async"}  # on the wire, as Ansible has them


class Step(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, rename=NAMES):
    """One operation with its module's arguments, as `user`, in that user's home if `at_home`. Its failure
    keeps the steps of later tasks from running, unless `ignore_errors`. It is broken off after `timeout`
    seconds, 0 = never; with `async` nobody waits for it, and it is broken off after that many. `parts`: texts
    among the arguments came before, in parts."""

    id: Count
    task: Count
    op: Word
    args: Open
    check: bool | UnsetType = UNSET
    user: Word = ""
    at_home: bool = False
    environment: dict[str, str] = {}
    ignore_errors: bool = False
    timeout_s: Wait = 0
    background_s: Wait = 0
    parts: bool = False


class StepResults(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`results` are (`id`, `took_us`, `changed`, `failed`, `msg`, `diff`, …) in order; `cut`: the reply has
    grown beyond 1 MiB, and the steps without a result are to be asked for again."""

    results: Annotated[list[Open], Meta(max_length=STEPS_MAX)]
    planned: Open
    failed_task: Count | None
    cut: bool = False


class Steps(Request[StepResults], frozen=True, kw_only=True, tag="steps"):
    """Playbook steps. `planned` is what check mode remembers from request to request, `failed_task` the task
    that failed, whose other steps still run."""

    steps: Annotated[list[Step], Meta(max_length=STEPS_MAX)]
    check: bool = False
    diff: bool = False
    planned: Open | UnsetType = UNSET
    failed_task: Count | UnsetType = UNSET
