"""`rmx alerts`, `ack`, `silence` and `unsilence`, through the real HTTP API to the real alerting."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rm.web.callers import identity
from tests.command_line import Result, caller
from tests.fake_service import Daemon
from tests.unit.test_alerting import Life, World
from tests.unit.test_web_api import call

Rmx = Callable[..., Result]


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.lives[-1].end()


@pytest.fixture
def rmx(capfd: pytest.CaptureFixture[str]) -> Rmx:
    call = caller(capfd)
    return lambda *words: call("alerts", *words)


def begin(world: World, daemon: Daemon) -> Life:
    life = world.life()
    daemon.service.alerting = life.alerting
    return life


def fire(life: Life, host: str) -> None:
    life.bad = {host}
    life.look()
    life.look(after_s=5)


def test_who_looks_after_an_alert_is_shown_until_it_is_over(world: World, daemon: Daemon, rmx: Rmx) -> None:
    life = begin(world, daemon)
    fire(life, "b")
    code, _, err = rmx("ack", "c")
    assert (code, "No alert 'c' is firing" in err) == (4, True)
    assert rmx("ack", "b", "-m", "swapping\nthe cable") == (0, "acknowledged: r/loss/b\n", "")
    life = begin(world, daemon)  # over a restart
    life.bad = {"b"}
    life.look()
    _, out, _ = rmx("--active")
    assert "firing (acknowledged by root: swapping the cable)" in out
    life.bad = set()
    life.look()
    life.look(after_s=10)
    assert "acknowledged" not in rmx()[1]
    fire(life, "b")
    assert "acknowledged" not in rmx()[1]  # of the next time, somebody must say so again


def test_a_silence_holds_over_a_restart_and_ends(world: World, daemon: Daemon, rmx: Rmx) -> None:
    begin(world, daemon)
    code, out, _ = rmx("silence", "--for", "1h", "-c", "loss", "--host", "[bc]", "-m", "new cables")
    assert (code, out.startswith("silence 1 ends in ")) == (0, True)
    life = begin(world, daemon)
    fire(life, "b")
    _, out, _ = rmx()
    assert "pending (silenced by root: new cables)" in out
    assert "new cables" in out.splitlines()[-1]
    assert rmx("unsilence", "1")[:2] == (0, "silence 1 is ended\n")
    assert rmx("unsilence", "1")[0] == 4
    life.look()
    assert "firing" in rmx()[1]
    assert world.channel.wait(1) == ["firing"]


def test_a_silence_that_is_over_is_forgotten(world: World, daemon: Daemon, rmx: Rmx) -> None:
    life = begin(world, daemon)
    rmx("silence", "--for", "20s", "--host", "*")
    fire(life, "b")
    assert life.look(after_s=10)[0]["state"] == "pending"
    assert life.look(after_s=10)[0]["state"] == "firing"
    assert "SILENCE" not in rmx()[1]
    begin(world, daemon)
    assert "SILENCE" not in rmx()[1]


def test_silences_have_the_same_order_after_a_restart(world: World, daemon: Daemon, rmx: Rmx) -> None:
    begin(world, daemon)
    for number in range(1, 12):
        rmx("silence", "--for", "1h", "--host", f"h{number}")

    def numbers() -> list[int]:
        return [one["id"] for one in daemon.service.alerting.view()["silences"]]

    assert numbers() == [*range(1, 12)]
    begin(world, daemon)
    assert numbers() == [*range(1, 12)]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("silence", "--for", "1h"), "A silence names conditions or hosts."),
        (("silence", "--for", "1h", "-c", "lost"), "There is no condition 'lost'."),
        (("silence", "--for", "0s", "--host", "a"), "A silence lasts up to 366 days."),
        (("silence", "--for", "900d", "--host", "a"), "A silence lasts up to 366 days."),
        (("silence", "--for", "soon", "--host", "a"), "soon"),
        (("silence", "--for", "1h", "--host", "a", "-m", "x" * 501), "up to 500 characters"),
        (("unsilence", "0"), "0"),
    ],
)
def test_what_makes_no_sense_is_refused(
    world: World, daemon: Daemon, rmx: Rmx, words: tuple[str, ...], said: str
) -> None:
    begin(world, daemon)
    code, out, err = rmx(*words)
    assert (code, out) == (2, "")
    assert said in err
    assert "Traceback" not in err


@pytest.mark.parametrize("for_s", [True, "1h", None, 10**400, -(10**400), 1e300], ids=lambda x: f"{x!s:.5}")
def test_a_time_that_is_none_is_refused(world: World, daemon: Daemon, for_s: Any) -> None:
    begin(world, daemon)
    status, answer = call(daemon, "POST", "/v1/alerts/silences", {"hosts": ["a"], "for_s": for_s})
    assert (status, answer["error"]["kind"]) == (400, "UsageError")


def test_only_operators_may(world: World, daemon: Daemon, rmx: Rmx, monkeypatch: pytest.MonkeyPatch) -> None:
    life = begin(world, daemon)
    fire(life, "b")

    async def caller(*_: Any) -> identity.Caller:
        return identity.Caller(12345, "user")

    monkeypatch.setattr("rm.web.callers.access.caller_of", caller)
    for words in (("ack", "b"), ("silence", "--for", "1h", "--host", "b"), ("unsilence", "1")):
        code, _, err = rmx(*words)
        assert code != 0
        assert "Only an operator may" in err
    assert "firing" in rmx()[1]  # everybody may read
