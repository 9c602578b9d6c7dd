"""A journal replayed makes equal decisions; a changed one, or a changed policy, does not."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rm.adapters.store.opening import open_store
from rm.core.jobs import events as ev
from rm.core.jobs.state import ClusterState
from rm.core.journal import journal
from rm.core.journal.journal import Chosen, parse
from rm.core.journal.plain import from_plain, to_plain
from rm.core.journal.starting_point import FOUND_AGAIN, dump_state, jobs_to_plain
from rm.core.model.job import Job
from rm.core.registry import KINDS, names, options_in_force
from rm.core.scheduling.cycle import Cycle
from rm.core.store import START, STEP, Batch, Entry
from rm.errors import RmError, StoreError, UsageError
from rm.sim.journal_source import export, open_journal
from rm.sim.replay import verify
from tests import builders
from tests.examples import seeds
from tests.sim.modelled.leader import S
from tests.sim.world import World

Entries = list[tuple[int, Entry]]
BESIDE_EXCLUSIVE = 8  # a seed in which others run on the host of an exclusive job that stands still for them
CHOICES = [
    ("fifo", "first-fit", "none"),
    ("srsf", "zone", "metronome"),
    ("las", "metronome", "metronome"),
    ("priority", "zone", "none"),
]


@pytest.fixture(autouse=True, scope="module")
def _many_starts() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal, "START_EVERY_US", 25 * S)
        yield


def chosen(names: tuple[str, str, str]) -> dict[str, Chosen]:
    return dict(zip(KINDS, map(Chosen, names), strict=True))


def played(seed: int, names: tuple[str, str, str] = CHOICES[1]) -> World:
    world = World(seed, hosts=4, jobs=20, journalled=chosen(names))
    world.run()
    return world


@cache
def journal_of(seed: int, names: tuple[str, str, str] = CHOICES[1]) -> Entries:
    """Of a world that many tests read; who changes entries takes them through JSON."""
    return played(seed, names).db.journal


def test_a_start_has_each_job_whole_whether_or_not_it_shares_its_specification() -> None:
    shared = builders.spec(ntasks=2)
    jobs = [
        Job(1, shared, 0),
        Job(2, shared, 5, held=True),
        Job(3, builders.spec(ntasks=2), 0),
        Job(4, builders.spec(), 0),
    ]
    plain = jobs_to_plain(jobs)
    assert plain == [to_plain(job) for job in jobs]
    assert [from_plain(Job, one).id for one in plain] == [1, 2, 3, 4]


def through_json(entries: Entries) -> Entries:
    return [(s, replace(e, body=json.loads(msgspec.json.encode(e.body)))) for s, e in entries]


@pytest.mark.parametrize("seed", [*seeds(8, least=len(CHOICES)), BESIDE_EXCLUSIVE])
def test_whatever_failed_the_journal_replays_to_equal_plans(seed: int) -> None:
    entries = through_json(journal_of(seed, CHOICES[seed % len(CHOICES)]))
    verdict = verify(entries)
    assert verdict.difference is None
    starts = [e for _, e in entries if e.kind == START]
    assert verdict.starts == len(starts) > 1
    assert verdict.steps == sum(e.kind == STEP for _, e in entries) > 100
    assert verdict.placed >= 15


def test_daemons_died_and_others_led_for_longer() -> None:
    resumed = [e.body["resumed"] for _, e in journal_of(5) if e.kind == START]
    assert resumed.count(True) > 1
    assert resumed.count(False) > 1


def without_measurements(body: dict[str, Any]) -> None:
    body["events"] = [e for e in body.get("events", []) if not isinstance(e, list)]


def without_progress(body: dict[str, Any]) -> None:
    body["events"] = [
        e for e in body.get("events", []) if isinstance(e, list) or e["event"] != "JobsProgressed"
    ]


@pytest.mark.parametrize(
    ("names", "spoil"),
    [(("srsf", "zone", "none"), without_measurements), (("las", "first-fit", "none"), without_progress)],
)
def test_it_would_not_without_what_the_policies_decide_by(
    names: tuple[str, str, str], spoil: Callable[[dict[str, Any]], None]
) -> None:
    for seed in range(4):
        entries = through_json(journal_of(seed, names))
        assert verify(entries).difference is None
        for _, entry in entries:
            spoil(entry.body)
        if verify(entries).difference is not None:
            return
    raise AssertionError("no seed needs it")


def test_another_policy_decides_otherwise_and_the_first_difference_is_told() -> None:
    entries = through_json(journal_of(3, ("fifo", "first-fit", "none")))
    for _, entry in entries:
        if entry.kind == START:
            entry.body["policies"]["placement"] = {"name": "zone"}
    difference = verify(entries).difference
    assert difference is not None
    assert re.fullmatch(
        r"job \d+ was (not )?placed( on [h\d, ]+)? then, and (is placed on [h\d, ]+|waits.*) now",
        difference.what,
    )
    assert difference.rm == "of this test"
    assert any(s == difference.seq and e.at_us == difference.at_us for s, e in entries)


def test_a_plan_that_differs_in_its_actions_alone_is_a_difference() -> None:
    entries = through_json(journal_of(1))
    spoilt = next(e for _, e in entries if "plan" in e.body and "decided" not in e.body)
    spoilt.body["plan"] = "0" * 12
    difference = verify(entries).difference
    assert difference is not None
    assert "the actions or the alignment" in difference.what


def test_a_state_that_came_out_otherwise_is_a_difference() -> None:
    entries = through_json(journal_of(1))
    resumed = next(e for _, e in entries if e.kind == START and e.body["resumed"])
    resumed.body["state"]["zones"][0]["delay_us"] = 77
    difference = verify(entries).difference
    assert difference is not None
    assert re.match(r"the state's zones differ: .*77.* then", difference.what)


# -- the entries -------------------------------------------------------------------------------------


def test_every_field_of_the_state_is_written_or_found_again() -> None:
    written = set(dump_state(ClusterState(), 0))
    assert written | FOUND_AGAIN == {f.name for f in fields(ClusterState)}
    assert not written & FOUND_AGAIN


def test_a_cycle_that_starts_over_is_a_new_one_on_the_same_state() -> None:
    cycle = played(2).cycle
    cycle.start_over(aligned=False)
    fresh = Cycle(cycle.state, cycle.policies, cycle.rules, cycle.tuning)
    for field in fields(Cycle):
        assert getattr(cycle, field.name) == getattr(fresh, field.name), field.name


def test_a_start_gives_the_state_back_and_nobodys_script() -> None:
    entries = journal_of(2)
    for _, entry in through_json(entries):
        if entry.kind == START:
            start = parse(entry)
            assert isinstance(start, journal.Start)
            assert json.loads(json.dumps(dump_state(start.state, entry.at_us))) == entry.body["state"]
            assert start.state.pending.keys() <= start.state.jobs.keys()
    assert "#!/bin/sh" not in json.dumps([e.body for _, e in entries])


@pytest.mark.parametrize("kind", sorted(journal.EVENTS))
def test_every_kind_of_event_can_be_written_and_read(kind: str) -> None:
    """With each field at a made-up value, and with the defaults where there are some."""
    event = builders.filled(journal.EVENTS[kind])
    plain = json.loads(json.dumps(journal.event_to_plain(event, 5)))
    if kind == "JobSubmitted":
        event = replace(
            event, spec=replace(event.spec, script="", script_args=(), env=(), submit_line="", script_path="")
        )
    if kind == "TaskExited":
        event = replace(event, used=None, whole=None)  # no decision depends on what it used
    if kind == "JobsRecalled":
        event = journal.event_from_plain(plain, 5)  # as it is read: without what decides nothing
        plain = json.loads(json.dumps(journal.event_to_plain(event, 5)))
    if kind == "HostAdded":
        kept = replace(event.host, variables=(("rm_leaf", "a"),))
        given = replace(event.host, variables=(("rm_leaf", "a"), ("ansible_become_password", "secret")))
        assert "secret" not in str(journal.event_to_plain(ev.HostAdded(given), 5))
        plain, event = journal.event_to_plain(ev.HostAdded(given), 5), ev.HostAdded(kept)
    assert journal.event_from_plain(plain, 5) == event


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in KINDS for name in names(kind)])
def test_the_options_of_every_policy_can_be_written_and_taken_again(kind: str, name: str) -> None:
    options = options_in_force(kind, name)
    again = json.loads(msgspec.json.encode(to_plain(options)))
    assert options_in_force(kind, name, again) == options


@pytest.mark.parametrize(
    ("plain", "sentence"),
    [
        ({"name": "h"}, "Host lacks"),
        ({"name": "h", "zone": "z", "address": 7}, "Host.address: 7 is not str"),
        ({"name": "h", "zone": "z", "address": "a", "gpus": {}}, "Host.gpus: .* is not a list"),
        (3, "3 is not an object"),
    ],
)
def test_what_is_not_such_a_value_is_said(plain: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        from_plain(type(builders.host("h")), plain)


def test_fields_of_another_version_do_no_harm() -> None:
    host = builders.host("h", gpus=2)
    assert from_plain(type(host), to_plain(host) | {"retired": 1}) == host


# -- where it is read from ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Still open, as of a running daemon; each step was committed by itself."""
    file = tmp_path_factory.mktemp("journal") / "rm.sqlite3"
    store = open_store(f"sqlite:///{file}")
    store.acquire_lease("me", 0, 1)
    for version, (_, entry) in enumerate(journal_of(5)):
        store.commit(Batch(events=(entry,)), version)
    yield file
    store.close()


@pytest.fixture(params=["database", "file", "compressed file"])
def place(request: pytest.FixtureRequest, database: Path, tmp_path: Path) -> tuple[str, Entries]:
    """A journal as operators have it, and its entries."""
    entries = through_json(journal_of(5))
    if request.param == "database":
        return str(database), entries
    exported = tmp_path / ("week.jsonl.gz" if "compressed" in request.param else "week.jsonl")
    assert export(open_journal(f"sqlite:///{database}"), exported, 0, "test") == len(entries)
    return str(exported), entries


def test_a_database_and_what_is_exported_from_it_are_the_same_journal(place: tuple[str, Entries]) -> None:
    where, entries = place
    source = open_journal(where)
    assert [e for _, e in source.entries()] == [e for _, e in entries]
    assert [at_us for _, at_us in source.starts()] == [e.at_us for _, e in entries if e.kind == START]
    assert verify(source.entries()).difference is None
    later = source.starts()[-1][0]
    assert [s for s, _ in source.entries(later)] == [s for s, _ in source.entries() if s >= later]


def test_a_file_that_was_cut_off(database: Path, tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    export(open_journal(str(database)), whole, 0, "test")
    lines = whole.read_bytes().splitlines(keepends=True)
    for text, sentence in (
        (b"".join(lines[:-1]), r"was cut off after \d+ entries\. Export it again"),
        (b"".join(lines[:10]) + lines[10][:20], "Line 11 .* is damaged"),
        (b"".join(lines[:10] + lines[11:]), "Entries of the journal are missing before entry 11"),
        (b"".join(lines[:-3] + lines[-1:]), r"was cut off after \d+ entries of \d+"),
        (b'{"seq":1}\n', "neither a database nor an exported journal"),
        (b"SLURM\n", "neither a database nor an exported journal"),
        (lines[0].replace(b'"format":1', b'"format":2') + lines[-1], "has format 2, and this rm reads 1"),
    ):
        cut.write_bytes(text)
        with pytest.raises(StoreError, match=sentence):
            verify(open_journal(str(cut)).entries())
    packed = tmp_path / "cut.gz"
    packed.write_bytes(gzip.compress(whole.read_bytes())[:2000])
    with pytest.raises(StoreError, match=r"cannot be read: .*Export it again"):
        verify(open_journal(str(packed)).entries())


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"body": {"n": 1, "events": [{"event": "Vanished"}]}}, "there is no event 'Vanished'"),
        ({"body": {"n": 1, "events": [{"event": "HostUp", "host": "h"}]}}, "HostUp lacks boot_id"),
        ({"body": {}}, "A step of the journal is damaged: 'n'"),
    ],
)
def test_a_damaged_entry_is_said(change: dict[str, Any], sentence: str) -> None:
    entries = through_json(journal_of(5))
    entries[1] = (entries[1][0], replace(entries[1][1], **change))
    with pytest.raises(StoreError, match=sentence):
        verify(entries)


def test_a_journal_without_a_start_or_without_this_policy() -> None:
    entries = through_json(journal_of(5))
    with pytest.raises(StoreError, match="no start to replay from"):
        verify([(s, e) for s, e in entries if e.kind != START])
    entries[0][1].body["policies"]["queue"] = {"name": "astrology"}
    with pytest.raises(RmError, match="no queue policy 'astrology'"):
        verify(entries)


def test_a_place_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        open_journal(str(tmp_path / "nothing"))
    with pytest.raises(UsageError, match=f"The journal {tmp_path}/nothing cannot be read"):
        open_journal(f"sqlite:///{tmp_path}/nothing")
