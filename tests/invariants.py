"""What holds of the leader's whole state after each of its steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import is_

from rm.arrays import each, parse
from rm.core.jobs.free import all_of, needs
from rm.core.jobs.lending import lent
from rm.core.jobs.state import ClusterState, placed_view
from rm.core.jobs.strays import without_strays
from rm.core.model.asked.array import SETS
from rm.core.model.host import Host
from rm.core.model.job import Job, JobState
from rm.core.model.snapshot import Free


@dataclass
class Seen:
    """What was found in order before, with the very objects that it was found for. Jobs, placed jobs and
    hosts are frozen: as long as they are the same objects, the answer is the same."""

    jobs: dict[int, Job] = field(default_factory=dict)
    views: dict[int, tuple[object, ...]] = field(default_factory=dict)
    left: dict[str, tuple[tuple[object, ...], Free]] = field(default_factory=dict)
    arrays: dict[int, tuple[object, ...]] = field(default_factory=dict)
    summed: Summed | None = None


@dataclass
class Summed:
    """What follows from the jobs alone, gathered in one walk: who waits, who holds hosts, who was submitted
    by which user under which key, and which job is which element of which array."""

    of: tuple[Job, ...]
    waiting: set[int] = field(default_factory=set)
    occupying: set[int] = field(default_factory=set)
    keys: dict[tuple[str, str], set[int]] = field(default_factory=dict)
    elements: dict[int, dict[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for job in self.of:
            if job.state is JobState.PENDING:
                self.waiting.add(job.id)
            elif job.occupies:
                self.occupying.add(job.id)
            if job.key:
                self.keys.setdefault((job.spec.user, job.key), set()).add(job.id)
            if job.array_task is not None:
                self.elements.setdefault(job.array_job, {})[job.array_task] = job.id


def same(known: Sequence[object] | None, those: Sequence[object]) -> bool:
    return known is not None and len(known) == len(those) and all(map(is_, known, those))


def validate_state(state: ClusterState, seen: Seen | None = None) -> None:
    """Fail with the first invariant that is broken. Everything derived is worked out again from the jobs;
    `seen` spares that where the steps since the last call have changed nothing."""
    seen = seen or Seen()
    of = tuple(state.jobs.values())
    if seen.summed is None or not same(seen.summed.of, of):
        seen.summed = Summed(of)
    _queue(state, seen, seen.summed)
    _placed(state, seen, seen.summed.occupying)
    _hosts(state, seen)
    held = Counter[str]()
    for number in state.placed:
        held.update(dict(state.jobs[number].spec.demand.licenses))
    assert all(count <= state.licenses.get(name, 0) for name, count in held.items()), f"held are {held}"
    _slices(state)
    _arrays(state, seen, seen.summed.elements)
    counted = {number for number in state.placed if state.jobs[number].account}
    counted = {number for number in counted if not state.jobs[number].waits_in_slice}
    assert state.ledger.rates.keys() == counted, f"usage grows by {set(state.ledger.rates)}, not by {counted}"
    assert not state.freed, "the pass did not look at what came free"
    assert state.fresh.keys() <= state.pending.keys(), f"to be tried are {list(state.fresh)}"


def _queue(state: ClusterState, seen: Seen, summed: Summed) -> None:
    jobs = state.jobs
    waiting, known = summed.waiting, summed.keys
    assert state.pending.keys() == waiting, f"pending are {list(state.pending)}, and wait do {waiting}"
    assert state.next_job > max(jobs, default=0), f"the next id {state.next_job} is taken"
    assert state.submissions.keys() == known.keys(), f"submissions are known by {state.submissions.keys()}"
    for of, numbers in state.submissions.items():
        mine = known[of]
        assert mine <= set(numbers), f"{of[1]!r} is {numbers}, not {mine}"
        assert len(numbers) == len(set(numbers)), f"{of[1]!r} is {numbers}"
    for number, job in jobs.items():
        if seen.jobs.get(number) is job:
            continue
        assert number == job.id, f"job {job.id} stands under the number {number}"
        assert (job.ended_us is not None) == job.state.final, f"job {job.id} is {job.state}: {job.ended_us}"
        assert bool(job.attempt) or not job.occupies, f"job {job.id} is {job.state} before any attempt"
        assert job.state is not JobState.PENDING or not job.tasks, f"job {job.id} waits with tasks"
        ranks = [task.rank for task in job.tasks]
        assert ranks in ([], list(range(job.spec.ntasks))), f"job {job.id} has the ranks {ranks}"
        seen.jobs[number] = job


def _placed(state: ClusterState, seen: Seen, occupying: set[int]) -> None:
    placed = state.placed
    assert placed.keys() == occupying, f"placed are {set(placed)}, and hosts are held by {occupying}"
    for number, view in placed.items():
        job = state.jobs[number]
        if same(seen.views.get(number), (job, view)):
            continue
        assert job.placement is not None
        assert view == placed_view(job, job.placement, view.sequence), f"job {number} is seen as {view}"
        seen.views[number] = job, view
    order = [view.sequence for view in placed.values()]
    assert len(order) == len(set(order)), f"two jobs were placed at one turn: {order}"
    assert state.next_sequence > max(order, default=0)
    on = {name: {n for n, view in placed.items() if name in view.placement.hosts} for name in state.jobs_on}
    assert {h for view in placed.values() for h in view.placement.hosts} <= on.keys()
    assert state.jobs_on == on, f"on the hosts are {state.jobs_on}, and placed there {on}"
    alone = {number for number, view in placed.items() if view.exclusive_user}
    assert state.by_user == alone, f"of their users alone are {state.by_user}, and should be {alone}"
    standing = {number for number in placed if state.jobs[number].yields_to}
    assert state.yielding == standing, f"stand still for others do {standing}, and known are {state.yielding}"
    for number in standing:
        to = state.jobs[number].yields_to
        assert {*to} <= placed.keys(), f"job {number} stands still for {to}, of which some have gone"
    for name, numbers in on.items():
        users = {placed[n].user for n in numbers}
        assert len(users) < 2 or not numbers & alone, f"{name} is one user's alone, and has jobs of {users}"
    assert state.progress.keys() <= placed.keys(), f"of {set(state.progress)} progress is kept"
    aligned = {schedule.job for schedule in state.alignment.schedules}
    assert aligned <= placed.keys(), f"aligned are {aligned}, and placed {set(placed)}"


def _slices(state: ClusterState) -> None:
    """How many of each slice are placed, and how many of each array stand behind others."""
    placed = [state.jobs[number] for number in state.placed]
    slices = Counter(job.slice_of for job in placed if job.slice_of)
    assert state.slices == slices, f"of slices are placed {slices}, and counted {state.slices}"
    arrays = {job.slice_of: job.array_job for job in placed}
    behind = Counter[int]()
    for first, count in slices.items():
        behind[arrays[first]] += count - 1
    assert state.behind == +behind, f"behind others stand {behind}, and counted are {state.behind}"


def _hosts(state: ClusterState, seen: Seen) -> None:
    hosts = state.hosts
    assert state.free.keys() == hosts.keys()
    assert state.silent_since.keys() <= hosts.keys()
    assert state.strays.keys() <= hosts.keys()
    assert {host.zone for host in hosts.values()} <= state.zones.keys()
    assert {name for pair in state.network for name in pair} <= hosts.keys()
    for name, host in hosts.items():
        there = sorted(state.jobs_on.get(name, ()))
        strays = state.strays.get(name)
        of = (host, *(state.jobs[n] for n in there), *(state.placed[n] for n in there))
        known = seen.left.get(name)
        if strays or known is None or not same(known[0], of):
            known = of, _left(state, host)
            if not strays:
                seen.left[name] = known
        left = known[1]
        assert state.free[name] == left, f"of {name} {state.free[name]} is free, and should be {left}"


def _left(state: ClusterState, host: Host) -> Free:
    """What the jobs on a host and its strays leave of it, added up without the accounts that are kept."""
    whole = all_of(host)
    cpus, mem_bytes, idle, shared = whole.cpus, whole.mem_bytes, set(whole.gpus), dict(whole.gpu_mem)
    alone, there = False, list[tuple[Job, int]]()
    slices = {state.jobs[number].slice_of or -number: number for number in state.jobs_on.get(host.name, ())}
    for number in slices.values():
        spec, tasks = state.jobs[number].spec, state.placed[number].placement.on(host.name)
        alone |= spec.exclusive
        took_cpus, took_bytes = needs(spec, len(tasks))
        took_cpus = whole.cpus if spec.exclusive else took_cpus
        there.append((state.jobs[number], took_cpus))
        cpus, mem_bytes = cpus - took_cpus, 0 if spec.mem_all else mem_bytes - took_bytes
        gpus = {gpu for task in tasks for gpu in task.gpus}
        if not spec.gpu_mem_bytes:
            assert gpus <= idle, f"job {number} has GPUs of others on {host.name}: {gpus - idle}"
        idle -= gpus
        for gpu in gpus & shared.keys():
            if spec.gpu_mem_bytes:
                shared[gpu] -= spec.gpu_mem_bytes
            else:
                del shared[gpu]
    if any(job.yields_to for job, _ in there):
        cpus += lent(there)
    awake = sum(wanted for job, wanted in there if not job.yields_to)
    assert awake <= whole.cpus, f"on {host.name} run jobs with {awake} processors"
    assert min(cpus, mem_bytes) >= 0, f"{host.name} has {cpus} CPUs and {mem_bytes} bytes left"
    assert all(size >= 0 for size in shared.values()), f"GPUs of {host.name} have {shared} bytes left"
    if alone:
        jobs = [state.jobs[number] for number in state.jobs_on[host.name]]
        own = next(job for job in jobs if job.spec.exclusive)
        others = [job for job in jobs if job is not own]  # which stand still for it, or for which it does
        assert all(job.id in own.yields_to or own.id in job.yields_to for job in others), (
            f"{host.name} is not one job's alone"
        )
        left = Free(0, 0, (), ())
    else:
        left = Free(cpus, mem_bytes, tuple(sorted(idle)), tuple(sorted(shared.items())))
    strays = state.strays.get(host.name)
    return without_strays(left, host.gpus, strays) if strays else left


def _arrays(state: ClusterState, seen: Seen, known: dict[int, dict[int, int]]) -> None:
    """Each element is exactly once waiting, live or ended; those that are live have a job, and it says so."""
    assert state.elements == known, f"elements are known as {state.elements}, and are {known}"
    for number, job in state.jobs.items():
        if job.array is None:
            continue
        own = {task: state.jobs[n] for task, n in state.elements.get(number, {}).items()}
        if same(seen.arrays.get(number), of := (job, *own.values())):
            continue
        sets = {name: job.array.has(name) for name in SETS}
        all_of_them, asked = 0, parse(job.spec.array).mask
        for elements in sets.values():
            assert not all_of_them & elements, f"an element of array {number} is twice in {job.array}"
            all_of_them |= elements
        assert all_of_them == asked, f"array {number} is {job.array}"
        waits, lives = sets["waiting"], sets["requeued"] | sets["running"]
        held = job.array.has("held")
        assert not held & ~waits, f"array {number} is {job.array}"
        kept = job.array.has("admin_held")
        assert not kept & ~held & ~sets["dropped"], f"array {number} is {job.array}"
        assert own.keys() >= set(each(lives)), f"of array {number} a job is missing"
        for task, element in own.items():
            assert sets[_name_of(element)] >> task & 1, f"job {element.ref} is {element.state}: {job.array}"
        assert (job.state is JobState.PENDING) == bool(waits), f"array {number} is {job.state}"
        assert (job.state is JobState.RUNNING) == (not waits and bool(lives)), (
            f"array {number} is {job.state}"
        )
        assert not job.tasks
        seen.arrays[number] = of


def _name_of(job: Job) -> str:
    if job.state is JobState.PENDING:
        return "requeued"
    if not job.state.final:
        return "running"
    return {JobState.COMPLETED: "completed", JobState.CANCELLED: "cancelled"}.get(job.state, "failed")
