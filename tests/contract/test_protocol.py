"""One protocol on both sides: what the daemon sends, the agents take, and what they say fits its type."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any, cast

import pytest
from msgspec import to_builtins

from rm.daemon.execution.agent_news import exited
from rm.playbook.model.steps import Step as PlaybookStep
from rm.protocol import attempts, hosts, job_steps, latencybg, network, probes, steps, streams
from rm.protocol.codes import AgentError, Code
from rm.protocol.line import Misfit, read_answer, read_line, read_notification, read_refusal, request_line
from rm.protocol.notifications import Exit, Hello, Iterations, Started, Unasked
from rm.protocol.request import Request, name_of
from rm.protocol.tables import events, requests
from rm.typed import convert
from scripts.protocol_tables import FILE, renewed
from tests.agent_process import AGENTS, ME, USER, Agent, agents
from tests.cluster import until

sys.path.insert(0, str(AGENTS))
import rm_agent
import rm_latencybg
import rm_path
import rm_pause
import rm_probe
import rm_shape
import rm_steps

NOWHERE = "no-such-if0"
FOREVER_US = 1 << 53


@cache
def trees() -> dict[str, ast.Module]:
    """The agents' programs, by the names of their files."""
    return {path.name: ast.parse(path.read_text()) for path in AGENTS.glob("*.py")}


def test_the_document_has_the_tables_as_they_are() -> None:
    text = FILE.read_text()
    assert renewed(text) == text, "python -m scripts.protocol_tables renews them"


def test_there_is_a_request_for_every_operation_and_no_other() -> None:
    own = {"ping", "facts", "cancel", "tasks", "adopt", "logs", "job-steps", "used-now", *rm_agent.CHANGES}
    siblings = (rm_shape, rm_path, rm_pause, rm_probe, rm_latencybg, rm_steps)
    known = own.union(*(set(module.OPS) | set(module.SLOW_OPS) for module in siblings))
    assert {name_of(kind) for kind in requests()} == known


def test_every_field_that_is_sent_is_read() -> None:
    words = {
        node.value
        for tree in trees().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    sent = {field for kind in requests() for field in kind.__struct_encode_fields__}
    for part in (attempts.Task, attempts.Grid, steps.Step):
        sent |= set(part.__struct_encode_fields__)
    assert sent <= words, sent - words


def test_agents_send_every_field_of_a_notification() -> None:
    nodes = [node for tree in trees().values() for node in ast.walk(tree)]
    words = {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    words |= {n.arg for n in nodes if isinstance(n, ast.keyword) and n.arg is not None}
    expected = {field for kind in events() for field in kind.__struct_encode_fields__}
    assert expected <= words, expected - words


@pytest.mark.parametrize("code", [256, 1 << 31, -1, -256])
def test_no_exit_code_is_believed_that_no_program_has(code: int) -> None:
    """`rmx wait` would end with 0 for a job that has failed."""
    said = {"event": "exit", "job": 1, "attempt": 1, "rank": 0, "signal": None}
    assert read_notification("exit", json.dumps({**said, "code": 255}).encode())
    with pytest.raises(Misfit):
        read_notification("exit", json.dumps({**said, "code": code}).encode())


@pytest.mark.parametrize("code", [1, None])
def test_a_host_s_words_have_no_line_that_could_pass_for_rm_s_own(code: int | None) -> None:
    words = "the disk\nrmx: job 7 is\r\n\u2028COMPLETED "
    said = {"event": "exit", "job": 1, "attempt": 1, "rank": 0, "code": code, "signal": None}
    heard = read_notification("exit", json.dumps({**said, "why": words, "epilog": words}).encode())
    event = exited("h1", cast(Exit, heard), 0, 0)
    assert event.why == event.epilog == "the disk rmx: job 7 is COMPLETED"


def test_a_step_of_a_playbook_has_the_fields_of_the_protocol_and_no_other() -> None:
    whole = PlaybookStep(1, 2, "command", {"argv": ["true"]}, "ann", {"A": "b"}, True, True, 1.5, 60.0)
    travels = {**whole.wire(), "at_home": True, "parts": True}  # the way adds what concerns itself
    assert travels.keys() == set(steps.Step.__struct_encode_fields__)
    assert to_builtins(convert(travels, steps.Step)) == travels


def refusals() -> Iterator[tuple[str, str]]:
    """(file, code) of every code that the agents refuse with."""
    for name, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                first = node.args[0] if node.args else None
                if node.func.id in ("SpoolError", "KernelRefused") and isinstance(first, ast.Constant):
                    yield name, first.value


def test_the_daemon_knows_every_code() -> None:
    found = list(refusals())
    assert len(found) > 20
    unknown = [one for one in found if Code(one[1]) is Code.UNKNOWN]
    assert not unknown


def unread(sent: Any, read: Any, place: str = "") -> Iterator[str]:
    """The fields of an agent's message that its type does not have."""
    if isinstance(sent, dict) and isinstance(read, dict):
        for name, value in sent.items():
            if name in read:
                yield from unread(value, read[name], f"{place}.{name}")
            else:
                yield f"{place}.{name}"
    elif isinstance(sent, list) and isinstance(read, list):
        for number, (one, other) in enumerate(zip(sent, read, strict=True)):
            yield from unread(one, other, f"{place}[{number}]")


class Wire:
    """A real agent, spoken to as the daemon's channel does."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.number = 1_000_000
        self.asked: set[type] = set()

    def ask(self, request: Request[Any]) -> Any:
        """The answer, or the AgentError that the agent refused with."""

        self.number += 1
        self.asked.add(type(request))
        self.agent.send(request_line(self.number, request).rstrip(b"\n"))
        text = json.dumps(self.agent.answer(self.number)).encode()
        line = read_line(text)
        assert line is not None
        if line.ok:
            answer = read_answer(type(request), line.result)
            assert not list(unread(json.loads(text)["result"], to_builtins(answer)))
            return answer
        refused = read_refusal(text)
        assert refused.code not in (Code.BAD_REQUEST, Code.DEFECT, Code.NO_SUCH_OP, Code.UNKNOWN), refused
        return refused

    def news(self) -> list[Unasked]:
        found = []
        for message in self.agent.events:
            found.append(read_notification(message["event"], json.dumps(message).encode()))
            assert not list(unread(message, to_builtins(found[-1])))
        return found


@pytest.fixture
def wire() -> Iterator[Wire]:
    with agents() as start:
        yield Wire(start())


def launch(job: int, script: str = "#!/bin/sh\nexec sleep 600\n", **more: Any) -> attempts.Launch:
    fields: dict[str, Any] = {
        "user": USER, "script": script, "args": ["a"], "chdir": "/", "chdir_required": False,
        "env": {"A": "b"}, "tasks": [attempts.Task(rank=r, gpus=["GPU-1"], env={}) for r in (0, 1)],
        "mem_bytes_per_task": 0, "time_limit_us": 0, "grace_us": 100_000, "hold": False,
        "allow_root": ME == "root" and USER == "root", "not_after_us": FOREVER_US,
    }  # fmt: skip
    return attempts.Launch(job=job, attempt=1, epoch=7, **{**fields, **more})


def streams_to_itself(wire: Wire) -> None:
    """Windows of both ends come, with all of their fields, and the process ends with its last stream."""

    def ask(port: int, secret: str = "") -> latencybg.Latencybg:
        stream = latencybg.Stream(
            out=1, into=1, address="127.0.0.1", port=port, secret=secret, count=10, interval_us=10_000,
            histogram=True,
        )  # fmt: skip
        told: latencybg.Latencybg = wire.ask(latencybg.OrderLatencybg(epoch=7, streams=[stream]))
        return told

    assert wire.ask(latencybg.OrderLatencybg(epoch=7, streams=[])).life == 0
    first = ask(0)
    assert [stream for stream, _, _ in first.listening] == [1]
    ((stream, secret),) = first.secrets
    assert (stream, len(secret)) == (1, 16)
    told = until(
        lambda: one if (one := ask(first.port, secret)).received and one.sent else None, "windows come"
    )
    assert told.received[0].clock_error_us is not None
    assert told.received[0].histogram
    over = latencybg.OrderLatencybg(epoch=7, streams=[], life=told.life, done=1 << 40)
    assert wire.ask(over).listening == []
    assert wire.ask(latencybg.OrderLatencybg(epoch=7, streams=[])).life in (0, told.life)


def test_real_agents_take_every_request_and_say_nothing_else(wire: Wire) -> None:
    who = {"job": 1, "attempt": 1}
    order = {**who, "epoch": 7}
    here = {**who, "interface": NOWHERE}
    assert isinstance(wire.news()[0], Hello)
    assert wire.ask(hosts.Ping()).now_us > 0
    assert wire.ask(hosts.Facts()).cpus > 0
    assert wire.ask(hosts.Adopt(cluster="c1")).running == []
    launched = wire.ask(launch(1))
    assert [t.rank for t in launched.tasks] == [0, 1]
    grid = attempts.Grid(epoch_us=5, period_us=100_000, gate=True, pause_seq=1)
    assert wire.ask(attempts.Schedule(**order, schedule=grid)) is not None
    assert wire.ask(attempts.Schedule(**order, schedule=None)) is not None
    for most_us in (1_000_000, 0):
        assert wire.ask(network.Admission(**order, most_us=most_us)) is not None
    assert wire.ask(network.Admit(**order, number=1)) is not None
    assert wire.ask(network.Hold(**order, number=1, most_us=1_000)) is not None
    assert {t.state for t in wire.ask(attempts.Tasks()).tasks} == {attempts.TaskState.RUNNING}
    part = wire.ask(attempts.Logs(**who, rank=0, stream="out", offset=0, limit=100))
    assert (part.data, part.done) == ("", False)
    assert wire.ask(attempts.Logs(**who, rank=0, stream="out", offset=FOREVER_US, limit=100)).data == ""
    assert wire.ask(job_steps.JobSteps(**who)).steps == []
    assert wire.ask(job_steps.UsedNow(**who)) is not None
    assert wire.ask(attempts.Signalled(**order, signal=18)) is not None
    for number, frozen in enumerate((True, False), 1):
        freeze = attempts.Freeze(job=1, attempt=1, epoch=7, frozen=frozen, order=number)
        assert wire.ask(freeze) is not None
    assert wire.ask(attempts.SetLimit(**order, time_limit_us=600_000_000)) is not None
    piece = streams.Stream(**order, place=1, stream="0", offset=0, data="", ack=0)
    assert wire.ask(piece) is not None
    wire.agent.event("stream", job=1, place=1, gone=True)  # a job that has no steps
    held = wire.ask(launch(2, "#!/bin/sh\ntrue\n", hold=True))
    assert {t.state for t in held.tasks} == {attempts.TaskState.PREPARED}
    started = wire.ask(attempts.Start(job=2, attempt=1, epoch=7, not_after_us=FOREVER_US))
    assert len(started.tasks) == 2
    assert isinstance(wire.ask(launch(3, not_after_us=1)), AgentError)
    assert wire.ask(launch(3, not_after_us=1)).code is Code.TOO_LATE
    first = launch(4, "#!/bin/sh\ntrue\n", tasks=[attempts.Task(rank=0, gpus=[], env={})])
    follower = attempts.Follower(job=5, attempt=1, env={"A": None})
    both = attempts.Slice(job=4, attempt=1, epoch=7, first=first, followers=[follower], within_us=60_000_000)
    assert wire.ask(both).refused == []
    for job in (4, 5):
        wire.agent.event("exit", job=job)
        assert wire.ask(attempts.Discard(job=job, attempt=1, epoch=7)) is not None
    assert wire.ask(both).refused == [(4, 1), (5, 1)]
    assert wire.ask(launch(6)).tasks
    assert wire.ask(attempts.Forget(epoch=7, attempts=[(5, 1), (6, 1), (7, 1)])).left == [(6, 1)]
    assert wire.ask(attempts.Renew(epoch=7)).alive_us > 0
    wire.ask(attempts.Stop(**order, grace_us=0, why="cancel"))
    for rank in (0, 1):
        wire.agent.event("exit", job=1, rank=rank)
        wire.agent.event("exit", job=2, rank=rank)
    for job in (1, 2):
        assert wire.ask(attempts.Discard(job=job, attempt=1, epoch=7)) is not None
    shape = network.Shape(
        **order, interface=NOWHERE, rate_bps=1, priority=0, class_rate_bps=1, ceil_bps=1, queue_packets=0
    )
    for request in (
        shape,
        network.Unshape(**order, interface=NOWHERE),
        network.SetPath(**order, interface=NOWHERE, dscp=3),
        network.UnsetPath(**order, interface=NOWHERE),
        network.CountTraffic(**here),
        network.ShapeCounters(interface=NOWHERE),
        network.CountersNow(interface=NOWHERE),
        network.Watch(interface=NOWHERE, interval_us=1_000, duration_us=1_000),
        network.Profile(**here, duration_us=1_000),
        network.Pause(**who, length_us=1_000),
        network.Regulate(**order, interface=NOWHERE, duration_us=1_000, rank=0, phases=1),
    ):
        assert isinstance(wire.ask(request), AgentError)
    assert wire.ask(network.CountersNow(interface="lo")).tx_bytes >= 0
    assert wire.ask(network.Watch(interface="lo", interval_us=1_000, duration_us=1_000)).samples
    there = {"address": "127.0.0.1", "port": 9}
    assert isinstance(wire.ask(probes.ProbeTools()).iperf3, bool)
    assert wire.ask(probes.ProbeOneWay(**there, count=1, interval_us=1_000, offset_us=1)).received == 0
    assert wire.ask(probes.ProbeRoundTrip(**there, count=1, interval_us=1_000)).received == 0
    assert isinstance(wire.ask(probes.ProbeThroughput(**there, rate_bps=0, duration_us=1_000)), AgentError)
    assert isinstance(wire.ask(probes.ProbeMtu(**there)), AgentError)
    assert wire.ask(probes.ProbeTrace(address="127.0.0.1", tries=1, round_us=0)).reached
    assert wire.ask(probes.ProbeClock()).at_us > 0
    dns = probes.ProbeDns(query="x.test", record="a", nameserver="127.0.0.1", timeout_us=100_000)
    assert wire.ask(dns).error
    assert wire.ask(probes.ProbeHttp(url="http://127.0.0.1:9/", timeout_us=100_000)).error
    reflect = probes.Reflect(port=48_613, duration_us=1_000, idle_us=1_000, allow=["127.0.0.1"])
    assert wire.ask(reflect).answered == 0
    streams_to_itself(wire)
    step = {"id": 0, "task": 0, "op": "ping", "args": {"data": "pong"}}
    assert wire.ask(steps.Steps(steps=[step])).results[0]["id"] == 0
    assert wire.ask(attempts.Cancel(request=5)) is not None
    assert wire.asked == set(requests())
    assert {Hello, Started, Exit} <= {type(one) for one in wire.news()}


def test_what_a_program_writes_as_its_reports_always_fits(wire: Wire) -> None:
    lines = ["[0,1,2,3,4,5]", "[true,1,2,3,4,null]", "[7,1,2,3,4,null]", "[0,1e300,2,3,4,5]", "[" * 5_000]
    text = "\\n".join(lines)
    script = f"#!/bin/sh\nprintf '{text}\\n' >> $RM_REPORTS\nexec sleep 600\n"
    wire.ask(launch(1, script))
    wire.agent.event("iterations", job=1)
    told = [one for one in wire.news() if isinstance(one, Iterations)]
    assert all(item == (item[0], 1, 2, 3, 4, 5) for one in told for item in one.items)
    wire.ask(attempts.Stop(job=1, attempt=1, epoch=7, grace_us=0, why="cancel"))
    for rank in (0, 1):
        wire.agent.event("exit", job=1, rank=rank)
