"""The daemon's part in admission: who is to ask, and what hosts are told when jobs are ready."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import inf

import pytest

from rm.core.jobs import events as ev
from rm.core.model.network.alignment import NOTHING_TO_ALIGN
from rm.core.ports import AdmissionPolicy, admits
from rm.core.registry import load
from rm.core.scheduling.guarded import Faults, guarded
from rm.daemon.regulation.admission import ORDERS_MAX, WORDS_MAX, Admission
from rm.daemon.regulation.asking import REFUSALS
from rm.policies.comm.preemptive import Preemptive, PreemptiveOptions
from rm.policies.comm.srsf_n import SrsfN
from rm.policies.regulate.admitting import FACTOR, SLACK_US, Admitting, Order
from rm.protocol.codes import Code
from rm.protocol.notifications import Communication
from tests.fakes import said
from tests.regulating import EPOCH, House

MOST_US = SLACK_US + FACTOR * 40_000


class AdmissionHouse(House):
    """With an admission in the regulator's place; the clock of both is set by hand."""

    def __init__(self, policy: AdmissionPolicy | None = None) -> None:
        super().__init__()
        self.admission = Admission(policy=policy or SrsfN(), agents=self.hosts, clock=self.clock, epoch=EPOCH)
        self.admission.start()

    def show(self) -> None:
        self.admission.aligned(NOTHING_TO_ALIGN, self.state)

    def say(self, job: int, number: int, ended: bool = False, attempt: int = 1) -> None:
        message = said("communication", job=job, attempt=attempt, number=number, ended=ended)
        assert isinstance(message, Communication)
        self.admission.communication(message)

    def told(self, op: str) -> dict[tuple[int, str], int]:
        """What each host of one job was told, when both have been."""
        calls = [self.hosts.take(op, host) for host in ("a", "b")]
        for call in calls:
            call.answer()
        assert len({call.args["job"] for call in calls}) == 1
        return {
            (call.args["job"], call.host): call.args["most_us" if op == "admission" else "number"]
            for call in calls
        }


@pytest.fixture
def house() -> Iterator[AdmissionHouse]:
    made = AdmissionHouse()
    try:
        yield made
    finally:
        made.admission.stop()
        made.regulator.stop()


def both(job: int, value: int) -> dict[tuple[int, str], int]:
    return {(job, "a"): value, (job, "b"): value}


def test_jobs_that_share_hosts_ask_and_take_turns(house: AdmissionHouse) -> None:
    house.run(1)
    house.show()
    house.run(2)
    house.show()
    assert house.told("admission") == both(1, MOST_US)
    assert house.told("admission") == both(2, MOST_US)
    house.say(1, 5)
    assert house.told("admit") == both(1, 5)
    house.say(2, 8)
    house.say(1, 5, ended=True)
    assert house.told("admit") == both(2, 8)


def test_a_transfer_is_held_for_one_that_ends_sooner_and_goes_on_afterwards() -> None:
    house = AdmissionHouse(Preemptive(PreemptiveOptions(worth=inf)))
    try:
        house.run(1, time_limit_us=9_000_000)
        house.run(2, time_limit_us=5_000_000)
        house.show()
        for _ in range(2):
            house.told("admission")
        house.say(1, 5)
        assert house.told("admit") == both(1, 5)
        house.clock.us += 10_000
        house.say(2, 8)
        assert house.told("hold") == both(1, 5)
        assert house.told("admit") == both(2, 8)
        house.say(2, 8, ended=True)
        assert house.told("admit") == both(1, 5)
        house.say(2, 9)
        assert house.told("hold") == both(1, 5)
        assert house.told("admit") == both(2, 9)
        house.say(1, 5, ended=True)  # its rank 0 had: the others go on to their ends
        assert house.told("admit") == both(1, 5)
    finally:
        house.admission.stop()
        house.regulator.stop()


def test_who_never_says_that_it_has_ended_keeps_the_other_for_twice_its_time(house: AdmissionHouse) -> None:
    for job in (1, 2):
        house.run(job)
    house.show()
    house.say(1, 1)
    assert house.told("admit") == both(1, 1)
    house.say(2, 1)
    house.clock.us += FACTOR * 40_000 + SLACK_US
    assert house.told("admit") == both(2, 1)


def test_jobs_without_a_profile_or_on_their_own_do_not_ask(house: AdmissionHouse) -> None:
    house.run(1)
    house.run(2, traffic=None)
    house.run(3, traffic=None, low_comm=True)
    house.show()
    house.run(4)
    house.show()
    assert {house.told("admission") == both(job, MOST_US) for job in (1, 4)} == {True}
    assert not house.hosts.untaken("admission")


def test_who_remains_alone_asks_no_longer(house: AdmissionHouse) -> None:
    for job in (1, 2):
        house.run(job)
    house.show()
    for _ in range(2):
        house.told("admission")
    for rank, host in enumerate(("a", "b")):
        house.do(ev.TaskExited(2, 1, host, rank, 0, 0, 1, house.clock.us))
    house.show()
    calls = [house.hosts.take("admission") for _ in range(4)]  # the hosts of the one that has ended, too
    assert {(c.args["job"], c.host, c.args["most_us"]) for c in calls} == {
        (job, host, 0) for job in (1, 2) for host in ("a", "b")
    }


def test_a_host_that_says_hello_again_is_told_again(house: AdmissionHouse) -> None:
    for job in (1, 2):
        house.run(job)
    house.show()
    for _ in range(2):
        house.told("admission")
    house.clock.us += 1_000
    house.do(ev.HostUp("a", "boot", "1"))
    house.show()
    assert {house.hosts.take("admission", "a").args["job"] for _ in range(2)} == {1, 2}


def test_an_old_attempt_s_words_are_answered_to_nobody(house: AdmissionHouse) -> None:
    for job in (1, 2):
        house.run(job)
    house.show()
    house.say(1, 1, attempt=7)
    house.say(1, 2)
    assert house.told("admit") == both(1, 2)


def test_which_policies_act_on_hosts() -> None:
    # as the daemon holds them: within what keeps their defects
    acts = {
        name: admits(
            guarded(load("queue", "fifo"), load("placement", "zone"), load("comm", name), Faults())[2]
        )
        for name in ("srsf-n", "adadual", "preemptive", "none", "metronome")
    }
    assert acts == {"srsf-n": True, "adadual": True, "preemptive": True, "none": False, "metronome": False}


def test_without_a_policy_that_admits_nobody_asks() -> None:
    house = House()
    admission = Admission(policy=None, agents=house.hosts, clock=house.clock, epoch=EPOCH)
    admission.start()
    for job in (1, 2):
        house.run(job)
    admission.aligned(NOTHING_TO_ALIGN, house.state)
    admission.stop()
    house.regulator.stop()
    assert not house.hosts.untaken("admission")


def test_what_a_job_says_without_end_keeps_no_other_job_from_being_heard() -> None:
    """A host may say anything of its own jobs, and as often as it likes."""
    house = House()
    admission = Admission(policy=SrsfN(), agents=house.hosts, clock=house.clock, epoch=EPOCH)
    heard: list[int] = []
    hear = admission._hear

    def noted(admitting: Admitting, message: Communication) -> Iterable[Order]:
        heard.append(message.job)
        return hear(admitting, message)

    admission._hear = noted  # type: ignore[assignment, method-assign]
    for job, times in ((1, 100_000), (2, 1)):
        message = said("communication", job=job, attempt=1, number=1, ended=False)
        assert isinstance(message, Communication)
        for _ in range(times):
            admission.communication(message)  # its thread does not run yet
    admission.start()
    admission.stop()
    assert heard == [1] * WORDS_MAX + [2]
    house.regulator.stop()


def test_a_host_that_answers_no_order_is_sent_a_bounded_number(house: AdmissionHouse) -> None:
    house.run(1)
    house.run(2)
    house.show()
    for _ in range(2):
        house.told("admission")
    for number in range(1, 2 * ORDERS_MAX):
        house.say(1, number)
        house.hosts.take("admit", "a").answer()  # and nothing comes from the other one
        house.say(1, number, ended=True)
    assert len(house.hosts.untaken("admit")) == ORDERS_MAX
    for _ in range(ORDERS_MAX):
        house.hosts.take("admit", "b").answer()
    house.say(1, 1_000)
    assert house.told("admit") == both(1, 1_000)


def test_a_host_that_refuses_every_order_fills_no_log(
    house: AdmissionHouse, caplog: pytest.LogCaptureFixture
) -> None:
    house.run(1)
    house.run(2)
    house.show()
    for _ in range(2):
        house.told("admission")
    for number in range(1, 101):
        house.say(1, number)
        house.hosts.take("admit", "a").answer()
        house.hosts.take("admit", "b").refuse(Code.NO_SUCH_TASK)
        house.say(1, number, ended=True)
    assert 0 < len(caplog.records) <= REFUSALS + 5
