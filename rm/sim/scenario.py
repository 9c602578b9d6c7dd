"""Scenario files: a cluster, a network, policies and a workload in TOML.

Durations carry their unit ("255ms", "4h"), rates and sizes too ("50Gbps", "16G"). The form is
shown in docs/simulator.md and in examples/sim/; every mistake names its place in the file.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from rm import arrays
from rm.core import registry
from rm.errors import RmError, UsageError
from rm.sim.network.unfairness import LUCK_MOST
from rm.typed import convert
from rm.units import parse_bandwidth_bps, parse_duration_us, parse_memory_bytes

ELEMENTS_MAX = 100_000  # of one job array: each is a job that is simulated
T = TypeVar("T")
Positive = Annotated[int, msgspec.Meta(ge=1)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1e6)]
Word = Annotated[str, msgspec.Meta(min_length=1)]


class Cluster(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Equal hosts. `gpu_mem` "0" = GPUs cannot be shared; `zones` divide the hosts evenly."""

    hosts: Positive
    gpus: Annotated[int, msgspec.Meta(ge=0)] = 1
    gpu_mem: str = "0"
    cpus: Positive = 64
    nic: str = "10Gbps"
    zones: Annotated[tuple[Word, ...], msgspec.Meta(min_length=1)] = ("zone1",)


class FabricForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A leaf-spine fabric: the hosts in this many equal racks, each with one link to each spine.

    With `pinned` jobs keep to the spines that rm chooses for them.
    """

    leaves: Positive
    spines: Positive
    uplink: str
    ecmp: Literal["connection", "transfer"] = "connection"
    pinned: bool = False


class NetworkForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`fluid`: max-min fair shares; `penalty`: Ada-SRSF's a + kbM + (k-1)ηM; `ideal`: no contention.

    `newcomer`: of its weight, by which a transfer counts in `fluid` that begins beside others, once they
    have had `head_start`; `luck`: the standard deviation of the logarithm of all weights; `loss`: of a
    link's capacity, while several jobs send over it at one priority. `a` is a duration, `b_ns` and `eta_ns`
    nanoseconds a byte.
    """

    model: Literal["fluid", "penalty", "ideal"] = "fluid"
    lockstep: bool = True
    newcomer: Annotated[float, msgspec.Meta(gt=0, le=1)] = 1.0
    head_start: str = "0s"
    luck: Annotated[float, msgspec.Meta(ge=0, le=LUCK_MOST)] = 0.0
    loss: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.0
    a: str = "0s"
    b_ns: Share = 0.853
    eta_ns: Share = 0.235


class PoliciesForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    queue: str = "fifo"
    placement: str = "zone"
    comm: str = "metronome"
    options: dict[str, dict[str, dict[str, Any]]] = {}
    candidates: Positive = 4
    min_score: float = float("-inf")
    patience: float = 0.0


class NoiseForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    jitter: Share = 0.0
    drift: Share = 0.0
    straggle: Share = 0.0
    straggle_factor: Share = 2.0


class SettingsForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    regulation: bool = True
    launch: str = "0s"
    restart: str = "0s"
    lease: str = "0s"
    until: str = ""


class Arrivals(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`snapshot`: all at once, in the file's order; `poisson`: shuffled, with a mean gap; `trace`: at
    the times of a CSV file with the columns job (a name of this scenario) and at (a duration)."""

    process: Literal["snapshot", "poisson", "trace"] = "snapshot"
    mean_gap: str = "60s"
    file: str = ""


class PhaseForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    offset: str
    duration: str
    bandwidth: str


class JobForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One kind of job. Either a traffic profile (`period` and `phases`, or `duty_cycle` and
    `bandwidth`), or a data-parallel iteration (`forward`, `backward`, `message`).

    `message` is the M of its all-reduce. Each task takes `gpus` GPUs; `hosts` pins the job. With `array`
    it is a job array of such jobs, as --array has it.
    """

    name: str
    count: Positive = 1
    array: str = ""
    tasks: Positive = 1
    tasks_per_host: Annotated[int, msgspec.Meta(ge=0)] = 0
    gpus: Annotated[int, msgspec.Meta(ge=0)] = 1
    gpu_mem: str = "0"
    priority: Literal["low", "high"] = "low"
    iterations: Annotated[int, msgspec.Meta(ge=1, le=10**9)]
    period: str = ""
    duty_cycle: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    bandwidth: str = ""
    phases: tuple[PhaseForm, ...] = ()
    forward: str = ""
    backward: str = ""
    message: str = ""
    hosts: tuple[str, ...] = ()
    time_limit: str = ""


class Variant(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What `rmx sim compare` sets against the scenario as it stands."""

    name: str
    queue: str | None = None
    placement: str | None = None
    comm: str | None = None
    options: dict[str, dict[str, dict[str, Any]]] = {}
    regulation: bool | None = None
    network: Literal["fluid", "penalty", "ideal"] | None = None


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    name: str
    seeds: Positive = 1
    cluster: Cluster
    fabric: FabricForm | None = None
    network: NetworkForm = NetworkForm()
    policies: PoliciesForm = PoliciesForm()
    noise: NoiseForm = NoiseForm()
    settings: SettingsForm = SettingsForm()
    arrivals: Arrivals = Arrivals()
    job: Annotated[tuple[JobForm, ...], msgspec.Meta(min_length=1)]
    variant: tuple[Variant, ...] = ()


def read(path: Path) -> Scenario:
    """The scenario in a file.

    Raises:
        UsageError: what is wrong, and where in the file.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise UsageError(f"The scenario {path} cannot be read: {problem.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise UsageError(f"{path} is not TOML: {problem}.") from None
    try:
        scenario = convert(document, Scenario)
    except msgspec.ValidationError as problem:
        what, _, where = str(problem).partition(" - at ")
        place = where.strip("`").removeprefix("$.") or "the top"
        raise UsageError(f"{path}: at {place}: {what}.", "docs/simulator.md shows the form.") from None
    _check_jobs(scenario, str(path))
    _check_policies(scenario, str(path))
    return scenario


def duration_us(text: str, where: str) -> int:
    """A duration of the file; bad ones are reported with their place."""
    return _parsed(parse_duration_us, text, where)


def bandwidth_bps(text: str, where: str) -> int:
    return _parsed(parse_bandwidth_bps, text, where)


def size_bytes(text: str, where: str) -> int:
    return 0 if text == "0" else _parsed(parse_memory_bytes, text, where)


def _parsed(parse: Callable[[str], T], text: str, where: str) -> T:
    try:
        return parse(text)
    except RmError as problem:
        raise UsageError(f"The scenario's {where}: {problem}") from None


def _check_policies(scenario: Scenario, path: str) -> None:
    """Options of policies that do not exist, or that they do not have, are a slip; so are two variants of
    one name."""
    names: set[str] = set()
    for index, variant in enumerate(scenario.variant):
        if variant.name in names:
            raise UsageError(f"{path}: variant[{index}] has the name of another one, {variant.name}.")
        names.add(variant.name)
    tables = [scenario.policies.options, *(variant.options for variant in scenario.variant)]
    for kind, by_name in (item for table in tables for item in table.items()):
        for name, options in by_name.items():
            registry.load(kind, name, options)


def _check_jobs(scenario: Scenario, path: str) -> None:
    names: set[str] = set()
    for index, job in enumerate(scenario.job):
        where = f"{path}: job[{index}] ({job.name})"
        if job.name in names:
            raise UsageError(f"{where} has the name of another job.", "Use `count` for equal jobs.")
        names.add(job.name)
        if job.array:
            try:
                size = arrays.parse(job.array).mask.bit_count()
            except UsageError as problem:
                raise UsageError(f"{where}: {problem}") from None
            if size > ELEMENTS_MAX:
                raise UsageError(f"{where}: an array of {size} elements is too large.",
                                 f"At most {ELEMENTS_MAX} are simulated.")  # fmt: skip
        profile, parallel = bool(job.period), bool(job.forward or job.backward)
        if profile == parallel:
            raise UsageError(
                f"{where} needs either a traffic profile or a data-parallel iteration.",
                "Give period with phases (or duty_cycle and bandwidth), or forward, backward and message.",
            )
        if profile and bool(job.phases) == (job.duty_cycle is not None and bool(job.bandwidth)):
            raise UsageError(f"{where} needs either phases, or duty_cycle and bandwidth.")
        if parallel and not (job.forward and job.backward and job.message):
            raise UsageError(f"{where} needs forward, backward and message together.")
    if scenario.arrivals.process == "trace" and not scenario.arrivals.file:
        raise UsageError(f"{path}: arrivals of a trace need its file.", 'Add file = "trace.csv".')
