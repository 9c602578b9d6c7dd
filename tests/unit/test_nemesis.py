"""The benchmark of faults judges rightly, by itself, and its faults follow from the seed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bench.nemesis import oracle
from bench.nemesis.faults import Played
from bench.nemesis.ledger import Ledger, Order
from bench.nemesis.oracle import Silence, Told
from bench.nemesis.plan import KINDS, Fault, faults, kinds
from bench.nemesis.recovery import recoveries

LOGS = (oracle.printed("one", 0),)
DONE = Told("one", "COMPLETED", 1, 0, LOGS)
LIFE = ["S 100.0 h1 0,1 2", "B 100.5", "E 101.0 0"]


def found(
    tmp_path: Path,
    notes: dict[str, list[str]],
    told: Told | None = DONE,
    silences: tuple[Silence, ...] = (),
    again: tuple[str, ...] = (),
    **order: object,
) -> dict[str, list[str]]:
    """What the oracle finds of job 1, of one rank, acknowledged at 99."""
    for name, lines in notes.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    ledger = Ledger()
    values = {"id": 1, "name": "one", "ranks": 1, "ends": 0, "acked": 99.0, **order}
    ledger.add([Order(**values)], 98.9, "a")  # type: ignore[arg-type]
    ledger.again += again
    ref = ledger.orders[next(iter(ledger.orders))].ref
    told_of = {} if told is None else {ref: told}
    return dict(oracle.judge(ledger, oracle.read(tmp_path), told_of, silences, 20.0, 4).found)


def test_a_job_that_ran_once_is_sound(tmp_path: Path) -> None:
    assert found(tmp_path, {"1.1.0": LIFE}) == {}


@pytest.mark.parametrize(
    ("notes", "told", "kind"),
    [
        ({"1.1.0": LIFE}, None, oracle.LOST),
        ({}, DONE, oracle.LOST),
        ({"1.1.0": LIFE[:2]}, DONE, oracle.LOST),
        ({"1.1.0": LIFE}, Told("other", "COMPLETED", 1, 0, LOGS), oracle.LOST),
        ({"1.1.0": LIFE}, Told("one", "CANCELLED", 1, None), oracle.LOST),
        ({"1.1.0": LIFE}, Told("one", "RUNNING", 1, None), oracle.STUCK),
        ({"1.1.0": LIFE + LIFE}, DONE, oracle.DOUBLED),
        ({"1.1.0": LIFE, "1.2.0": ["S 102.0 h2 - 1", "E 103.0 0"]}, Told("one", "COMPLETED", 2, 0, LOGS),
         oracle.DOUBLED),
        ({"1.1.0": LIFE}, Told("one", "FAILED", 1, 3), oracle.CODES),
        ({"1.1.0": LIFE}, Told("one", "COMPLETED", 1, 0, ("first line of one, rank 0\n",)), oracle.LOGS),
        ({"1.1.0": LIFE}, Told("one", "COMPLETED", 1, 0, (None,)), oracle.LOGS),
        ({"1.1.0": LIFE, "2.1.0": ["S 100.9 h1 1 1", "E 102.0 0"]}, DONE, oracle.GPUS),
        ({"1.1.0": LIFE, "2.1.0": ["S 100.9 h1 - 3", "E 102.0 0"]}, DONE, oracle.CPUS),
    ],
)  # fmt: skip
def test_each_kind_of_fault_is_found(
    tmp_path: Path, notes: dict[str, list[str]], told: Told | None, kind: str
) -> None:
    assert found(tmp_path, notes, told).keys() == {kind}


def test_a_second_attempt_needs_a_cause(tmp_path: Path) -> None:
    notes = {"1.1.0": ["S 100.0 h1 - 1", "B 101.0"], "1.2.0": ["S 125.0 h2 - 1", "E 126.0 0"]}
    told = Told("one", "COMPLETED", 2, 0, LOGS)
    assert list(found(tmp_path, notes, told)) == [oracle.DOUBLED]
    assert found(tmp_path, notes, told, (Silence("h1", 101.0, 130.0),)) == {}
    assert list(found(tmp_path, notes, told, (Silence("h2", 101.0, 130.0),))) == [oracle.DOUBLED]
    assert found(tmp_path, notes, told, requeues=[124.0]) == {}


def test_a_rank_that_did_not_start_was_on_a_host_that_may_have_suffered(tmp_path: Path) -> None:
    notes = {"1.1.1": ["S 100.0 h1 - 1", "T 100.1"]}
    notes |= {f"1.2.{rank}": ["S 104.0 h1 - 1", "E 106.0 0"] for rank in (0, 1)}
    told = Told("one", "COMPLETED", 2, 0, tuple(f"first line of one, rank {n}\nlast line of one, rank {n}\n"
                                               for n in (0, 1)))  # fmt: skip
    assert list(found(tmp_path, notes, told, ranks=2)) == [oracle.DOUBLED]
    assert found(tmp_path, notes, told, (Silence("h2", 95.0, 102.0),), ranks=2) == {}


def test_two_attempts_side_by_side_are_doubled_unless_the_host_was_given_up(tmp_path: Path) -> None:
    notes = {"1.1.0": ["S 100.0 h1 - 1", "B 130.0"], "1.2.0": ["S 125.0 h2 - 1", "E 126.0 0"]}
    told = Told("one", "COMPLETED", 2, 0, LOGS)
    assert list(found(tmp_path, notes, told, (Silence("h1", 101.0, 131.0),))) == [oracle.BESIDE]
    assert list(found(tmp_path, notes, told, (Silence("h1", 101.0, 103.0),))) == [oracle.DOUBLED]


def test_an_early_attempt_that_starts_late_and_a_start_in_hold_or_after_a_cancel_must_not_be(
    tmp_path: Path,
) -> None:
    late = {"1.1.0": ["S 130.0 h1 - 1", "E 131.0 0"], "1.2.0": ["S 125.0 h2 - 1", "E 126.0 0"]}
    told, silence = Told("one", "COMPLETED", 2, 0, LOGS), (Silence("h1", 101.0, 130.0),)
    assert oracle.DOUBLED in found(tmp_path, late, told, silence)
    (tmp_path / "1.2.0").unlink()
    assert list(found(tmp_path, {"1.1.0": LIFE}, held=True, release_sent=100.5)) == [oracle.DOUBLED]
    cancelled = {"cancel_sent": 90.0, "cancel_acked": 91.0}
    assert list(found(tmp_path, {"1.1.0": LIFE}, **cancelled)) == [oracle.AFTER]
    assert found(tmp_path, {"1.1.0": LIFE}, **cancelled, requeues=[95.0]) == {}
    assert list(found(tmp_path, {"1.1.0": LIFE}, again=("1",))) == [oracle.DOUBLED]


def test_a_host_that_thaws_may_begin_a_cancelled_job_and_must_end_it(tmp_path: Path) -> None:
    told, cancelled = Told("one", "CANCELLED", 1, None), {"cancel_sent": 90.0, "cancel_acked": 91.0}
    ended, frozen = {"1.1.0": LIFE[:2]}, Silence("h1", 89.0, 99.5)
    assert found(tmp_path, ended, told, (frozen,), **cancelled) == {}
    assert list(found(tmp_path, ended, told, (Silence("h1", 89.0, 93.0),), **cancelled)) == [oracle.AFTER]
    assert list(found(tmp_path, ended, told, (Silence("h2", 89.0, 99.5),), **cancelled)) == [oracle.AFTER]
    assert list(found(tmp_path, {"1.1.0": LIFE}, told, (frozen,), **cancelled)) == [oracle.AFTER]


def test_a_log_may_lack_what_was_printed_on_a_full_disk_when_it_says_so(tmp_path: Path) -> None:
    said = ("first line of one, rank 0\n\n[rm: 25 bytes of output are not kept here: No space left]\n",)
    told, notes = Told("one", "COMPLETED", 1, 0, said), {"1.1.0": LIFE}
    assert list(found(tmp_path, notes, told)) == [oracle.LOGS]
    assert list(found(tmp_path, notes, told, (Silence("h1", 100.5, 105.0),))) == [oracle.LOGS]
    full = Silence("h1", 100.5, 105.0, disk_full=True)
    assert found(tmp_path, notes, told, (full,)) == {}
    assert list(found(tmp_path, notes, Told("one", "COMPLETED", 1, 0, ("",)), (full,))) == [oracle.LOGS]


def test_the_oracle_uses_nothing_of_rm() -> None:
    program = "import sys, bench.nemesis.oracle; print([m for m in sys.modules if m.split('.')[0] == 'rm'])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_seed_gives_the_faults_and_no_target_has_two_at_a_time() -> None:
    hosts, daemons = ["h1", "h2", "h3", "h4"], ["a", "b"]
    for database in ("postgresql", "sqlite"):
        plan = faults(7, 3600, database, hosts, daemons)
        assert plan == faults(7, 3600, database, hosts, daemons) != faults(8, 3600, database, hosts, daemons)
        assert {fault.kind for fault in plan} == {kind.name for kind in kinds(database)}
        for number, fault in enumerate(plan):
            assert fault.ends_s < 3600
            for other in plan[:number]:
                assert other.at_s <= fault.at_s
                assert other.target != fault.target or other.ends_s < fault.at_s
    assert {k.name for k in kinds("sqlite")} | {k.name for k in kinds("postgresql")} == {
        k.name for k in KINDS
    }


def test_recovery_counts_what_was_asked_for_after_the_fault() -> None:
    struck = Played(Fault(0, "daemon killed", "a", 0), 100.0, 100.0, led=True)
    beside = Played(Fault(0, "daemon killed", "b", 0), 200.0, 200.0, led=False)
    acks = [(99.9, 100.1, "a"), (100.2, 104.0, "b"), (104.0, 104.1, "b")]
    (only,) = recoveries([struck, beside], acks, [(99.0, 2), (103.0, 1), (105.0, 2)], 2)
    assert (only.what, only.acks_s, only.hosts_s) == ("daemon killed", [4.0], [5.0])


def chained(tmp_path: Path, kind: str, notes: dict[str, list[str]], told: dict[str, Told]) -> list[str]:
    """The kinds of findings of job 2, which waits for both elements of array 1."""
    for name, lines in notes.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    ledger = Ledger()
    orders = [Order(1, "one", 1, 0, 99.0, element=element) for element in (0, 1)]
    ledger.add([*orders, Order(2, "one", 1, 0, 99.5, after=(kind, ("1_0", "1_1")))], 98.9, "a")
    return sorted(oracle.judge(ledger, oracle.read(tmp_path), told, (), 20.0, 4).found)


def life(begun: float, ended: float, code: int = 0) -> list[str]:
    return [f"S {begun} h1 - 1", f"E {ended} {code}"]


BOTH = {"1_0.1.0": life(100, 101), "1_1.1.0": life(100, 103)}
ALL_DONE = dict.fromkeys(("1_0", "1_1", "2"), DONE)
GIVEN_UP = Told("one", "CANCELLED", 0, None)


def test_elements_and_what_waits_for_them_are_sound(tmp_path: Path) -> None:
    assert chained(tmp_path, "afterok", {**BOTH, "2.1.0": life(103.1, 104)}, ALL_DONE) == []


@pytest.mark.parametrize(
    ("kind", "notes", "told", "findings"),
    [
        ("afterok", {**BOTH, "2.1.0": life(102, 104)}, ALL_DONE, [oracle.EARLY]),
        ("afterany", {**BOTH, "2.1.0": life(102, 104)}, ALL_DONE, [oracle.EARLY]),
        ("afternotok", {**BOTH, "2.1.0": life(104, 105)}, ALL_DONE, [oracle.EARLY]),
        ("afterany", {"1_0.1.0": life(100, 101), "2.1.0": life(104, 105)}, ALL_DONE, [oracle.LOST]),
        ("afterok", BOTH, {**ALL_DONE, "2": GIVEN_UP}, [oracle.LOST]),
        ("afternotok", BOTH, {**ALL_DONE, "2": GIVEN_UP}, []),
        ("afterok", BOTH, {**ALL_DONE, "1_1": GIVEN_UP, "2": GIVEN_UP}, [oracle.LOST]),
        ("afterok", {**BOTH, "1_1.1.0": life(102, 103)}, {"1_0": DONE, "2": GIVEN_UP}, [oracle.LOST]),
    ],
)  # fmt: skip
def test_each_fault_of_elements_and_chains_is_found(
    tmp_path: Path, kind: str, notes: dict[str, list[str]], told: dict[str, Told], findings: list[str]
) -> None:
    assert chained(tmp_path, kind, notes, told) == findings


def test_an_element_that_starts_twice_is_found(tmp_path: Path) -> None:
    notes = {**BOTH, "1_1.1.0": life(100, 101) * 2, "2.1.0": life(103.1, 104)}
    assert chained(tmp_path, "afterok", notes, ALL_DONE) == [oracle.DOUBLED]
