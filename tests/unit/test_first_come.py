"""The order of bursts on a link, as the kernel's program keeps it, by an interpreter of its instructions."""

from __future__ import annotations

import os
import struct
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.agent_process import AGENTS
from tests.bpf import Machine

sys.path.insert(0, str(AGENTS))
import rm_first_come as first_come

sys.path.remove(str(AGENTS))

GAP_US, DRAIN_US, LONGEST_US = 10_000, 3_000, 500_000
PROGRAM = first_come.assembled(3, GAP_US, DRAIN_US, LONGEST_US)
MAJOR = 0x726D << 16
HIGH, A, B, C = 0, 4, 5, 6  # jobs by their numbers: below 4 they are high
DATA = (
    bytes(12) + b"\x08\x00" + b"\x45\x00" + struct.pack(">H", 1500) + bytes(5) + b"\x06" + bytes(22) + b"\x50"
)


class Link:
    """A host's way out: packets of jobs at given times."""

    def __init__(self) -> None:
        self.records = bytearray(first_come.MOST_JOBS * first_come.RECORD_BYTES)

    def place(self, job: int, at_us: int, packet: bytes = DATA, priority: int | None = None) -> int:
        """The class that a packet of the job goes to: its place in the order."""
        context = bytearray(80)
        struct.pack_into("=I", context, 16, 8)
        struct.pack_into("=I", context, 32, MAJOR + 0x8000 + job if priority is None else priority)
        machine = Machine(context, self.records, packet, lambda: (1_000_000 + at_us) * 1000)
        assert machine.run(PROGRAM) == 0xFFFF_FFFF_FFFF_FFFF  # other filters have their turn
        (found,) = struct.unpack_from("=I", context, 32)
        return int(found) - MAJOR - 0xF000

    def burst(self, job: int, begin_us: int, end_us: int, step_us: int = 1000) -> set[int]:
        return {self.place(job, at) for at in range(begin_us, end_us, step_us)}


def test_whoever_begins_later_stands_behind_until_its_burst_ends() -> None:
    link = Link()
    assert link.place(A, 0) == 3  # the places before are for high jobs
    assert link.place(B, 5_000) == 4
    assert link.place(C, 6_000) == 5
    assert link.place(A, 9_000) == 3
    assert link.burst(A, 10_000, 90_000) == {3}
    # B's packets wait, and so it is silent: it keeps its place before C
    assert link.place(B, 91_000) == 4
    assert link.place(C, 92_000) == 5
    assert link.place(A, 101_000) == 6  # a new burst, behind those that wait


def test_a_burst_that_has_come_to_the_front_moves_there_when_its_queue_is_empty() -> None:
    link = Link()
    link.place(A, 0)
    link.place(B, 1_000)
    link.place(A, 2_000)
    assert link.burst(B, 3_000, 14_000) == {4}  # A may still go on, then B's queue may hold packets
    assert link.place(B, 17_500) == 3
    assert link.place(A, 18_000) == 4
    assert link.place(B, 19_000) == 3


def test_when_nobody_is_there_the_order_starts_anew() -> None:
    link = Link()
    for job in range(A, A + 8):
        link.place(job, job)
    assert link.place(A + 7, 50_000) == 3
    assert link.place(A, 50_001) == 4


def test_high_jobs_pass_and_low_ones_behind_them_keep_their_order() -> None:
    link = Link()
    assert link.place(A, 0) == 3
    assert link.place(HIGH, 1_000) == 1
    assert link.place(HIGH + 1, 1_001) == 2
    assert link.burst(HIGH, 2_000, 60_000) == {1}
    assert link.place(B, 60_000) == 4
    assert link.place(A, 61_000) == 3


def test_a_burst_without_end_goes_behind_those_that_wait_and_alone_goes_on() -> None:
    link = Link()
    assert link.burst(A, 0, LONGEST_US + 50_000, 5_000) == {3}
    assert link.place(B, LONGEST_US + 51_000) == 4
    assert link.place(A, LONGEST_US + 52_000) == 5
    assert link.place(A, LONGEST_US + 53_000) == 5


def test_the_last_place_is_shared_and_a_late_one_at_the_front_makes_room() -> None:
    link = Link()
    places = [link.place(job, job) for job in range(A, A + 8)]
    assert places == [3, 4, 5, 6, 7, 8, 8, 8]
    front = A + 3  # of place 6, when those before it are silent
    for at in range(1_000, 30_000, 1_000):
        link.place(front, at)
    assert link.place(front, 30_000) == 3


def test_an_acknowledgement_passes_and_begins_no_burst() -> None:
    link = Link()
    ack = DATA[:16] + struct.pack(">H", 40) + DATA[18:]
    link.place(A, 0)
    assert link.place(B, 1, ack) == 1
    assert link.place(C, 2) == 4


def test_other_packets_are_left_alone() -> None:
    link = Link()
    for priority in (0, 6, MAJOR + 0x10, MAJOR + 0x8000 + 16, MAJOR + 0xF001):
        assert link.place(0, 0, priority=priority) == priority - MAJOR - 0xF000
    assert link.records == bytes(len(link.records))


@given(st.lists(st.tuples(st.integers(0, 15), st.integers(0, 40_000)), max_size=60))
def test_a_job_that_begins_stands_behind_all_of_its_kind_that_send(packets: list[tuple[int, int]]) -> None:
    """For any packets at any times; the last place is shared."""
    link, at = Link(), 0
    sent: dict[int, tuple[int, int]] = {}  # job -> its newest packet's time and place
    for job, step_us in packets:
        at += step_us
        place = link.place(job, at)
        kind = range(1, 3) if job < first_come.HIGH_JOBS else range(3, 9)
        assert place in kind
        before = [theirs for last, theirs in sent.values() if at - last <= GAP_US and theirs in kind]
        if job not in sent:
            assert place == kind[-1] or place > max(before, default=0)
        sent[job] = (at, place)


@pytest.mark.skipif(os.getuid() != 0, reason="needs root")
def test_this_kernel_takes_the_program() -> None:
    try:
        program = first_come.loaded(GAP_US, DRAIN_US, LONGEST_US)
    except OSError as error:
        pytest.skip(f"not here: {error}")
    os.close(program)
