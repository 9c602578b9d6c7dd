"""The weekly digest of an account: its text, and that each address gets it once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from rm.adapters.store.memory import MemoryDatabase, MemoryStore
from rm.bootstrap.checks import complaints, must_hold
from rm.client.sharing import Sharing
from rm.config import Config
from rm.config.sections import SharingConfig
from rm.core.alerts.channel import NotTold
from rm.core.sharing.accounts import NO_ACCOUNTS, Account, checked
from rm.core.sharing.digest import WEEK_US, digest, week_before
from rm.core.sharing.ended import DAY_US, HOUR_US, Ended, Sums
from rm.core.store import Batch
from rm.daemon.services.digests import Digests, addresses_of
from rm.errors import ConfigError
from tests.command_line import Rmx
from tests.fake_service import Daemon
from tests.fakes import ManualClock

MONDAY_US = int(datetime(2026, 11, 23, tzinfo=UTC).timestamp() * 1e6)
MINUTE_US = 60_000_000
ANN = Sums(
    jobs=3, failed=1, waited_us=HOUR_US, slowed_us=12 * MINUTE_US, cpu_us=20 * HOUR_US, gpu_us=100 * HOUR_US,
    gpu_watched_us=100 * HOUR_US, gpu_busy_us=25 * HOUR_US, waited_resources_us=45 * MINUTE_US,
    waited_limits_us=15 * MINUTE_US,
)  # fmt: skip
BOB = Sums(jobs=1, gpu_us=10 * HOUR_US, gpu_watched_us=10 * HOUR_US, gpu_busy_us=10 * HOUR_US, cpu_us=HOUR_US)


@pytest.mark.parametrize("after_us", [0, DAY_US, WEEK_US - 1])
def test_the_week_is_the_last_whole_one_from_monday_on(after_us: int) -> None:
    assert week_before(MONDAY_US + after_us) == (MONDAY_US - WEEK_US, MONDAY_US)
    assert week_before(MONDAY_US - 1) == (MONDAY_US - 2 * WEEK_US, MONDAY_US - WEEK_US)


def test_the_text_says_who_used_what_and_what_jobs_waited_for() -> None:
    text = digest("physics", MONDAY_US - WEEK_US, MONDAY_US, [("bob", BOB), ("ann", ANN)])
    assert text.splitlines() == [
        "What the account physics used from 2026-11-16 to 2026-11-22 (UTC)",
        "",
        "4 jobs ended, 1 of which did not complete.",
        "They held 110.0 GPU hours and 21.0 processor hours.",
        "GPUs were idle for 68 % of the time for which they were watched.",
        "Lost to other jobs on their links: 12 minutes.",
        "",
        "USER                  JOBS    FAILED     GPU-H  GPU-IDLE     CPU-H    WAITED      LOST",
        "ann                      3         1     100.0      75 %      20.0   1:00:00     12:00",
        "bob                      1         0      10.0       0 %       1.0      0:00      0:00",
        "all                      4         1     110.0      68 %      21.0   1:00:00     12:00",
        "",
        "The jobs waited 1:00:00 in all:",
        "  resources            45:00    75 %",
        "  limits               15:00    25 %",
    ]
    assert "No job that had started ended" in digest("physics", 0, WEEK_US, [])
    saved = digest("physics", MONDAY_US - WEEK_US, MONDAY_US, [("ann", ANN._replace(saved_us=90_000_000))])
    assert "Saved by interleaving, as estimated: 1 minutes." in saved.splitlines()


class Server:
    """A mail server."""

    def __init__(self) -> None:
        self.took: list[tuple[str, str, str, str]] = []
        self.refuses: dict[str, NotTold] = {}

    def send_letter(self, to: str, subject: str, text: str, name: str) -> None:
        if to in self.refuses:
            raise self.refuses[to]
        self.took.append((to, subject, text, name))


class House:
    """Daemons one after the other on one store."""

    def __init__(self) -> None:
        self.database, self.server = MemoryDatabase(), Server()
        self.clock = ManualClock(MONDAY_US - 3 * DAY_US)
        part = Ended(MONDAY_US - 3 * DAY_US, "physics", "ann", "", "", "h1", ANN, Sums())
        other = Ended(MONDAY_US - 3 * DAY_US, "biology", "eve", "", "", "h1", BOB, Sums())
        self.version = 0
        self.accounts = NO_ACCOUNTS
        self.commit(Batch(ended=(part, other)))
        self.trouble: Exception | None = None
        self.after_us = 0  # it holds for what says that a week was sent

    def commit(self, batch: Batch) -> None:
        store = MemoryStore(self.database)
        store.acquire_lease("a", 0, 1)
        store.commit(batch, self.version)
        self.version += 1

    def ask(self, question: Callable[[Any, int], Any]) -> Future[Any]:
        done: Future[Any] = Future()
        state = SimpleNamespace(accounts=self.accounts)
        done.set_result(question(SimpleNamespace(state=state), self.clock.us))
        return done

    def keep(self, documents: tuple[tuple[str, dict[str, Any] | None], ...]) -> Future[Any]:
        done: Future[Any] = Future()
        weeks = [int(week) for _, body in documents if body is not None for week in body["weeks"]]
        if self.trouble is not None and max(weeks, default=0) >= self.after_us:
            done.set_exception(self.trouble)
        else:
            self.commit(Batch(documents=documents))
            done.set_result(None)
        return done

    def daemon(self) -> Digests:
        store = MemoryStore(self.database)
        return Digests(
            store=store, leader=self, clock=self.clock, letters=self.server, cluster="c",
            to=addresses_of(["physics = head@x, ops@x"]), hour=6, stored=store.load().documents,
        )  # fmt: skip


def test_each_address_gets_each_week_once_over_restarts() -> None:
    house = House()
    daemon = house.daemon()
    house.clock.us = MONDAY_US + 5 * HOUR_US  # the week before the last: nothing was used in it
    daemon.send()
    assert [letter[0] for letter in house.server.took] == ["head@x", "ops@x"]
    house.server.took.clear()
    house.clock.us = MONDAY_US + 6 * HOUR_US
    daemon.send()
    daemon.send()
    house.daemon().send()
    assert [letter[0] for letter in house.server.took] == ["head@x", "ops@x"]
    _, subject, text, name = house.server.took[0]
    assert subject == "[c] What the account physics used from 2026-11-16 to 2026-11-22 (UTC)"
    assert "ann" in text
    assert "eve" not in text
    assert name != house.server.took[1][3]
    house.clock.us += 3 * WEEK_US
    house.daemon().send()
    assert len(house.server.took) == 4  # one for each, of the last week


def test_what_an_earlier_version_sent_is_not_sent_again_and_a_damaged_row_ends_no_daemon() -> None:
    house = House()
    house.clock.us = MONDAY_US + 6 * HOUR_US
    rows = {"head@x": {"until_us": MONDAY_US}, "ops@x": {"weeks": {"soon": "x"}, "early": 7}}
    house.commit(Batch(documents=tuple((f"digest/physics/{to}", body) for to, body in rows.items())))
    house.daemon().send()
    assert [letter[0] for letter in house.server.took] == ["ops@x"]
    house.clock.us += WEEK_US
    house.daemon().send()
    assert [letter[0] for letter in house.server.took] == ["ops@x", "head@x", "ops@x"]


def test_a_week_that_a_clock_ahead_had_mailed_is_mailed_again_when_it_is_over() -> None:
    house = House()
    daemon = house.daemon()
    house.clock.us = MONDAY_US - 3 * DAY_US + WEEK_US  # ahead: in truth the week goes on for three days
    daemon.send()
    assert [letter[0] for letter in house.server.took] == ["head@x", "ops@x"]
    house.clock.us -= WEEK_US
    house.daemon().send()
    assert len(house.server.took) == 2, "nothing was used in the week before those that were mailed"
    late = ANN._replace(jobs=5)
    house.commit(Batch(ended=(Ended(MONDAY_US - DAY_US, "physics", "zoe", "", "", "h1", late, Sums()),)))
    house.clock.us = MONDAY_US + 7 * HOUR_US
    for _ in range(2):
        house.daemon().send()
    early, _, again, _ = house.server.took
    assert (early[0], early[1]) == (again[0], again[1])
    assert "zoe" not in early[2]
    assert again[2].startswith("This letter takes the place of one that was sent before the week was over.\n")
    assert "zoe" in again[2]
    assert early[3] != again[3]  # else the reader's mail program may drop it
    house.clock.us += WEEK_US
    house.daemon().send()
    assert len(house.server.took) == 6


@pytest.mark.parametrize("weeks", [-1, -3, -1000, 1, 60])
def test_after_a_clock_that_was_wrong_for_a_while_each_week_is_mailed_once(weeks: int) -> None:
    house = House()
    house.clock.us = MONDAY_US + DAY_US
    house.daemon().send()
    house.clock.us += weeks * WEEK_US
    house.daemon().send()
    house.clock.us -= weeks * WEEK_US
    house.daemon().send()
    before = len(house.server.took)
    assert before == (2 if weeks < 0 else 4)
    house.clock.us += WEEK_US
    house.daemon().send()
    house.daemon().send()
    nothing_new = weeks == 1  # the week was as empty when it was mailed
    assert len(house.server.took) == before + (0 if nothing_new else 2)


def test_a_new_cluster_whose_clock_was_a_year_ahead_mails_digests_before_a_year_is_over() -> None:
    house = House()
    house.clock.us = MONDAY_US + 52 * WEEK_US
    house.daemon().send()
    house.clock.us = MONDAY_US + 7 * HOUR_US
    house.daemon().send()
    house.daemon().send()
    assert [letter[0] for letter in house.server.took] == ["head@x", "ops@x"] * 2
    assert "ann" in house.server.took[-1][2]


def test_of_an_account_that_is_none_nothing_is_mailed_but_what_was_used(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is misspelt, or it was removed in the week."""
    house = House()
    house.accounts = checked([Account("physic")], [])
    house.clock.us = MONDAY_US + 5 * HOUR_US  # the week before the last: nothing was used in it
    daemon = house.daemon()
    daemon.send()
    daemon.send()
    assert not house.server.took
    assert caplog.text.count("sharing.digest names 'physics', which is no account") == 1
    house.clock.us += HOUR_US
    daemon.send()
    assert [letter[0] for letter in house.server.took] == ["head@x", "ops@x"]
    house.clock.us += WEEK_US
    daemon.send()
    assert len(house.server.took) == 2
    house.accounts = checked([Account("physics")], [])
    daemon.send()
    assert len(house.server.took) == 4, "it is one now"


def test_what_a_server_refuses_for_now_is_tried_again_and_nobody_else_gets_it_twice() -> None:
    house = House()
    house.clock.us = MONDAY_US + DAY_US
    house.server.refuses = {"head@x": NotTold("busy")}
    daemon = house.daemon()
    daemon.send()
    house.server.refuses.clear()
    daemon.send()
    assert [letter[0] for letter in house.server.took] == ["ops@x", "head@x"]
    house.server.refuses = {"head@x": NotTold("unknown user", again=False)}
    house.clock.us += WEEK_US
    daemon.send()
    house.server.refuses.clear()
    house.daemon().send()
    assert [letter[0] for letter in house.server.took] == ["ops@x", "head@x", "ops@x"]


def test_what_was_not_written_down_is_sent_again_under_the_same_name() -> None:
    house = House()
    house.clock.us = MONDAY_US + DAY_US
    house.trouble, house.after_us = OSError("away"), MONDAY_US
    with pytest.raises(OSError, match="away"):
        house.daemon().send()
    house.trouble = None
    house.daemon().send()
    first, again, _ = house.server.took
    assert first == again


def test_a_daemon_that_does_not_lead_any_more_sends_nothing() -> None:
    house = House()
    house.clock.us = MONDAY_US + DAY_US
    stood_still = house.daemon()
    house.daemon().send()
    house.trouble = OSError("another daemon leads")
    with pytest.raises(OSError, match="leads"):
        stood_still.send()
    assert [letter[0] for letter in house.server.took] == ["head@x", "ops@x"]


@pytest.mark.parametrize("line", ["physics", "physics =", "= a@x", "physics = a", "physics = a b@x"])
def test_a_line_that_names_no_addresses_is_refused(line: str) -> None:
    with pytest.raises(ConfigError, match="names no account"):
        addresses_of([line])
    with pytest.raises(ConfigError, match="twice"):
        addresses_of(["a = x@y", "a = z@y"])


def test_a_configuration_without_a_way_for_mails_is_refused() -> None:
    config = Config(sharing=SharingConfig(digest=("physics = a@x",)))
    with pytest.raises(ConfigError, match=r"jobs.mail is not"):
        must_hold(config)
    assert any(
        "sharing.digest has" in one for one in complaints(Config(sharing=SharingConfig(digest=("x",))))
    )


def test_the_command_prints_the_same_text(daemon: Daemon, rmx: Rmx) -> None:
    daemon.service.ended = [Ended(MONDAY_US - 3 * DAY_US, "physics", "ann", "", "", "h1", ANN, Sums())]
    words = ("usage", "--digest", "physics", "--from", "2026-11-16", "--to", "2026-11-23")
    expected = digest("physics", MONDAY_US - WEEK_US, MONDAY_US, [("ann", ANN)])
    assert rmx(*words).out == expected
    assert rmx(*words, "--csv").code != 0
    assert rmx("usage", "--digest", "nobody").out.endswith("ended in this time.\n")


def test_one_end_of_the_time_is_enough(daemon: Daemon, rmx: Rmx, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a day on until now, and the week before a day."""
    asked: list[tuple[int, int]] = []
    usual = Sharing.usage

    def usage(self: Sharing, by: Sequence[str], **words: Any) -> Any:
        asked.append((words["since_us"], words["until_us"]))
        return usual(self, by, **words)

    monkeypatch.setattr(Sharing, "usage", usage)
    now_us = round(datetime.now().timestamp() * 1_000_000)
    assert rmx("usage", "--digest", "physics", "--from", "2026-11-16").code == 0
    assert rmx("usage", "--digest", "physics", "--to", "2026-11-23").code == 0
    (since_us, until_us), (before_us, to_us) = asked
    assert (since_us, now_us <= until_us) == (MONDAY_US - WEEK_US, True)
    assert (before_us, to_us) == (MONDAY_US - WEEK_US, MONDAY_US)
