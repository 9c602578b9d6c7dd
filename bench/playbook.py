"""A playbook of ten tasks on lab hosts: rm over warm agents and cold, Ansible with pipelining, and pyinfra.

All in one run, so that the ratios are of one machine at one time. Hosts, agents, the daemon and the tools
share its cores. With `--quick` only rm's own ways are measured.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.cluster import RMX, Cluster, cluster, environment
from bench.figure import Figure, Settings
from bench.peer_environment import peer_program
from bench.playbook_tasks import EMPTY, PLAYBOOK, PYINFRA, PYINFRA_HOST, TEMPLATE, UNDO
from bench.processor import processor_s
from rm.adapters.hosts.settings import SshSettings
from rm.adapters.playbook.agents import DaemonAgents
from rm.adapters.playbook.run import run_playbook
from rm.errors import RmError
from rm.lab import Lab
from rm.playbook.inventory.hosts import to_hosts
from rm.playbook.inventory.inventory import parse

FORKS = 16
PATIENCE_S = 1800.0
WARM_ANSIBLE, WARM_PYINFRA, COLD_ANSIBLE, COLD_PYINFRA = 60.0, 10.0, 12.0, 2.5  # times
START_S, STARTS = 0.25, 9  # of processor, and how many are measured
WARM_S = {64: 1.5}  # by the number of hosts: a warm run takes at most so long


@dataclass(frozen=True, slots=True)
class Way:
    """A tool in one way of use. `run` does the ten tasks on all hosts, and raises RmError if that fails."""

    name: str
    run: Callable[[], None]
    conditions: str


def run(settings: Settings) -> list[Figure]:
    with cluster(hosts=settings.hosts, zones=1) as made:
        assert made.lab is not None
        place = made.directory / "playbook"
        place.mkdir()
        (place / "templates").mkdir()
        for name, text in (
            ("facts.yml", PLAYBOOK.format(facts="true")), ("plain.yml", PLAYBOOK.format(facts="false")),
            ("empty.yml", EMPTY), ("undo.yml", UNDO), ("bench.conf.j2", TEMPLATE), ("deploy.py", PYINFRA),
            ("ansible.cfg", "[defaults]\n"),
        ):  # fmt: skip
            (place / name).write_text(text)
        figures = measured(made, made.lab, place, settings)
        return [*figures, start(made, made.lab, place), growth(made, made.lab, place)]


def measured(made: Cluster, lab: Lab, place: Path, settings: Settings) -> list[Figure]:
    """Ours are measured before, between and after the peers, whose runs take minutes: each peer is compared
    with what came right before and right after it. Of our own figures the median is told."""
    own, others = rm_ways(made, lab, place), [] if settings.quick else peers(lab, place, settings)
    times: dict[str, list[tuple[float, float]]] = {}
    for peer in (*others, None):
        for way in own:
            times.setdefault(way.name, []).append(twice(way, made, lab, place))
        if peer is not None:
            times[peer.name] = [twice(peer, made, lab, place)]
    took = {name: tuple(map(statistics.median, zip(*runs, strict=True))) for name, runs in times.items()}
    hosts = f"{len(lab.hosts)} hosts"
    figures = [
        Figure(
            f"{way.name}, {which} run, {hosts}",
            value,
            "s",
            way.conditions,
            WARM_S.get(len(lab.hosts)) if way.name.startswith("rmx, warm agents") else None,
        )
        for way in (*own, *others)
        for which, value in zip(("first", "second"), took[way.name], strict=True)
    ]
    order = [way.name for way in others]
    for ours, theirs, target in (
        ("rmx, warm agents", "ansible", WARM_ANSIBLE), ("rmx, cold", "ansible", COLD_ANSIBLE),
        ("rmx, warm agents, no facts", "ansible, no facts", WARM_ANSIBLE),
        ("rmx, warm agents, no facts", "pyinfra", WARM_PYINFRA),
        ("rmx, warm agents", "pyinfra", WARM_PYINFRA),
        ("rmx, cold, no facts", "pyinfra", COLD_PYINFRA),
    ):  # fmt: skip
        if theirs not in took:
            continue
        around = times[ours][order.index(theirs) :][:2] or times[ours]
        for index, which in enumerate(("first", "second")):
            ratio = took[theirs][index] / statistics.mean(one[index] for one in around)
            figures.append(
                Figure(f"{theirs} / {ours}, {which}", ratio, "times", target=target, at_least=True)
            )
    return figures


def twice(way: Way, made: Cluster, lab: Lab, place: Path) -> tuple[float, float]:
    """Seconds of the first run and of the second, which finds all done."""
    made.rmx("playbook", "run", str(place / "undo.yml"), "-i", str(lab.inventory))
    found = []
    for _ in range(2):
        since = time.perf_counter()
        way.run()
        found.append(time.perf_counter() - since)
    return found[0], found[1]


def tool(lab: Lab, place: Path, environment: dict[str, str], *argv: str | Path) -> Callable[[], None]:
    return partial(command, lab, [str(word) for word in argv], environment, place)


def rm_ways(made: Cluster, lab: Lab, place: Path) -> list[Way]:
    ours = partial(tool, lab, place, made.environment)
    at_hosts = ("-i", lab.inventory)
    nobody = (RMX, "--socket", place / "nobody", "playbook", "run")
    facts, plain = place / "facts.yml", place / "plain.yml"
    return [
        Way("rmx, warm agents", ours(RMX, "playbook", "run", facts, *at_hosts),
            "the whole command; steps over the daemon's channels"),
        Way("rmx, warm agents, no facts", ours(RMX, "playbook", "run", plain, *at_hosts),
            "the same with gather_facts: false"),
        Way("run_playbook, warm agents, no facts", in_process(made, lab, plain),
            "the same in a process that has already started and imported rm"),
        Way("rmx, cold", ours(*nobody, facts, *at_hosts),
            "no daemon: the whole command, connecting included"),
        Way("rmx, cold, no facts", ours(*nobody, plain, *at_hosts), "the same with gather_facts: false"),
    ]  # fmt: skip


def peers(lab: Lab, place: Path, settings: Settings) -> list[Way]:
    found = []
    if program := pyinfra_program(settings):
        hosts = pyinfra_inventory(lab, place)
        work = tool(lab, place, environment(), program, "-y", "--parallel", str(FORKS), hosts, "deploy.py")
        found.append(Way("pyinfra", work, f"{FORKS} at a time"))
    ansible = Path(sys.executable).with_name("ansible-playbook")
    if not ansible.exists():
        print("  Without ansible-playbook: install ansible-core beside rm to compare.")
        return found
    run_it = partial(tool, lab, place, ansible_environment(lab, place), ansible, "-i", lab.inventory)
    said = f"ansible-core, pipelining, {FORKS} forks"
    found.append(Way("ansible", run_it(place / "facts.yml"), said))
    found.append(Way("ansible, no facts", run_it(place / "plain.yml"), said))
    return found


def command(lab: Lab, argv: list[str], environment: dict[str, str], place: Path) -> None:
    done = subprocess.run(
        lab.enter_command(argv), env=environment, cwd=place, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RmError(f"`{' '.join(argv)}` failed: {(done.stderr or done.stdout).strip()[-1500:]}")


def start(made: Cluster, lab: Lab, place: Path) -> Figure:
    """What a command costs that has nothing to do on the hosts."""
    run_it = tool(
        lab, place, made.environment, RMX, "playbook", "run", place / "empty.yml", "-i", lab.inventory
    )
    used = []
    for _ in range(STARTS):
        before = processor_s()
        run_it()
        used.append(processor_s() - before)
    what = "rmx, a playbook without tasks, processor time"
    return Figure(what, statistics.median(used), "s", f"the whole command, {len(lab.hosts)} hosts", START_S)


def growth(made: Cluster, lab: Lab, place: Path) -> Figure:
    """How much longer warm agents take on all hosts than on a quarter of them, in turns."""
    few, many = (in_process(made, lab, place / "plain.yml", len(lab.hosts) // part) for part in (4, 1))
    times = []
    for _ in range(5):
        ratio = 1.0
        for work, sign in ((few, -1), (many, 1)):
            way = Way("", work, "")
            ratio *= twice(way, made, lab, place)[0] ** sign
        times.append(ratio)
    what = f"run_playbook, {len(lab.hosts)} hosts / {len(lab.hosts) // 4} hosts, first"
    return Figure(what, statistics.median(times), "times", "warm agents, no facts; 4 is linear")


def in_process(made: Cluster, lab: Lab, playbook: Path, count: int = 0) -> Callable[[], None]:
    """Without the interpreter's start, on the first `count` hosts (0: all); only where the hosts can be
    reached from here, as from root's labs."""
    hosts = to_hosts(parse(lab.inventory.read_text(), str(lab.inventory)))[: count or None]

    def work() -> None:
        report = run_playbook(
            playbook, hosts, SshSettings(known_hosts=lab.known_hosts), forks=FORKS,
            agents=DaemonAgents(made.client, lambda why: None),
        )  # fmt: skip
        if not report.ok:
            raise RmError(f"The playbook failed: {report.failures()[0]}")

    return work


def ansible_environment(lab: Lab, place: Path) -> dict[str, str]:
    options = f"-o ControlMaster=auto -o ControlPersist=60s -o UserKnownHostsFile={lab.known_hosts}"
    return {
        **environment(), "ANSIBLE_PIPELINING": "1", "ANSIBLE_FORKS": str(FORKS), "ANSIBLE_SSH_ARGS": options,
        "ANSIBLE_HOME": str(place / "ansible"), "ANSIBLE_CONFIG": str(place / "ansible.cfg"),
        "ANSIBLE_SSH_CONTROL_PATH_DIR": str(place / "cp"), "ANSIBLE_PYTHON_INTERPRETER": "/usr/bin/python3",
    }  # fmt: skip


def pyinfra_inventory(lab: Lab, place: Path) -> Path:
    path = place / "inventory.py"
    lines = [
        PYINFRA_HOST.format(name=h.name, address=h.address, key=lab.key, known_hosts=lab.known_hosts)
        for h in lab.hosts
    ]
    path.write_text("\n".join(["hosts = [", *lines, "]", ""]))
    return path


def pyinfra_program(settings: Settings) -> Path | None:
    """pyinfra needs an older paramiko than rm."""
    return peer_program("pyinfra", "pyinfra", ("pyinfra>=3,<4", "paramiko<5"), settings)
