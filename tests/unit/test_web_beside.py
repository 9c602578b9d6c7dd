"""Long work of the API is done beside the event loop, one piece after the other, with pauses for others."""

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rm.web import answers, handling
from rm.web.callers import identity
from rm.web.handling import BESIDE, beside
from rm.web.routes import jobs as job_routes
from tests.fake_service import Daemon, serving
from tests.unit.test_web_api import SPEC, as_user, call

LENGTH_S = 0.02
MANY = 3  # jobs, which are as long as many


def test_after_work_that_holds_the_interpreter_others_have_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses_s: list[float] = []

    async def pieces(rests: bool) -> None:
        request: Any = SimpleNamespace(app={BESIDE: asyncio.Semaphore(1)})

        def later(pause_s: float, then: Callable[[], None]) -> None:
            pauses_s.append(pause_s)
            then()

        monkeypatch.setattr(asyncio.get_running_loop(), "call_later", later)
        for _ in range(2):  # the second has its turn when the first one's pause is over
            await beside(request, lambda: time.sleep(LENGTH_S), rests)

    asyncio.run(pieces(rests=True))
    assert [pause_s >= LENGTH_S for pause_s in pauses_s] == [True, True]
    pauses_s.clear()
    asyncio.run(pieces(rests=False))
    assert pauses_s == [0.0, 0.0]


def test_a_list_that_is_long_is_made_beside_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handling, "LONG", MANY)
    makers = threads_of(monkeypatch, job_routes, "job_of", answers.job_of)
    with serving(tmp_path / "rm.sock") as daemon:
        loop = submitted(daemon, MANY)
        assert len(call(daemon, "GET", "/v1/jobs")[1]["jobs"]) == MANY
        assert makers == {loop}
        makers.clear()
        submitted(daemon, 1)
        assert len(call(daemon, "GET", "/v1/jobs")[1]["jobs"]) == MANY + 1
        assert loop not in makers


def test_jobs_of_others_are_judged_beside_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handling, "LONG", MANY)
    judges = threads_of(monkeypatch, identity.Caller, "must_own", identity.Caller.must_own)
    with serving(tmp_path / "rm.sock") as daemon:
        loop = submitted(daemon, MANY + 1)
        as_user(monkeypatch, "mallory")
        told = call(daemon, "DELETE", "/v1/jobs?state=PENDING")[1]
    assert (len(told["jobs"]), len(told["refused"])) == (0, MANY + 1)
    assert judges - {loop} == judges != set()


def submitted(daemon: Daemon, count: int) -> int | None:
    """The thread of the event loop, after a submission of `count` jobs."""
    assert call(daemon, "POST", "/v1/jobs", {"specs": [SPEC] * count})[0] == 201
    found: list[int] = []
    heard = threading.Event()

    def note() -> None:
        found.append(threading.get_ident())
        heard.set()

    daemon.loop.call_soon_threadsafe(note)
    assert heard.wait(30)
    return found[0]


def threads_of(monkeypatch: pytest.MonkeyPatch, where: Any, name: str, function: Any) -> set[int]:
    """In which threads this function is called from now on."""
    threads: set[int] = set()

    def noted(*args: Any, **more: Any) -> Any:
        threads.add(threading.get_ident())
        return function(*args, **more)

    monkeypatch.setattr(where, name, noted)
    return threads
