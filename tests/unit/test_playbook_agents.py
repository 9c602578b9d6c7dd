"""Steps by way of the daemon: the real API and the real executor, with a fleet of the test's own between."""

import json
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from rm.adapters.hosts.settings import SshSettings
from rm.adapters.playbook.agents import DaemonAgents
from rm.adapters.playbook.become import Passwords
from rm.adapters.playbook.hosts import Ways
from rm.adapters.playbook.program import digest
from rm.client.connection import Connection
from rm.config import Config, DaemonConfig
from rm.core.model.host import Host
from rm.daemon.services.steps_service import Steps
from rm.errors import Unreachable
from rm.playbook.model.steps import Batch, Way
from rm.protocol.codes import AgentError, Code, NotConnected
from rm.protocol.line import read_answer
from rm.protocol.notifications import Features, Hello
from rm.protocol.request import Request
from rm.web.callers import identity
from tests.fake_service import Daemon, serving
from tests.fakes import PATIENCE_S, asked
from tests.steps_request import rm_steps, step

GPU = Host("gpu01", "z", "10.0.0.1", 22, "root")
ASH = Host("ash01", "z", "10.0.0.2", 2222, "ash")


class Fleet:
    """Agents that are this process; `fail` is raised instead, `hold` keeps answers back."""

    def __init__(self) -> None:
        self.members = {GPU.name: (GPU, hello(0)), ASH.name: (ASH, hello(1000))}
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.fail: Exception | None = None
        self.hold = False
        self.held: list[Future[dict[str, Any]]] = []
        self.cancelled = threading.Event()

    def doors(self) -> list[tuple[Host, Hello]]:
        return list(self.members.values())

    def call(self, name: str, request: Request[Any], timeout_s: float = 10) -> Future[Any]:
        op, args = asked(request)
        assert op == "steps"
        self.asked.append((name, args))
        future: Future[Any] = Future()
        if self.fail is not None:
            future.set_exception(self.fail)
        elif self.hold:
            self.held.append(future)
        else:
            result = rm_steps.steps_operation(json.loads(json.dumps(args)))
            future.set_result(read_answer(type(request), json.dumps(result).encode()))
        return future

    def cancel(self, name: str, future: Future[Any]) -> None:
        assert future in self.held
        self.cancelled.set()


def hello(uid: int) -> Hello:
    return Hello(version="1", protocol=1, uid=uid, features=Features(steps=digest()))


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with serving(tmp_path / "rm.sock", Config(daemon=DaemonConfig(admins=("boss",)))) as daemon:
        yield daemon


@pytest.fixture
def fleet(daemon: Daemon) -> Fleet:
    made = Fleet()
    daemon.service.steps = Steps(made)
    return made


@pytest.fixture
def agents(daemon: Daemon) -> Iterator[DaemonAgents]:
    made = DaemonAgents(lambda: Connection(daemon.socket), lambda why: None)
    yield made
    made.close()


def ping(**more: Any) -> dict[str, Any]:
    return {"steps": [step(1, "ping")], "check": False, "diff": False, "planned": {}, **more}


def test_a_host_is_served_by_name_address_port_login_and_user(
    fleet: Fleet, daemon: Daemon, agents: DaemonAgents
) -> None:
    answer = agents.send(GPU, False, ping())
    assert answer is not None
    assert answer["results"][0].pop("took_us") > 0
    assert answer["results"] == [{"changed": False, "failed": False, "ping": "pong", "id": 1}]
    assert agents.serves(ASH, False)
    assert not agents.serves(ASH, True)  # its agent is not root
    for other in (
        Host("gpu02", "z", "10.0.0.1"),
        Host("gpu01", "z", "10.0.0.9"),
        Host("gpu01", "z", "10.0.0.1", 23),
        Host("gpu01", "z", "10.0.0.1", 22, "ash"),
    ):
        assert not agents.serves(other, False)
        assert agents.send(other, False, ping()) is None
    # the daemon looks for itself: its host may have moved since
    fleet.members[GPU.name] = (Host("gpu01", "z", "10.0.0.7"), hello(0))
    assert agents.send(GPU, False, ping()) is None
    assert [name for name, _ in fleet.asked] == ["gpu01"]


def test_an_agent_of_root_acts_as_the_login_that_the_host_would_let_in(
    fleet: Fleet, agents: DaemonAgents
) -> None:
    fleet.members[ASH.name] = (ASH, hello(0))  # by sudo
    fleet.hold = True
    blob = {"id": 4, "task": 4, "op": "blob", "args": {}}
    steps = [step(1, "ping"), {**step(2, "ping"), "user": "worker"}, blob]

    def ask(become: bool) -> list[str]:
        before = len(fleet.asked)
        thread = threading.Thread(target=agents.send, args=(ASH, become, {**ping(), "steps": steps}))
        thread.start()
        while not fleet.held:
            thread.join(0.01)
        fleet.held.pop().set_result({"results": [], "planned": {}})
        thread.join()
        return [one.get("user", "") for one in fleet.asked[before][1]["steps"]]

    assert ask(False) == ["ash", "worker", ""]
    assert ask(True) == ["", "worker", ""]


@pytest.mark.parametrize(
    "features", [{}, {"steps": "of another version"}], ids=["from before playbooks", "other files"]
)
def test_an_agent_with_another_executor_is_passed_by(
    fleet: Fleet, agents: DaemonAgents, features: dict[str, Any]
) -> None:
    fleet.members[GPU.name] = (GPU, {"uid": 0, "features": features})
    assert agents.send(GPU, False, ping()) is None
    assert fleet.asked == []


@pytest.mark.parametrize(
    "error",
    [
        NotConnected("it is gone"),
        AgentError(Code.NO_SUCH_OP, "steps?"),
        AgentError(Code.REPLACED, "Its files were replaced."),
    ],
    ids=["not connected", "no such op", "replaced"],
)
def test_where_nothing_was_sent_the_host_is_reached_another_way(
    fleet: Fleet, agents: DaemonAgents, error: Exception
) -> None:
    fleet.fail = error
    assert agents.send(GPU, False, ping()) is None


@pytest.mark.parametrize(
    "error",
    [Unreachable("The channel was lost."), AgentError(Code.DIED, "The operation ended without an answer.")],
    ids=["lost", "died"],
)
def test_a_lost_agent_leaves_the_outcome_unknown(
    fleet: Fleet, agents: DaemonAgents, error: Exception
) -> None:
    fleet.fail = error
    with pytest.raises(Unreachable, match=r"gpu01 is unknown: .* Run the playbook again\."):
        agents.send(GPU, False, ping())


def test_a_lost_daemon_leaves_the_outcome_unknown_and_is_not_missed_afterwards(tmp_path: Path) -> None:
    fleet, said = Fleet(), []
    fleet.hold = True
    agents = DaemonAgents(lambda: Connection(str(tmp_path / "rm.sock")), lambda why: None)

    def work() -> None:
        try:
            agents.send(GPU, False, ping())
        except Unreachable as error:
            said.append(str(error))

    thread = threading.Thread(target=work)
    with serving(tmp_path / "rm.sock") as daemon:
        daemon.service.steps = Steps(fleet)
        thread.start()
        while not fleet.held:
            thread.join(0.01)
    thread.join(PATIENCE_S)
    assert len(said) == 1
    assert "What steps did on host gpu01 is unknown" in said[0]
    assert agents.send(GPU, False, ping()) is None


def test_a_run_that_ends_gives_up_what_is_under_way(fleet: Fleet, agents: DaemonAgents) -> None:
    fleet.hold = True

    def work() -> None:
        with pytest.raises(Unreachable):
            agents.send(GPU, False, ping())

    thread = threading.Thread(target=work)
    thread.start()
    while not fleet.held:
        thread.join(0.01)
    agents.close()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert fleet.cancelled.wait(PATIENCE_S)


class EndsAsItOpens(Connection):
    """Another thread ends the run just as this connection was opened, before anything is asked over it."""

    end: Callable[[], None] = staticmethod(lambda: None)

    def open(self) -> None:
        super().open()
        type(self).end()


def test_a_run_that_ends_sends_no_step_that_was_about_to_go(fleet: Fleet, daemon: Daemon) -> None:
    agents = DaemonAgents(lambda: EndsAsItOpens(daemon.socket), lambda why: None)
    assert agents.serves(GPU, False)
    EndsAsItOpens.end = staticmethod(agents.close)
    try:
        with pytest.raises(Unreachable):
            agents.send(GPU, False, ping())
    finally:
        del EndsAsItOpens.end
    assert agents.send(GPU, False, ping()) is None  # nor is any sent later
    assert fleet.asked == []


def test_who_may_not_or_finds_no_daemon_is_told_once_and_goes_another_way(
    fleet: Fleet, daemon: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told(socket: str) -> list[str]:
        notes: list[str] = []
        agents = DaemonAgents(lambda: Connection(socket), notes.append)
        assert agents.send(GPU, False, ping()) is None
        assert agents.send(ASH, False, ping()) is None
        return notes

    (note,) = told(str(tmp_path / "nobody.sock"))
    assert "No daemon listens" in note

    async def ash(*_: Any) -> identity.Caller:
        return identity.Caller(1, "ash")

    monkeypatch.setattr("rm.web.callers.access.caller_of", ash)
    (note,) = told(daemon.socket)
    assert "Only an administrator" in note
    assert fleet.asked == []


def test_long_contents_travel_in_parts_and_check_mode_may_outgrow_an_agent(
    fleet: Fleet, agents: DaemonAgents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = os.urandom(1 << 20).hex()  # which does not get shorter by compression
    copy = step(1, "copy", dest=str(tmp_path / "long"), content=content)
    ways = Ways(
        {GPU.name: GPU},
        SshSettings(tmp_path / "none"),
        agents,
        lambda name: {},
        lambda name, way: Passwords(),
    )
    answer = ways.send(GPU.name, Batch((), False), {**ping(), "steps": [copy]})
    assert answer["results"][0]["changed"]
    assert (tmp_path / "long").read_text() == content
    assert len(fleet.asked) > 4
    monkeypatch.setattr("rm.adapters.playbook.agents.LINE_BYTES", 1000)
    planned = {"content": {"/a": "x" * 2000}}
    assert agents.send(GPU, False, ping(planned=planned)) is None


class Ssh:
    """Instead of a connection over SSH: this process, and a note that it was asked."""

    def __init__(self, log: list[str]) -> None:
        self.log = log

    def steps(self, request: dict[str, Any]) -> dict[str, Any]:
        self.log += [one["op"] for one in request["steps"]]
        answer: dict[str, Any] = rm_steps.steps_operation(json.loads(json.dumps(request)))
        return answer

    def close(self) -> None:
        pass


@pytest.fixture
def over_ssh(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    log: list[str] = []
    make: Callable[..., Ssh] = lambda *_: Ssh(log)  # noqa: E731
    monkeypatch.setattr("rm.adapters.playbook.channel.StepsChannel", make)
    return log


def test_an_agent_that_goes_in_the_middle_leaves_the_rest_to_ssh_and_nothing_runs_twice(
    fleet: Fleet, agents: DaemonAgents, over_ssh: list[str], tmp_path: Path
) -> None:
    agents.request_bytes = 1  # a request for each step
    done = tmp_path / "done"
    steps = [step(i, "shell", _raw=f"echo {i} >> {done}") for i in range(4)]
    take = fleet.call

    def call(name: str, request: Request[Any], timeout_s: float = 10) -> Future[Any]:
        if len(fleet.asked) == 2:
            fleet.fail = NotConnected("it is gone")
        return take(name, request, timeout_s)

    fleet.call = call  # type: ignore[method-assign]
    ways = Ways(
        {GPU.name: GPU},
        SshSettings(tmp_path / "none"),
        agents,
        lambda name: {},
        lambda name, way: Passwords(),
    )
    answer = ways.send(GPU.name, Batch((), False), {**ping(), "steps": steps})
    assert [one["id"] for one in answer["results"]] == [0, 1, 2, 3]
    assert done.read_text() == "0\n1\n2\n3\n"
    assert over_ssh == ["command", "command"]


@pytest.mark.parametrize(
    ("batch", "variables"),
    [
        (Batch((), False, way=Way("", "ssh")), {}),
        (Batch((), False), {"ansible_connection": "ssh"}),
        (Batch((), False, way=Way("ash")), {}),
        (Batch((), False), {"ansible_host": "10.0.0.99"}),
        (Batch((), False), {"ansible_user": "ash"}),
    ],
    ids=["the play", "the host", "another login", "another address", "another user"],
)
def test_who_asks_for_a_connection_of_its_own_gets_one(
    fleet: Fleet,
    agents: DaemonAgents,
    over_ssh: list[str],
    tmp_path: Path,
    batch: Batch,
    variables: dict[str, Any],
) -> None:
    ways = Ways(
        {GPU.name: GPU},
        SshSettings(tmp_path / "none"),
        agents,
        lambda name: variables,
        lambda name, way: Passwords(),
    )
    assert ways.send(GPU.name, batch, ping())["results"][0]["ping"] == "pong"
    assert (over_ssh, fleet.asked) == (["ping"], [])


def test_what_is_no_request_for_an_agent_is_refused(fleet: Fleet, daemon: Daemon) -> None:
    client = Connection(daemon.socket)
    door = {"address": GPU.address, "port": 22, "login": "root"}
    for body, sentence in (
        ({**door, **ping(), "epoch": 1}, "Unknown field 'epoch'"),
        ({**door, **ping(), "steps": 1}, "'steps' of the steps must be list"),
        (ping(), "'address' of the steps must be str"),
        ({**door, **ping(), "steps": [{**step(1, "ping"), "usr": "ann"}]}, "fit no agent: .*`usr`"),
        (
            {**door, **ping(), "steps": [{**step(1, "ping"), "task": "1"}]},
            r"fit no agent: .*steps\[0\]\.task",
        ),
    ):
        with pytest.raises(Exception, match=sentence):
            client.post("channels", "gpu01", "steps", body=body)
    client.close()
    assert fleet.asked == []
