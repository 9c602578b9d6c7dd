"""The plan of reserved jobs, from pass to pass, against what counting each second of the cluster finds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rm.core.journal.starting_point import dump_state, restore_state
from rm.core.model.job import Job, Placement
from rm.core.scheduling.cycle import Cycle
from tests.examples import examples
from tests.unit.test_backfill import SECOND_US, World

LICENSES = {"ansys": 2}


@dataclass(frozen=True)
class Wish:
    """A job that comes `after_s` after the one before, and runs for `lasts_s` of its limit."""

    after_s: int
    tasks: int
    cpus: int
    gpus: int
    limit_s: int
    lasts_s: int
    array: int = 0
    license: bool = False
    alone: str = ""  # its user, whose hosts are its own


WISHES = st.builds(
    Wish,
    st.sampled_from([0, 0, 1, 2, 5]), st.integers(1, 6), st.sampled_from([1, 1, 2, 3]),
    st.sampled_from([0, 0, 1]), st.integers(1, 20), st.integers(1, 20), st.sampled_from([0, 0, 0, 3]),
    st.sampled_from([False, False, False, True]), st.sampled_from(["", "", "", "ann", "bob"]),
)  # fmt: skip


class Played:
    """A world of unequal hosts, whose jobs end by themselves, and what was promised in it."""

    def __init__(self, cpus: list[int], placement: str, depth: int) -> None:
        self.world = World(len(cpus), placement=placement, depth=depth, gpus=2)
        self.state.licenses = dict(LICENSES)
        for name, number in zip(list(self.state.hosts), cpus, strict=True):
            self.state.hosts[name] = replace(
                self.state.hosts[name], cpus=number, gpus=self.state.hosts[name].gpus[: number // 2]
            )
            self.state.recount(name)
        self.depth = depth
        self.promised: dict[int, int] = {}
        self.ends: dict[int, int] = {}
        self.wishes: dict[int, Wish] = {}
        self.ahead = 0  # how often a job that was not the first kept a promise

    @property
    def state(self) -> Any:
        return self.world.cycle.state

    def submit(self, wish: Wish) -> None:
        number = self.state.next_job
        self.wishes[number] = wish
        more: dict[str, Any] = {"array": f"0-{wish.array - 1}"} if wish.array else {}
        more |= {"licenses": "ansys"} if wish.license else {}
        more |= {"user": wish.alone, "exclusive_user": True} if wish.alone else {}
        before = list(self.state.planned)
        self._note(self.world.submit(
            wish.tasks, None, cpus_per_task=wish.cpus, gpus_per_task=wish.gpus,
            time_limit_us=wish.limit_s * SECOND_US, **more,
        ))  # fmt: skip
        if [*before, number] == list(self.state.planned) and not (wish.license or wish.alone):
            assert self.state.planned[number].at_us == self.earliest_us(number)

    def tick(self) -> None:
        """A second passes; what is due ends, and the clock alone may start others."""
        self.world.now_us += SECOND_US
        over = [number for number, at_us in self.ends.items() if at_us <= self.world.now_us]
        for number in over:
            del self.ends[number]
        self._note(self.world.end(*over))
        for _ in range(100):
            due_us = self.world.cycle.next_due_us()
            if due_us is None or due_us > self.world.now_us:
                break
            self._note(self.world.step())
        else:
            raise AssertionError("it is always due")

    def start_over(self) -> None:
        """What the journal's next reader has."""
        cycle, now_us = self.world.cycle, self.world.now_us
        state = restore_state(dump_state(cycle.state, now_us), now_us)
        assert state.planned == cycle.state.planned
        self.world.cycle = Cycle(state, cycle.policies, cycle.rules, cycle.tuning)
        self.world.cycle.start_over(aligned=True)
        self._note(self.world.step())

    def _note(self, started: list[int]) -> None:
        now_us = self.world.now_us
        for number in started:
            job = self.world.job(number)
            wish = self.wishes[job.array_job or number]
            self.ends[number] = now_us + min(wish.lasts_s, wish.limit_s) * SECOND_US
            promised_us = self.promised.pop(job.array_job or number, now_us)
            assert now_us <= promised_us, f"job {number} starts {(now_us - promised_us) // SECOND_US} s late"
        assert len(self.state.planned) <= self.depth
        for place, one in enumerate(self.state.planned.values()):
            assert one.at_us is not None
            assert one.at_us <= self.promised.get(one.job, one.at_us), f"job {one.job} is planned later"
            self.ahead += place > 0 and one.job in self.promised
            self.promised[one.job] = one.at_us
        self._count()

    def stays(self) -> list[tuple[Job, Placement, int, int]]:
        """(who, where, from, until) of what runs by its limit, and of what is planned."""
        now_us, found = self.world.now_us, list[tuple[Job, Placement, int, int]]()
        for number, placed in self.state.placed.items():
            job = self.world.job(number)
            until_us = self.world.started[number] + (job.spec.time_limit_us or 0)
            found.append((job, placed.placement, now_us, until_us))
        for one in self.state.planned.values():
            job = self.world.job(one.job)
            found.append(
                (job, one.placement, one.at_us or 0, (one.at_us or 0) + (job.spec.time_limit_us or 0))
            )
        return found

    def left(
        self, stays: list[tuple[Job, Placement, int, int]], at_us: int
    ) -> dict[str, tuple[int, set[int]]]:
        """Processors and GPUs that are free on each host then; it fails if something is held twice."""
        there = [(job, where) for job, where, since_us, until_us in stays if since_us <= at_us < until_us]
        assert sum(bool(job.spec.licenses) for job, _ in there) <= LICENSES["ansys"]
        found = {}
        for name, host in self.state.hosts.items():
            mine = [(job, where.on(name)) for job, where in there if name in where.hosts]
            users = {job.spec.user for job, _ in mine}
            assert len(users) < 2 or not any(job.spec.exclusive_user for job, _ in mine)
            cpus = host.cpus - sum(job.spec.cpus_per_task * len(tasks) for job, tasks in mine)
            held = [gpu for _, tasks in mine for task in tasks for gpu in task.gpus]
            assert cpus >= 0
            assert len(held) == len(set(held))
            found[name] = cpus, {gpu.index for gpu in host.gpus} - set(held)
        return found

    def _count(self) -> None:
        """What is planned fits at each second."""
        stays = self.stays()
        for at_us in sorted({since_us for _, _, since_us, _ in stays}):
            self.left(stays, at_us)

    def earliest_us(self, number: int) -> int:
        """The first second from which on there is room for it until its end, beside all that is planned."""
        spec, stays = self.world.job(number).spec, [one for one in self.stays() if one[0].id != number]
        at_us = self.world.now_us
        while True:
            at_us += SECOND_US
            moments = range(at_us, at_us + (spec.time_limit_us or 0), SECOND_US)
            window = [self.left(stays, moment) for moment in moments]
            room = 0
            for name in self.state.hosts:
                cpus = min(one[name][0] for one in window)
                gpus = set.intersection(*(one[name][1] for one in window))
                tasks = cpus // spec.cpus_per_task
                room += min(tasks, len(gpus) // spec.gpus_per_task) if spec.gpus_per_task else tasks
            alone = {job.spec.user for job, *_ in stays if job.spec.exclusive_user}
            if room >= spec.ntasks or alone:  # whose hosts they are is left to the plan
                return at_us if not alone else self.state.planned[number].at_us


@pytest.mark.parametrize("placement", ["first-fit", "lwf", "zone", "metronome"])
@pytest.mark.parametrize("early", [False, True])
@given(
    wishes=st.lists(WISHES, min_size=4, max_size=24),
    cpus=st.lists(st.integers(1, 6), min_size=2, max_size=5),
    depth=st.integers(1, 8),
    starts_over=st.sets(st.integers(0, 60), max_size=3),
)
@settings(max_examples=examples(40), deadline=None)
def test_no_reserved_job_starts_later_than_promised(
    placement: str, early: bool, wishes: list[Wish], cpus: list[int], depth: int, starts_over: set[int]
) -> None:
    """Jobs end at their limits, or before; none comes that stands before others."""
    played = Played(cpus, placement, depth)
    for wish in wishes:
        for _ in range(wish.after_s):
            played.tick()
        played.submit(wish if early else replace(wish, lasts_s=wish.limit_s))
    for turn in range(400):
        if turn in starts_over:
            played.start_over()
        played.tick()
        if not played.ends and not played.state.planned:
            break
    assert not played.promised
