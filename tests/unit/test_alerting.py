"""The daemon's part of alerts, over the real leader and store: durable, over restarts, and bad tables."""

import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC
from typing import Any

import pytest

from rm.adapters.store.memory import MemoryDatabase, MemoryStore
from rm.config import AlertsConfig
from rm.core.alerts.channel import NotTold
from rm.core.jobs import events as ev
from rm.core.jobs.state import ClusterState, rebuild
from rm.core.model.host import Host
from rm.core.monitoring.cells import Cell, Status
from rm.core.registry import load
from rm.core.scheduling.cycle import Cycle
from rm.core.scheduling.engine import Policies
from rm.daemon.alerts.alerting import Alerting
from rm.daemon.alerts.setup import channels_of, rules_of
from rm.daemon.leading.inbox import Inbox
from rm.daemon.leading.leader import Leader
from rm.errors import ConfigError
from tests import builders
from tests.fakes import PATIENCE_S, FakeHosts, ManualClock

NAMES = ("a", "b", "c")
S = 1_000_000


class Channel:
    """Hears, or refuses as long as `deaf`."""

    repeat_s = 0.0

    def __init__(self) -> None:
        self.deaf = False
        self.refusals = 0
        self.refused = threading.Semaphore(0)  # the third time
        self.heard: list[Mapping[str, Any]] = []
        self._changed = threading.Condition()

    def tell(self, notice: Mapping[str, Any]) -> None:
        with self._changed:
            if self.deaf:
                self.refusals += 1
                if self.refusals == 3:
                    self.refused.release()
                raise NotTold("deaf")
            self.heard.append(notice)
            self._changed.notify_all()

    def wait(self, count: int) -> list[str]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.heard) >= count, PATIENCE_S), self.heard
            return [n["event"] for n in self.heard]


class NoExecutor:
    def submit(self, intents: object) -> None: ...
    def forget(self, host: str) -> None: ...


class Life:
    """One life of the daemon over a database."""

    def __init__(self, db: MemoryDatabase, clock: ManualClock, channel: Channel, **settings: Any) -> None:
        self.store = MemoryStore(db)
        self.clock = clock
        assert self.store.acquire_lease("here", clock.us, 10**15)
        loaded = self.store.load()
        policies = Policies(load("queue", "fifo"), load("placement", "first-fit"), load("comm", "none"))
        state: ClusterState = rebuild(
            loaded.jobs, loaded.hosts, loaded.zones, {}, loaded.next_job_id, loaded.next_action_id, clock.us
        )
        executor: Any = NoExecutor()
        self.leader = Leader(
            inbox=Inbox(),
            cycle=Cycle(state, policies),
            store=self.store,
            version=loaded.version,
            clock=clock,
            executor=executor,
        )
        self.leader.start(())
        self.hosts = FakeHosts()
        self.bad: set[str] = set()
        self.claimed: set[str] = set()  # the hosts of a pair of which one says that it is bad
        self.bad_status = Status.CRITICAL
        self.forgotten = False
        self.healed = False  # the newest tries are good, which the statuses do not say yet
        self.standings: dict[int, str | None] = {}
        self.checked_us = 0
        self.alerting = Alerting(
            leader=self.leader,
            agents=self.hosts,
            clock=clock,
            cells=self._cells,
            standings=lambda: self.standings,
            windows=(),
            zone=UTC,
            rules=rules_of([{"name": "r", "after_s": 5, "clear_s": 10}], ["hook"]),
            channels={"hook": channel},
            settings=AlertsConfig(**{"attempts": 3, "backoff_s": 0.001, **settings}),
            stored=loaded.documents,
            cluster="here",
            mails=True,
        )

    def _cells(self, hosts: Mapping[str, Host]) -> list[Cell]:
        def status(*pair: str) -> Status:
            return self.bad_status if self.bad & set(pair) or self.claimed == set(pair) else Status.OK

        if self.forgotten:
            return []
        here = [n for n in NAMES if n in hosts]
        directions = [(a, b) for a in here for b in here if a != b]

        def result(*pair: str) -> Status:
            return Status.OK if self.healed else status(*pair)

        checked_us = self.checked_us
        return [
            Cell("m", "loss", *d, status(*d), "loss", 2.0 * bool(status(*d)), checked_us, result(*d))
            for d in directions
        ]

    def look(self, after_s: float = 0) -> list[dict[str, Any]]:
        """All hosts are up, and each was just measured."""
        self.clock.us += round(after_s * S)
        self.checked_us = self.clock.us
        self.alerting.look()
        return list(self.alerting.view()["alerts"])

    def up(self) -> None:
        ups = [ev.HostUp(n, "boot", "0.1") for n in NAMES]
        adds = [ev.HostAdded(builders.host(n)) for n in NAMES]
        self.leader.request(lambda state: [*(a for a in adds if not state.hosts), *ups]).result(PATIENCE_S)

    def host(self, name: str) -> Host:
        host: Host = self.leader.ask(lambda cycle, now_us: cycle.state.hosts[name]).result(PATIENCE_S)
        return host

    def end(self) -> None:
        self.alerting.close()
        self.leader.stop()
        self.store.release_lease()


class World:
    def __init__(self) -> None:
        self.db, self.clock, self.channel = MemoryDatabase(), ManualClock(1_000 * S), Channel()
        self.lives: list[Life] = []

    def life(self, **settings: Any) -> Life:
        if self.lives:
            self.lives[-1].end()
        self.lives.append(Life(self.db, self.clock, self.channel, **settings))
        self.lives[-1].up()
        return self.lives[-1]


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.lives[-1].end()


def test_one_fault_is_told_once_over_restarts(world: World) -> None:
    life = world.life()
    life.bad = {"b"}
    assert [a["state"] for a in life.look()] == ["pending"]
    (alert,) = life.look(after_s=5)
    assert (alert["state"], alert["subject"], alert["hosts"]) == ("firing", "b", ("b",))
    assert world.channel.wait(1) == ["firing"]
    for _ in range(2):
        life = world.life()
        life.bad = {"b"}
        assert [a["state"] for a in life.look(after_s=100)] == ["firing"]
    life = world.life()
    life.look()
    life.look(after_s=10)
    assert world.channel.wait(2) == ["firing", "resolved"]
    assert world.channel.heard[0]["id"] == world.channel.heard[1]["id"]
    life = world.life()
    assert [a["state"] for a in life.look(after_s=1)] == ["resolved"]
    assert len(world.channel.heard) == 2


def test_a_channel_that_forgets_is_told_again_of_what_fires(world: World) -> None:
    world.channel.repeat_s = 60.0
    life = world.life()
    life.bad = {"b"}
    life.look()
    life.look(after_s=5)
    assert world.channel.wait(1) == ["firing"]
    life.look(after_s=50)
    life.look(after_s=10)
    assert world.channel.wait(2) == ["firing"] * 2
    life = world.life()
    life.bad = {"b"}
    life.look(after_s=1)  # a restarted daemon does not know when it was told
    assert world.channel.wait(3) == ["firing"] * 3
    assert len({n["id"] for n in world.channel.heard}) == 1
    life.bad = set()
    life.look()
    life.look(after_s=10)
    life.look(after_s=100)
    life.look(after_s=100)
    assert world.channel.wait(4) == ["firing"] * 3 + ["resolved"]
    life.alerting.close()  # and no more was on its way
    assert len(world.channel.heard) == 4


def test_a_loss_that_becomes_critical_is_told_once_over_restarts(world: World) -> None:
    life = world.life()
    life.bad, life.bad_status = {"b"}, Status.WARN
    life.look()
    (alert,) = life.look(after_s=5)
    assert (alert["state"], alert["level"]) == ("firing", "warn")
    world.channel.wait(1)  # what a life still owes at its end is told with the level of the next one
    for _ in range(2):
        life = world.life()
        life.bad = {"b"}
        life.look()
        (alert,) = life.look(after_s=5)
        assert (alert["state"], alert["level"]) == ("firing", "critical")
        life.look(after_s=100)
        world.channel.wait(2)
    life.bad = set()
    life.look()
    life.look(after_s=10)
    assert world.channel.wait(3) == ["firing", "worsened", "resolved"]
    assert [n["level"] for n in world.channel.heard] == ["warn", "critical", "critical"]
    assert len({n["id"] for n in world.channel.heard}) == 1
    assert len({n["at_us"] for n in world.channel.heard}) == 3


def test_what_was_owed_at_the_end_is_told_in_the_next_life(world: World) -> None:
    life = world.life()
    life.leader.keep(
        (("alert/r/loss/b", {"rule": "r", "condition": "loss", "subject": "b", "fired_us": 5,
                             "owed": [["firing", "hook"]]}),)
    ).result(PATIENCE_S)  # fmt: skip
    life = world.life()
    life.bad = {"b"}
    life.look()
    assert world.channel.wait(1) == ["firing"]
    assert world.channel.heard[0]["id"] == "r/loss/b@5"


def test_what_could_not_be_told_is_told_after_a_restart_and_only_once(world: World) -> None:
    life = world.life(attempts=1_000_000)
    world.channel.deaf = True
    life.bad = {"b"}
    life.look()
    life.look(after_s=5)
    assert world.channel.refused.acquire(timeout=PATIENCE_S)
    for n in range(3):
        life = world.life(attempts=1_000_000)  # the daemon ends while it tries, and starts anew
        world.channel.deaf = n == 0
        life.bad = {"b"}
        (alert,) = life.look(after_s=1)
        assert alert["state"] == "firing"
        if n == 1:
            assert world.channel.wait(1) == ["firing"]
    life.bad = set()
    life.look()
    life.look(after_s=10)
    assert world.channel.wait(2) == ["firing", "resolved"]


def test_what_waits_over_a_restart_says_the_same_as_what_is_told_at_once() -> None:
    """So that a receiver skips what it has seen, and nothing else."""
    heard = []
    for deaf in (False, True):
        world = World()
        world.channel.deaf = deaf
        life = world.life(attempts=1_000_000)
        statuses = (Status.WARN, Status.CRITICAL, Status.WARN, Status.CRITICAL, Status.OK, Status.WARN)
        for life.bad_status in statuses:
            life.bad = {"b"}
            life.look()
            life.look(after_s=10)
        if deaf:
            life = world.life()
            world.channel.deaf = False
            life.bad = {"b"}
            life.look(after_s=1)
        assert world.channel.wait(5) == ["firing", "worsened", "worsened", "resolved", "firing"]
        heard.append([(n["id"], n["event"], n["at_us"], n["fired_us"]) for n in world.channel.heard])
        life.end()
    assert heard[0] == heard[1]
    assert len(set(heard[0])) == 5


@pytest.mark.parametrize("gone", ["host", "mesh"])
def test_what_fires_of_a_removed_host_or_mesh_is_over(world: World, gone: str) -> None:
    life = world.life()
    life.bad = {"b"}
    life.look()
    life.look(after_s=5)
    if gone == "host":
        life.leader.request(lambda state: [ev.HostRemoved("b", "root")]).result(PATIENCE_S)
    life.forgotten = gone == "mesh"
    life.look()
    life.look(after_s=10)
    assert world.channel.wait(2) == ["firing", "resolved"]


def test_a_storm_is_one_message(world: World) -> None:
    life = world.life()
    names = [f"h{n:03}" for n in range(500)]
    added = [ev.HostAdded(builders.host(n)) for n in names]
    life.leader.request(lambda state: added).result(PATIENCE_S)
    life.leader.request(lambda state: [ev.HostDown(n, "no answer") for n in names]).result(PATIENCE_S)
    life.look()
    life.look(after_s=5)
    assert world.channel.wait(1) == ["firing"]
    (storm,) = world.channel.heard
    assert (storm["condition"], storm["subject"], len(storm["alerts"])) == ("host-down", "500 subjects", 500)
    assert storm["message"] == "500 alerts: h000, h001, h002 and 497 more"
    life = world.life()
    life.look(after_s=1)
    assert sum(a["state"] == "firing" for a in life.alerting.view()["alerts"]) == 500
    assert len(world.channel.heard) == 1


def test_a_job_that_the_controller_gave_up_is_told_of_until_it_is_kept_again(world: World) -> None:
    life = world.life()
    life.standings = {7: "it had to be moved back again and again"}
    life.look()
    life.look(after_s=5)
    assert world.channel.wait(1) == ["firing"]
    assert world.channel.heard[0]["subject"] == "job 7"
    life = world.life()  # which knows nothing of the job yet
    life.standings = {7: None}
    assert [a["state"] for a in life.look(after_s=100)] == ["firing"]
    life.standings = {7: ""}
    life.look()
    life.look(after_s=10)
    assert world.channel.wait(2) == ["firing", "resolved"]


def test_a_channel_that_never_answers_is_given_up_and_said_so(world: World) -> None:
    life = world.life()
    world.channel.deaf = True
    life.bad = {"b"}
    life.look()
    life.look(after_s=5)
    world.channel.refused.acquire(timeout=PATIENCE_S)
    life.alerting.close()  # ends when the last outcome is noted
    (alert,) = life.alerting.view()["alerts"]
    assert alert["failed"] == "hook: deaf"
    assert alert["owed"] == []


def test_a_host_that_fails_is_drained_and_returned(world: World) -> None:
    life = world.life(drain=True, drain_after=3, return_after=2, drain_on=("loss",))
    life.bad = {"b"}
    for _ in range(2):
        life.look(after_s=1)
    assert life.host("b").drained_by == ""
    life.look(after_s=1)
    assert "failed 3 checks in a row: 2 of 2 pairs of b are bad" in life.host("b").drained_by
    assert life.host("a").drained_by == ""
    life = world.life(drain=True, drain_after=3, return_after=2, drain_on=("loss",))
    life.look(after_s=1)
    assert life.host("b").drained_by
    life.look(after_s=1)
    assert life.host("b").drained_by == ""


def test_one_peer_alone_does_not_drain_a_host_again_that_was_repaired(world: World) -> None:
    life = world.life(drain=True, drain_after=3, return_after=0, drain_on=("loss",))
    life.bad = {"b"}
    for _ in range(6):
        life.look(after_s=1)
    assert life.host("b").drained_by
    life.bad, life.claimed = set(), {"a", "b"}
    life.leader.request(lambda _: [ev.HostResumed("b", "alice")]).result(PATIENCE_S)
    for _ in range(6):
        (alert,) = life.look(after_s=1)
    assert (alert["subject"], alert["state"]) == ("b", "firing")  # until none of its pairs is bad
    assert life.host("b").drained_by == ""
    life.bad = {"b"}
    for _ in range(3):
        life.look(after_s=1)
    assert life.host("b").drained_by


def test_a_clock_that_goes_back_puts_nothing_off(world: World) -> None:
    life = world.life(drain=True, drain_after=3, return_after=0, drain_on=("loss",), facts_s=300)
    life.bad = {"b"}
    life.look()
    for name in NAMES:
        life.hosts.take("facts", name).answer(disk_free_bytes=9 << 30, gpus=[])
    life.clock.us -= 500 * S
    for _ in range(3):
        life.alerting.look()  # nothing was tested meanwhile
    assert life.host("b").drained_by == ""
    life.look(after_s=1)
    life.hosts.take("facts", "a")
    assert life.host("b").drained_by == ""
    life.look(after_s=1)
    assert "failed 3 checks in a row" in life.host("b").drained_by


def test_tries_that_are_good_again_are_no_failed_checks(world: World) -> None:
    life = world.life(drain=True, drain_after=3, return_after=0, drain_on=("loss",))
    life.bad = {"b"}
    for _ in range(2):
        life.look(after_s=1)
    life.healed = True
    for _ in range(5):
        life.look(after_s=1)
    assert life.host("b").drained_by == ""
    life.healed = False
    life.look(after_s=1)
    assert "failed 3 checks in a row" in life.host("b").drained_by  # they were neither good nor bad


def test_agents_are_asked_for_facts_now_and_then(world: World) -> None:
    life = world.life(facts_s=300)
    life.look()
    for name in NAMES:
        life.hosts.take("facts", name).answer(disk_free_bytes=5 << 20 if name == "a" else 9 << 30, gpus=[])
    life.look(after_s=1)
    (alert,) = life.look(after_s=5)
    assert (alert["condition"], alert["subject"]) == ("disk", "a")
    assert life.hosts.untaken("facts") == []
    life.look(after_s=300)
    life.hosts.take("facts", "a").refuse("defect")
    (alert,) = life.look(after_s=1)
    assert alert["state"] == "firing"  # what was last known


def test_no_word_of_a_host_makes_a_message_more_than_one_line(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """It would be a text of the host's own in a mail, records of its own in the log, or steer a terminal."""
    life = world.life(facts_s=300)
    life.look()
    bus = "0\r\n\nAll is well: http://evil.example\r\n.\r\n\u202egnp\x1b[31m\x9b31m\u2028"
    gpu, xid = {"index": 0, "bus": "1"}, {"bus": bus, "code": 79, "count": 1, "ago_s": 1}
    for name in NAMES:
        life.hosts.take("facts", name).answer(gpus=[gpu], gpu_xids=[xid] if name == "a" else [])
    life.look(after_s=1)
    (alert,) = life.look(after_s=5)
    assert alert["message"].isprintable()
    assert "All is well" in alert["message"]
    assert world.channel.wait(1) == ["firing"]
    assert world.channel.heard[0]["message"] == alert["message"]
    assert all(record.getMessage().isprintable() for record in caplog.records)


def test_a_job_whose_gpus_do_nothing_is_told_of_and_stopped(world: World) -> None:
    life = world.life(gpus_idle_s=60, gpus_idle_stop_s=120)
    host = builders.host("a", gpus=1)
    begun = [
        ev.HostAdded(host),
        ev.JobSubmitted(1, builders.spec(gpus_per_host=1)),
    ]
    life.leader.request(lambda state: begun).result(PATIENCE_S)
    life.leader.request(lambda state: [ev.TasksStarted(1, 1, "a", life.clock.us, (0,))]).result(PATIENCE_S)

    def story() -> list[str]:
        job = life.leader.ask(lambda cycle, now_us: cycle.state.jobs[1]).result(PATIENCE_S)
        return [what for _, what in job.history]

    def minute(busy_pct: int) -> list[Any]:
        for _ in range(12):
            alerts = life.look(after_s=5)
            for name in NAMES:
                gpus = [{"index": 0, "uuid": host.gpus[0].uuid, "busy_pct": busy_pct}] if name == "a" else []
                if name in [question.host for question in life.hosts.untaken("facts")]:
                    life.hosts.take("facts", name).answer(gpus=gpus)
        return [a for a in alerts if a["condition"] == "gpus-idle" and a["state"] == "firing"]

    assert minute(0) == []
    assert minute(40) == []
    assert minute(0) == []
    (alert,) = minute(0)
    assert (alert["subject"], alert["hosts"]) == ("job 1", ("a",))
    assert [what for what in story() if "GPUs" in what] == ["its GPUs did nothing for 1:00"]
    minute(0)
    assert "stopped: its GPUs did nothing for 2:00" in story()


GOOD_RULE = {"name": "r", "on": ["loss"]}
MAIL = {"name": "m", "mail_to": ["a@x"], "mail_from": "b@x"}


@pytest.mark.parametrize(
    ("rule", "channel", "said"),
    [
        ({"on": ["loss"]}, {}, "has no name"),
        ({**GOOD_RULE, "on": ["lost"]}, {}, "Did you mean 'loss'"),
        ({**GOOD_RULE, "level": "bad"}, {}, "level"),
        ({**GOOD_RULE, "after": 5}, {}, "Did you mean 'after_s'"),
        ({**GOOD_RULE, "after_s": -1}, {}, "not a duration"),
        ({**GOOD_RULE, "after_s": float("nan")}, {}, "not a duration"),
        ({**GOOD_RULE, "hosts": "gpu1"}, {}, "expected a list"),
        ({**GOOD_RULE, "tell": ["pager"]}, {}, "there is no 'pager'"),
        ({**GOOD_RULE, "name": "a/b"}, {}, "must not contain"),
        ({}, {"name": "c"}, "must have one destination"),
        ({}, {**MAIL, "command": ["x"]}, "must have one destination"),
        ({}, {"name": "w", "webhook": "ftp://x"}, "not a URL"),
        ({}, {"name": "w", "alertmanager": "am:9093"}, "alertmanager: this is not a URL"),
        ({}, {**MAIL, "alertmanager": "http://am:9093"}, "must have one destination"),
        ({}, {"name": "w", "alertmanager": "http://am", "secret_file": "/s"}, "'secret_file' does not apply"),
        ({}, {**MAIL, "mail_from": ""}, "no mail_from"),
        ({}, {**MAIL, "smtp": "nowhere"}, "not HOST:PORT"),
        ({}, {**MAIL, "smtp": "mail:²"}, "not HOST:PORT"),
        ({}, {**MAIL, "smtp_user": "u", "smtp_password_file": "/f"}, "in the clear"),
        ({}, {**MAIL, "mail_to": ["a@x\nBcc: y"]}, "'a@x Bcc: y' is not an address"),
        ({}, {**MAIL, "mail_from": "ops@"}, "'ops@' is not an address"),
        ({}, {**MAIL, "ca_file": "/ca"}, "encrypts nothing"),
        ({}, {**MAIL, "secret_file": "/s"}, "'secret_file' does not apply to a channel with mail_to"),
        ({}, {"name": "c", "command": ["x"], "smtp_tls": "tls"}, "'smtp_tls' does not apply"),
        ({}, {"name": "c", "command": [""]}, "names no program"),
        ({}, {"name": "c", "command": "x"}, "'c', command: expected a list, got text"),
        ({}, {"name": "w", "webhook": "https://"}, "not a URL"),
        ({**GOOD_RULE, "on": []}, {}, "names no condition"),
        ({}, {**MAIL, "timeout_s": 0}, "out of range"),
    ],
)
def test_bad_tables_are_refused_with_a_sentence(
    rule: dict[str, Any], channel: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        channels_of([channel]) if channel else rules_of([rule], [])
    assert said in str(caught.value)


def test_without_rules_every_channel_hears_of_everything() -> None:
    (rule,) = rules_of([], ["a", "b"])
    assert rule.tell == ("a", "b")
    assert rule == replace(rules_of([{"name": "all"}], ["a", "b"])[0], name="all")
    assert (rule.least_us, rule.waits_us("rotation-lost")) == (10_000_000, 300_000_000)
    (own,) = rules_of([{"name": "own", "after_s": 5}], [])
    assert (own.least_us, own.waits_us("rotation-lost")) == (5_000_000, 5_000_000)
    assert channels_of([{**MAIL, "smtp": "[::1]:25"}])[0].server == ("::1", 25)
