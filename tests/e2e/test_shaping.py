"""Traffic classes, byte counters and freezing on real kernel objects, in two namespaces of the test's own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import until

AGENTS = Path(__file__).parents[2] / "agents"
HIGH, LOW = 41, 42
ANSWER_S = 240  # of patience: at a load of 35 a profile of five seconds takes a minute
pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it makes network namespaces"),
    pytest.mark.skipif(
        not all(shutil.which(p, path=os.environ["PATH"] + ":/usr/sbin:/sbin") for p in ("ip", "tc", "nft")),
        reason="needs the packages iproute2 and nftables",
    ),
]

SEND = """
import socket, sys
link = socket.create_connection((sys.argv[1], int(sys.argv[2])))
while True:
    link.send(bytes(65536))
"""
SINK = """
import socket, threading
def drain(link):
    while link.recv(1 << 18):
        pass
server = socket.create_server(("10.98.7.2", 7777))
print("ready", flush=True)
while True:
    threading.Thread(target=drain, args=(server.accept()[0],), daemon=True).start()
"""


class Pair:
    """Two network namespaces with a link, and the agent's programs running in the first."""

    def __init__(self, state: Path) -> None:
        self.names = [f"rmt{os.getpid()}{end}" for end in "ab"]
        self.state, self.started = state, list[subprocess.Popen[str]]()
        a, b = self.names
        for name in self.names:
            self.run("ip", "netns", "add", name)
        self.run("ip", "link", "add", "eth7", "netns", a, "type", "veth", "peer", "name", "eth7", "netns", b)
        for name, address in ((a, "10.98.7.1/24"), (b, "10.98.7.2/24")):
            self.run("ip", "-n", name, "addr", "add", address, "dev", "eth7")
            self.run("ip", "-n", name, "link", "set", "eth7", "up")
            self.run("ip", "-n", name, "link", "set", "lo", "up")
        self.groups: list[Path] = []

    @staticmethod
    def run(*words: str) -> str:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout

    def start(
        self, side: int, *words: str, group: Path | None = None, **options: Any
    ) -> subprocess.Popen[str]:
        """A process in one of the namespaces (and a control group); `nsenter` keeps the cgroup mounts."""
        join = f"echo $$ > {group}/cgroup.procs && " if group else ""
        command = [
            "nsenter",
            f"--net=/run/netns/{self.names[side]}",
            "sh",
            "-c",
            join + 'exec "$@"',
            "sh",
            *words,
        ]
        environ = {**os.environ, "RM_AGENT_STATE": str(self.state)}
        process = subprocess.Popen(command, text=True, stdout=subprocess.PIPE, env=environ, **options)
        self.started.append(process)
        return process

    def ask(self, program: str, **request: Any) -> dict[str, Any]:
        """One request to an agent program in the first namespace; its result."""
        reply = self.reply(AGENTS / program, **request)
        assert reply["ok"], reply
        result: dict[str, Any] = reply["result"]
        return result

    @contextmanager
    def asking(self, program: str) -> Iterator[Callable[..., dict[str, Any]]]:
        """As `ask`, of one process that stays: an answer comes as soon as the kernel has it."""
        process = self.start(0, sys.executable, str(AGENTS / program), stdin=subprocess.PIPE)
        assert process.stdin is not None
        assert process.stdout is not None
        requests, replies = process.stdin, process.stdout

        def ask(**request: Any) -> dict[str, Any]:
            requests.write(json.dumps({"id": 1, **request}) + "\n")
            requests.flush()
            reply = json.loads(replies.readline())
            assert reply["ok"], reply
            result: dict[str, Any] = reply["result"]
            return result

        yield ask
        requests.close()  # its end
        assert process.wait(60) == 0

    def reply(self, program: Path, **request: Any) -> dict[str, Any]:
        process = self.start(0, sys.executable, str(program), stdin=subprocess.PIPE)
        out, _ = process.communicate(json.dumps({"id": 1, **request}) + "\n", timeout=ANSWER_S)
        answer: dict[str, Any] = json.loads(out.splitlines()[-1])
        return answer

    def group(self, job: int) -> Path:
        mount = next(
            m for m in ("/sys/fs/cgroup/unified", "/sys/fs/cgroup") if Path(m, "cgroup.procs").exists()
        )
        path = Path(mount, f"rm-{zlib.crc32(str(self.state).encode()):08x}", f"job_{job}_1")
        path.mkdir(parents=True, exist_ok=True)
        self.groups.append(path)
        return path

    def tc(self, *words: str) -> str:
        return self.run("tc", "-n", self.names[0], *words)

    def close(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.wait()
        for path in self.groups:
            if path.exists():
                (path / "cgroup.kill").write_text("1")
                until(lambda path=path: "populated 0" in (path / "cgroup.events").read_text(), "it is empty")
                path.rmdir()
        for parent in {path.parent for path in self.groups}:
            parent.rmdir()
        for name in self.names:
            self.run("ip", "netns", "del", name)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    try:
        yield made
    finally:
        made.close()


def shape(
    pair: Pair, job: int, priority: int, class_rate: int, rate: int = 50_000_000, **more: Any
) -> dict[str, Any]:
    return pair.ask(
        "rm_shape.py", op="shape", job=job, attempt=1, interface="eth7", rate_bps=rate, priority=priority,
        class_rate_bps=class_rate, ceil_bps=rate, queue_packets=30, **more,
    )  # fmt: skip


def verified(pair: Pair, job: int, priority: int, class_rate: int, **more: Any) -> dict[str, Any]:
    """The same until it is verified: its own packet may not have come through yet on a busy machine."""

    def tried() -> dict[str, Any] | None:
        told = shape(pair, job, priority, class_rate, **more)
        return told if told["verified"] else None

    answer: dict[str, Any] = until(tried, f"job {job} is verified")
    return answer


def skip_without_classifier(pair: Pair) -> None:
    """A kernel without `socket cgroupv2` cannot do this; say so instead of passing."""
    rule = "add table inet t; add chain inet t o { type filter hook output priority 0; }; "
    rule += 'add rule inet t o socket cgroupv2 level 1 "/" counter'
    done = subprocess.run(
        ["nsenter", f"--net=/run/netns/{pair.names[0]}", "nft", "-c", rule], capture_output=True, text=True
    )
    if "not supported" in done.stderr:
        pytest.skip("this kernel has no nftables socket expression")


def test_the_prior_job_keeps_its_rate_and_removal_restores_the_interface(pair: Pair) -> None:
    skip_without_classifier(pair)
    before = pair.tc("-d", "qdisc", "show", "dev", "eth7")
    high, low = pair.group(HIGH), pair.group(LOW)
    first, second = verified(pair, HIGH, 0, 1_000_000), verified(pair, LOW, 5, 1_000_000)
    assert first["class"] != second["class"]
    assert first["classifier"] == "cgroupv2"
    sink = pair.start(1, sys.executable, "-c", SINK)
    assert sink.stdout is not None
    assert sink.stdout.readline() == "ready\n"
    senders = [
        pair.start(0, sys.executable, "-c", SEND, "10.98.7.2", "7777", group=group) for group in (low, high)
    ]

    def sent() -> list[int]:
        counted = pair.ask("rm_shape.py", op="shape_counters", interface="eth7")["jobs"]
        return [counted[str(job)]["bytes"] for job in (HIGH, LOW)]

    def high_is_prior() -> bool:
        """While 12 MB are sent, 2 s at the least: a sender that gets no processor for long spoils it."""
        before = sent()
        until(lambda: sum(sent()) - sum(before) > 12_000_000, "both send")
        fast, slow = (now - then for now, then in zip(sent(), before, strict=True))
        return fast > 4 * slow > 0  # unshaped they would share equally

    until(high_is_prior, "the prior job keeps its rate")
    for sender in senders:
        sender.kill()
        sender.wait()
    fast, slow = sent()
    both = pair.ask("rm_shape.py", op="counters", interface="eth7")
    # the interface counts a packet before it is cut into segments, each with headers; the class after
    assert both["tx_bytes"] > 0.8 * (fast + slow)
    assert set(both["jobs"]) == {str(HIGH), str(LOW)}

    pair.ask("rm_shape.py", op="unshape", job=HIGH, attempt=1, interface="eth7")
    assert str(LOW) in pair.ask("rm_shape.py", op="shape_counters", interface="eth7")["jobs"]
    pair.ask("rm_shape.py", op="unshape", job=LOW, attempt=1, interface="eth7")
    assert pair.tc("-d", "qdisc", "show", "dev", "eth7") == before
    assert "rm_shape" not in pair.run("nsenter", f"--net=/run/netns/{pair.names[0]}", "nft", "list", "tables")


def programs(pair: Pair) -> list[int]:
    """The kernel's numbers of the programs that look at what leaves."""
    filters = json.loads(pair.tc("-j", "filter", "show", "dev", "eth7", "egress"))
    return [f["options"]["prog"]["id"] for f in filters if "prog" in f.get("options", {})]


def test_who_began_a_burst_first_has_the_link_until_it_is_too_long(pair: Pair) -> None:
    """Both jobs always send: one has the link for 300 ms, then the other; no process of ours changes it."""
    skip_without_classifier(pair)
    before = pair.tc("-d", "qdisc", "show", "dev", "eth7")
    groups = [pair.group(job) for job in (HIGH, LOW)]
    bursts = {"gap_us": 20_000, "longest_us": 300_000}
    try:
        shaped = [verified(pair, job, 1, 1_000_000, bursts=bursts) for job in (HIGH, LOW)]
    except AssertionError as refused:
        assert pair.tc("-d", "qdisc", "show", "dev", "eth7") == before
        if "no-bpf" in str(refused):
            pytest.skip("this kernel takes no such program")
        raise
    assert all(answer["classifier"] == "cgroupv2" for answer in shaped), shaped
    # each request meets a new process of the agent: it finds the program, which keeps what it knows
    (known,) = programs(pair)
    shape(pair, HIGH, 1, 1_000_000, bursts=bursts)
    assert programs(pair) == [known]
    shape(pair, HIGH, 1, 1_000_000, bursts={**bursts, "gap_us": 21_000})
    (other,) = programs(pair)
    assert other != known, "other times are another program"
    shape(pair, HIGH, 1, 1_000_000, bursts=bursts)
    sink = pair.start(1, sys.executable, "-c", SINK)
    assert sink.stdout is not None
    assert sink.stdout.readline() == "ready\n"
    for group in groups:
        pair.start(0, sys.executable, "-c", SEND, "10.98.7.2", "7777", group=group)

    with pair.asking("rm_shape.py") as ask:

        def sent() -> list[int]:
            counted = ask(op="counters", interface="eth7")["jobs"]
            return [counted[str(job)] for job in (HIGH, LOW)]

        def more_than(first: list[int]) -> list[int] | None:
            more = [now - then for now, then in zip(sent(), first, strict=True)]
            return more if max(more) > 200_000 else None  # bytes: 32 ms of the link

        def alone() -> int | None:
            """Which job sends more than four times as much as the other, for a tenth of a burst."""
            first = sent()
            more = until(lambda: more_than(first), "they send")
            return next((at for at in (0, 1) if more[at] > 4 * more[1 - at]), None)

        for job in (0, 1, 0):
            until(lambda job=job: alone() == job, f"job {job} has the link")
    for job in (HIGH, LOW):
        assert "clsact" in pair.tc("qdisc", "show", "dev", "eth7")
        pair.ask("rm_shape.py", op="unshape", job=job, attempt=1, interface="eth7")
    assert pair.tc("-d", "qdisc", "show", "dev", "eth7") == before


def test_a_kernel_that_takes_no_program_leaves_the_interface_as_it_was(pair: Pair, tmp_path: Path) -> None:
    skip_without_classifier(pair)
    for file in AGENTS.glob("rm_*.py"):
        shutil.copy(file, tmp_path)
    with open(tmp_path / "rm_bpf.py", "a") as file:
        file.write("\n\ndef call(command, attributes):\n    raise OSError(1, 'not permitted')\n")
    before = pair.tc("-d", "qdisc", "show", "dev", "eth7")
    pair.group(LOW)
    request: dict[str, Any] = {
        "op": "shape", "job": LOW, "attempt": 1, "interface": "eth7", "rate_bps": 50_000_000, "priority": 1,
        "class_rate_bps": 1_000_000, "ceil_bps": 50_000_000, "queue_packets": 30,
        "bursts": {"gap_us": 10_000, "longest_us": 1_000_000},
    }  # fmt: skip
    reply = pair.reply(tmp_path / "rm_shape.py", **request)
    assert (reply["ok"], reply["code"]) == (False, "no-bpf"), reply
    assert "not permitted" in reply["error"]
    told = subprocess.run(
        [sys.executable, "-c", "import rm_shape; print(*rm_shape.features()['missing'])"],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "bpf" in told.stdout.split()  # which `rmx hosts` shows
    assert pair.tc("-d", "qdisc", "show", "dev", "eth7") == before


def test_a_job_that_has_ended_is_said_to_be_gone_and_leaves_nothing(pair: Pair) -> None:
    """It ends while it is asked for: no kernel is to blame, and its class is not left behind."""
    skip_without_classifier(pair)
    before = pair.tc("-d", "qdisc", "show", "dev", "eth7")
    request: dict[str, Any] = {
        "op": "shape", "job": LOW, "attempt": 1, "interface": "eth7", "rate_bps": 50_000_000, "priority": 1,
        "class_rate_bps": 1_000_000, "ceil_bps": 50_000_000, "queue_packets": 30,
    }  # fmt: skip

    def refused() -> None:
        reply = pair.reply(AGENTS / "rm_shape.py", **request)
        assert (reply["ok"], reply["code"]) == (False, "no-such-attempt"), reply
        assert reply["error"] == f"job {LOW} (attempt 1) has no processes here"

    refused()
    assert pair.tc("-d", "qdisc", "show", "dev", "eth7") == before
    pair.group(HIGH)
    verified(pair, HIGH, 0, 1_000_000)
    classes = pair.tc("class", "show", "dev", "eth7")
    refused()
    # which of them is shown first, the kernel says
    assert sorted(pair.tc("class", "show", "dev", "eth7").splitlines()) == sorted(classes.splitlines())


RECEIVED = """
table ip seen {
  chain input {
    type filter hook input priority 0
    ip dscp 7 counter
    ip dscp 11 counter
  }
}
"""


def test_a_job_s_packets_get_the_code_point_of_their_path(pair: Pair) -> None:
    skip_without_classifier(pair)
    group = pair.group(HIGH)
    there = ["nsenter", f"--net=/run/netns/{pair.names[1]}", "nft"]
    subprocess.run([*there, "-f", "-"], input=RECEIVED, text=True, check=True)

    def seen() -> list[int]:
        listed = json.loads(pair.run(*there, "-j", "list", "table", "ip", "seen"))["nftables"]
        rules = [entry["rule"]["expr"] for entry in listed if "rule" in entry]
        return [part["counter"]["bytes"] for expr in rules for part in expr if "counter" in part]

    def path(dscp: int) -> dict[str, Any]:
        return pair.ask("rm_path.py", op="path", job=HIGH, attempt=1, interface="eth7", dscp=dscp)

    answer = until(lambda: (told := path(7))["verified"] and told, "a packet gets it")
    assert answer["classifier"] == "cgroupv2"
    sink = pair.start(1, sys.executable, "-c", SINK)
    assert sink.stdout is not None
    assert sink.stdout.readline() == "ready\n"
    for joined in (group, None):  # what others send stays as it is
        pair.start(0, sys.executable, "-c", SEND, "10.98.7.2", "7777", group=joined)
    until(lambda: seen()[0] > 1_000_000, "it is on what the job sends")
    assert seen()[1] == 0
    path(11)  # while it runs
    until(lambda: seen()[1] > 1_000_000, "the job takes another path")
    pair.ask("rm_path.py", op="unpath", job=HIGH, attempt=1, interface="eth7")
    assert "rm_path" not in pair.run("nsenter", f"--net=/run/netns/{pair.names[0]}", "nft", "list", "tables")


def test_shaping_again_changes_a_running_class_in_place(pair: Pair) -> None:
    skip_without_classifier(pair)
    pair.group(HIGH)
    first = verified(pair, HIGH, 5, 1_000_000)

    def counts() -> dict[str, int]:
        told: dict[str, dict[str, int]] = pair.ask("rm_shape.py", op="shape_counters", interface="eth7")[
            "jobs"
        ]
        return told[str(HIGH)]

    # a class counts what has left it, a moment after that was seen in it
    counted = until(lambda: (found := counts())["packets"] and found, "its packet is counted")
    again = shape(pair, HIGH, 0, 2_000_000)
    assert again["class"] == first["class"]
    shown = pair.tc("class", "show", "dev", "eth7", "classid", first["class"])
    assert "prio 0" in shown
    assert "rate 2Mbit" in shown
    # the same class and queue, with what they have counted
    now = counts()
    assert now["packets"] >= counted["packets"] > 0


@pytest.mark.parametrize(
    "found",
    [
        [
            "qdisc add dev eth7 root handle 10: tbf rate 20mbit burst 16k latency 30ms",
            "qdisc replace dev eth7 parent 10:1 handle 11: pfifo limit 30",
        ],
        [
            "qdisc add dev eth7 root handle 1: htb default 10",
            "class add dev eth7 parent 1: classid 1:10 htb rate 20mbit burst 16k quantum 6000",
            "qdisc add dev eth7 parent 1:10 handle 10: pfifo limit 40",
        ],
    ],
    ids=["tbf", "htb"],
)
def test_a_limit_found_on_the_interface_stays_in_force(pair: Pair, found: list[str]) -> None:
    skip_without_classifier(pair)
    for line in found:
        pair.tc(*line.split())
    before = pair.tc("-d", "qdisc", "show", "dev", "eth7") + pair.tc("class", "show", "dev", "eth7")
    group = pair.group(HIGH)
    verified(pair, HIGH, 0, 1_000_000, rate=1_000_000_000)
    sink = pair.start(1, sys.executable, "-c", SINK)
    assert sink.stdout is not None
    sink.stdout.readline()
    sender = pair.start(0, sys.executable, "-c", SEND, "10.98.7.2", "7777", group=group)

    def sent() -> int:
        return int(pair.ask("rm_shape.py", op="shape_counters", interface="eth7")["jobs"][str(HIGH)]["bytes"])

    until(lambda: sent() > 1_000_000, "it sends")
    began = time.monotonic()
    counted = sent()
    until(lambda: sent() - counted > 5_000_000, "it sends 5 MB")
    assert time.monotonic() - began > 1.5  # 2 s at 20 Mbit/s, 0.04 s at 1 Gbit/s: it may only be slower
    sender.kill()
    sender.wait()
    pair.ask("rm_shape.py", op="unshape", job=HIGH, attempt=1, interface="eth7")
    assert pair.tc("-d", "qdisc", "show", "dev", "eth7") + pair.tc("class", "show", "dev", "eth7") == before
