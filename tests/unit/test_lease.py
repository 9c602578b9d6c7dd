"""Who leads: no wall clock counts, and a lease that cannot be renewed runs out in time."""

from __future__ import annotations

import threading

import pytest

from rm.adapters.store.memory import MemoryDatabase, MemoryStore
from rm.core.store import Batch, Lease
from rm.daemon.leading import lease as lease_module
from rm.daemon.leading.lease import HeldLease, Standby, patiently
from rm.errors import StoreError, StoreUnavailable
from tests.fakes import Inbox, ManualClock

LEASE_US = 4_000_000


class AbsentStore(MemoryStore):
    absent = False

    def renew_lease(self, now_us: int, ttl_us: int) -> bool:
        if self.absent:
            raise StoreUnavailable("The database is away.")
        return super().renew_lease(now_us, ttl_us)

    def lease(self) -> Lease:
        if self.absent:
            raise StoreUnavailable("The database is away.")
        return super().lease()


class Machine:
    """One daemon's machine: a store, a wall clock and a monotonic one of its own."""

    def __init__(self, db: MemoryDatabase, holder: str, wall_us: int = 0) -> None:
        self.store = AbsentStore(db)
        self.clock = ManualClock()
        self.clock.us = wall_us
        self.now = 1000.0
        self.standby = Standby(self.store, self.clock, holder, LEASE_US, lambda: self.now)

    def leads(self) -> HeldLease:
        held = self.standby.look()
        assert held is not None
        return held

    def waits(self, seconds: int) -> None:
        """Looks each second, and does not lead yet."""
        for _ in range(seconds):
            self.now += 1
            assert self.standby.look() is None


def watched() -> tuple[Machine, HeldLease, Machine]:
    """One that leads, and a standby that has seen that."""
    db = MemoryDatabase()
    one, two = Machine(db, "one"), Machine(db, "two")
    held = one.leads()
    assert two.standby.look() is None
    return one, held, two


@pytest.mark.parametrize("ahead_us", [0, 3_600_000_000, -3_600_000_000])
def test_a_standby_leads_when_no_renewal_came_for_the_time_of_the_lease(ahead_us: int) -> None:
    db = MemoryDatabase()
    one, two = Machine(db, "one", 10**12), Machine(db, "two", 10**12 + ahead_us)
    held = one.leads()
    for _ in range(20):  # it is renewed: nobody else leads, whatever the clocks say
        one.now, two.now, one.clock.us = one.now + 1, two.now + 1, one.clock.us + 1_000_000
        assert held.renew()
        assert two.standby.look() is None
    two.waits(3)
    two.now += 1
    assert two.leads().epoch == 2
    assert not held.renew()


def test_a_restarted_daemon_leads_at_once_and_one_that_gave_the_lease_back_is_followed_at_once() -> None:
    db = MemoryDatabase()
    assert Machine(db, "one").leads().epoch == 1
    again = Machine(db, "one")
    assert again.leads().epoch == 2
    again.store.release_lease()
    assert Machine(db, "two").leads().epoch == 3


def test_a_lease_is_given_back_and_a_database_that_stands_still_keeps_no_daemon_from_ending(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    db, answers = MemoryDatabase(), threading.Event()
    one = Machine(db, "one")
    one.leads().give_back()
    two = Machine(db, "two").leads()
    assert two.epoch == 2  # at once
    asked: list[threading.Thread] = []

    def stands_still(store: MemoryStore) -> None:
        asked.append(threading.current_thread())
        answers.wait()

    monkeypatch.setattr(AbsentStore, "release_lease", stands_still)
    two.give_back(at_most_s=0.05)
    assert asked[0].daemon  # the process ends without it
    assert "has not answered for 0.05 s" in caplog.text
    answers.set()


def test_a_lease_with_a_longer_time_is_waited_for_that_long() -> None:
    db = MemoryDatabase()
    assert MemoryStore(db).acquire_lease("one", 0, 10 * LEASE_US) == 1
    two = Machine(db, "two")
    assert two.standby.look() is None
    for _ in range(9):
        two.now += LEASE_US / 1e6
        assert two.standby.look() is None
    two.now += LEASE_US / 1e6
    assert two.leads().epoch == 2


def test_a_commit_is_a_sign_of_life() -> None:
    db = MemoryDatabase()
    one, two = Machine(db, "one"), Machine(db, "two")
    one.leads()
    for version in range(20):
        two.now += 1
        assert two.standby.look() is None
        one.store.commit(Batch(), version)
    two.waits(4)
    two.now += 1
    assert two.leads().epoch == 2


def test_time_without_a_database_is_not_the_leaders_silence() -> None:
    _, _, two = watched()
    two.now += 30  # it answered nobody
    assert two.standby.look() is None
    two.waits(3)
    two.now += 1
    assert two.leads().epoch == 2


def test_a_standby_that_got_no_processor_goes_on_where_it_was() -> None:
    """It reads the state ahead meanwhile, which takes the processor where a great many jobs wait."""
    _, _, two = watched()
    two.waits(3)
    two.now += 30  # it did not ask: nobody knows what the leader did
    assert two.standby.look() is None
    two.now += 1
    assert two.leads().epoch == 2


def test_a_standby_whose_every_look_is_late_takes_over_at_last() -> None:
    """Each late look counts as a pause between two looks does, a twentieth of the lease, and no more."""
    one, held, two = watched()
    for _ in range(30):  # of a leader that renews it sees no silence, however late it looks
        two.now, one.clock.us = two.now + 2, one.clock.us + 2_000_000
        assert held.renew()
        assert two.standby.look() is None
    late = 0
    while (taken := two.standby.look()) is None:
        two.now, late = two.now + 2, late + 1
        assert late <= 21
    assert late >= 20
    assert taken.epoch == 2
    assert not held.renew()


def test_a_database_that_refused_meanwhile_gives_the_leader_all_its_time() -> None:
    _, _, two = watched()
    two.waits(3)
    two.store.absent = True
    for _ in range(30):
        two.now += 1
        with pytest.raises(StoreUnavailable):
            two.standby.look()
    two.store.absent = False
    for _ in range(4):
        assert two.standby.look() is None
        two.now += 1
    assert two.leads().epoch == 2


def test_a_leader_that_missed_renewals_is_not_named_any_more() -> None:
    _, _, two = watched()
    assert (two.standby.leader.holder, two.standby.is_silent) == ("one", False)
    two.now += 1.5
    assert two.standby.look() is None
    assert (two.standby.leader.holder, two.standby.is_silent) == ("", True)


def test_a_leader_that_is_cut_off_stops_acting_before_another_can_lead(
    caplog: pytest.LogCaptureFixture,
) -> None:
    db = MemoryDatabase()
    one, two = Machine(db, "one"), Machine(db, "two")
    held = one.leads()
    one.store.absent = True
    assert two.standby.look() is None
    for _ in range(16):
        one.now, two.now = one.now + 0.25, two.now + 0.25
        with pytest.raises(StoreUnavailable):
            held.renew()
        if held.holds:
            assert two.standby.look() is None
    held.watch()
    held.watch()
    assert caplog.text.count("another daemon may lead") == 1
    assert not held.holds
    one.store.absent = False
    assert held.renew()  # nobody took it meanwhile: it goes on
    assert held.holds
    held.watch()
    assert "still leads with epoch 1" in caplog.text


def test_a_slow_renewal_counts_from_when_it_was_begun() -> None:
    machine = Machine(MemoryDatabase(), "one")
    held = machine.leads()
    renew = machine.store.renew_lease

    def slowly(now_us: int, ttl_us: int) -> bool:
        machine.now += 3
        return renew(now_us, ttl_us)

    machine.store.renew_lease = slowly  # type: ignore[method-assign]
    assert held.renew()
    assert held.unconfirmed_s == 3


def test_a_lost_lease_is_told_once_by_the_thread_that_keeps_it() -> None:
    db = MemoryDatabase()
    store, clock = MemoryStore(db), ManualClock()
    held = Standby(store, clock, "one", 40_000).look()
    assert held is not None
    lost = Inbox()
    held.start(lost)
    assert MemoryStore(db).acquire_lease("one", 0, 1) == 2
    assert "Another daemon" in lost.wait(str)
    held.stop()


def test_what_needs_an_absent_database_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_module, "RETRY_S", 0.001)
    answers: list[object] = [StoreUnavailable("away"), StoreUnavailable("away"), 7]

    def work() -> object:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert patiently(work) == 7
    answers += [StoreError("It is damaged.")]
    with pytest.raises(StoreError, match="damaged"):
        patiently(work)
    answers += [StoreUnavailable("away")] * 2
    with pytest.raises(StoreUnavailable):
        patiently(work, lambda: len(answers) < 2)
