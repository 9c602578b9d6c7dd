"""`make ddp`: real PyTorch DDP training on lab hosts, two jobs on the same links, with and without rm.

Brings a lab and a daemon up, trains (examples/ddp.py, gradients all-reduced by Gloo over TCP), prints the
table and takes everything down. The jobs' interpreter is the one named with --python: an environment with
PyTorch, which the hosts see as it is. The forward pass is stretched to a given time by sleeping, because a
lab's hosts share a few cores; model, data, gradients, all-reduce and optimizer are real.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rm.cli.lab import default_directory
from rm.demo import scenario
from rm.demo.stage import Stage, remove, work_directory
from rm.errors import RmError, TimedOut
from rm.lab import LabSpec, up

PROGRAM = Path(__file__).with_name("ddp.py")
LEFT_OUT_S = 4.0  # after the later start: connections warm up, and a silent job is noticed after 3 s
SEED = 1
ON_THE_WIRE = 1.06  # bytes on the link per byte of gradients
PATIENCE_S = 180.0
UNMANAGED, SHAPED, ROTATED, MANAGED = (
    {mode.name: mode for mode in scenario.MODES}[name]
    for name in ("unmanaged", "shaped", "rotated", "managed")
)


@dataclass(frozen=True)
class Training:
    """What a user submits. Gradients of one linear model, `megabytes` a step."""

    name: str
    compute_ms: float
    megabytes: float


@dataclass(frozen=True)
class Setting:
    name: str
    mode: scenario.Mode
    unhooked: bool = False
    apart: bool = False  # each job on hosts of its own: what it takes alone


NAMES = ("high", "low")  # of the jobs, and their priorities
SETTINGS = (
    Setting("alone", UNMANAGED, apart=True),
    Setting("unmanaged", UNMANAGED),
    Setting("shaping only", SHAPED),
    Setting("rotation only", ROTATED),
    Setting("managed, hooked", MANAGED),
    Setting("managed, unhooked", MANAGED, unhooked=True),
)


@dataclass(frozen=True)
class Outcome:
    """One job of one run, by rank 0's own clock; `within` are its iterations while both jobs trained.

    `held_ms` is how long rm made it wait, as rm tells it: by itself when hooked, else frozen.
    """

    summaries: list[dict[str, Any]]
    within: list[float]
    held_ms: float


Runs = dict[str, list[dict[str, Outcome]]]  # by setting; of each run the jobs by name


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Runner:
    def __init__(self, stage: Stage, jobs: Sequence[Training], python: Path, iterations: int) -> None:
        self.stage = stage
        self.jobs = jobs
        self.python = python
        self.iterations = iterations
        self.periods_ms: dict[str, float] = {}
        self.shapes = True
        self.chance = random.Random(SEED)

    def prepare(self) -> None:
        """Playbooks, daemon, hosts, as an administrator does it."""
        stage, inventory = self.stage, str(self.stage.lab.inventory)
        stage.configure(UNMANAGED)
        for name in ("bootstrap", "agents") if stage.full_root else ("agents",):
            stage.rmx("playbook", "run", name, "--inventory", inventory, inside=True)
        try:
            stage.rmx("playbook", "run", "shaping", "--inventory", inventory, inside=True)
        except RmError:
            self.shapes = False
        for host in stage.lab.hosts:
            self._open_the_way(host.name)
        stage.start_daemon(UNMANAGED)
        stage.rmx("host", "import", inventory)
        stage.await_hosts()

    def _open_the_way(self, host: str) -> None:
        """Jobs run as a user who may not enter a home directory; on this host's disk it may be opened."""
        lab = self.stage.lab
        # what lies below a shared directory is this machine's and stays as it is
        ways = {way for shared in lab.spec.share for way in Path(shared).parents if way != Path("/")}
        lab.exec(host, ["chmod", "o+x", *(str(way) for way in sorted(ways))])
        user = ["setpriv", "--reuid=rmjob", "--clear-groups"] if self.stage.full_root else []
        done = lab.exec(host, [*user, str(self.python), "-c", "import torch.distributed"])
        if done.returncode:
            told = done.stderr.decode(errors="replace").strip().splitlines()
            raise RmError(
                f"PyTorch cannot be used on {host}: {told[-1] if told else 'no answer'}.",
                f"Is {self.python} readable for every user?",
            )

    def submit(self, training: Training, setting: Setting, hosts: str) -> int:
        options = [f"--iterations={self.iterations}", f"--compute-ms={training.compute_ms:g}"]
        options += [f"--megabytes={training.megabytes:g}", "--durations"]
        options += ["--unhooked"] * setting.unhooked
        script = self.stage.work / f"{training.name}.sh"
        script.write_text(
            f"#!/bin/sh\nexport OMP_NUM_THREADS=1\n"
            f"exec {shlex.quote(str(self.python))} - {shlex.join(options)} <<'END_OF_PROGRAM'\n"
            f"{PROGRAM.read_text()}\nEND_OF_PROGRAM\n"
        )
        words = [f"--job-name={training.name}", f"--priority={training.name}", "--time=10"]
        words += ["--nodes=2", "--ntasks-per-node=1", "--gpus-per-task=1", f"--nodelist={hosts}"]
        words += ["--export=NONE", "--chdir=/tmp", "--parsable"]
        if period_ms := self.periods_ms.get(training.name):
            profile = self.stage.work / f"{training.name}.json"
            profile.write_text(traffic_file(period_ms, training))
            words.append(f"--traffic={profile}")
        return int(self.stage.rmx("submit", *words, str(script)))

    def run(self, setting: Setting) -> dict[str, Outcome]:
        """Both jobs once, the second submitted at a random moment of the first one's iterations."""
        self.stage.start_daemon(setting.mode)
        self.stage.await_hosts()
        pairs = ("z1h1,z1h2", "z2h1,z2h2") if setting.apart else ("z1h1,z1h2",) * 2
        ids = {}
        for training, hosts in zip(self.jobs, pairs, strict=True):
            ids[training.name] = self.submit(training, setting, hosts)
            time.sleep(self.chance.uniform(0.0, 0.2))
        found = {name: self._summaries(job, name) for name, job in ids.items()}
        ends = {n: s[0]["begin_us"] + 1000 * sum(s[0]["durations_ms"]) for n, s in found.items()}
        begin = max(s[0]["begin_us"] for s in found.values()) + 1e6 * LEFT_OUT_S
        outcomes = {}
        for name, summaries in found.items():
            within = _between(summaries[0], begin, min(ends.values()))
            if len(within) < 10:
                raise RmError("The jobs hardly trained at the same time: this machine is too busy.")
            told = self.stage.client.iterations(ids[name]).items
            outcomes[name] = Outcome(summaries, within, sum(item[2] for item in told) / 1000)
        return outcomes

    def _summaries(self, job: int, name: str) -> list[dict[str, Any]]:
        try:
            ended = self.stage.client.wait(job, PATIENCE_S)
        except TimedOut:
            state = self.stage.client.job(job).state
            raise RmError(f"Job {job} ({name}) is {state} after {PATIENCE_S:g} s.") from None
        logs = [self.stage.rmx("logs", str(job), f"--task={rank}").strip().splitlines() for rank in (0, 1)]
        if ended.state != "COMPLETED":
            errors = self.stage.rmx("logs", str(job), "--stderr").strip().splitlines()
            last = (errors or logs[0] or ["it printed nothing"])[-1]
            raise RmError(f"Job {job} ({name}) ended as {ended.state}: {last}")
        return [json.loads(lines[-1]) for lines in logs]


def traffic_file(period_ms: float, training: Training) -> str:
    """The job's profile: it computes, then all-reduces until the iteration ends.

    Of two ranks each sends its gradients once; headers and acknowledgements take the link, too.
    """
    comm_us = round(training.megabytes * 8e6 / scenario.LINK_MBPS * ON_THE_WIRE)
    period_us = round(1000 * period_ms)
    phase = {
        "offset_us": period_us - comm_us,
        "duration_us": comm_us,
        "rate_bps": scenario.LINK_MBPS * 1_000_000,
    }
    return json.dumps({"period_us": period_us, "phases": [phase]})


def environment_of(python: Path) -> tuple[str, ...]:
    """The directories that hosts must see: the virtual environment's and its base interpreter's."""
    words = [str(python), "-c", "import sys; print(sys.prefix, sys.base_prefix, sep='\\n')"]
    try:
        found = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError) as error:
        raise RmError(f"{python} cannot be run: {error}.", "`make ddp` makes the environment.") from None
    return tuple(path for path in dict.fromkeys(found) if not Path(path).is_relative_to("/usr"))


def _between(summary: dict[str, Any], begin_us: float, end_us: float) -> list[float]:
    at, found = summary["begin_us"], []
    for duration in summary["durations_ms"]:
        if at >= begin_us and at + 1000 * duration <= end_us:
            found.append(duration)
        at += 1000 * duration
    return found


def percentile(values: list[float], percent: int) -> float:
    ordered = sorted(values)
    return ordered[max(0, -(-percent * len(ordered) // 100) - 1)]


def table(runs: Runs) -> list[str]:
    lines = [f"{'':<20}{'job':<6}{'mean ms':>9}{'p90 ms':>9}{'of alone':>10}   mean of each run"]
    alone = {name: statistics.mean(_all(runs["alone"], name)) for name in NAMES}
    for setting, found in runs.items():
        for name in NAMES:
            values = _all(found, name)
            mean = statistics.mean(values)
            each = "  ".join(f"{statistics.mean(run[name].within):.1f}" for run in found)
            lines.append(
                f"{setting if name == NAMES[0] else '':<20}{name:<6}{mean:>9.1f}"
                f"{percentile(values, 90):>9.1f}{mean / alone[name]:>10.3f}   {each}"
            )
    return lines


def _all(runs: list[dict[str, Outcome]], name: str) -> list[float]:
    return [value for run in runs for value in run[name].within]


def verdict(runs: Runs) -> list[str]:
    """What the table says, in words, whichever way it went."""
    both = {s: statistics.mean(v for name in NAMES for v in _all(found, name)) for s, found in runs.items()}
    lines = []
    for setting, mean in both.items():
        if setting not in ("alone", "unmanaged"):
            change = 100 * (1 - mean / both["unmanaged"])
            word = f"{change:.1f} % faster than" if change >= 1 else (
                f"{-change:.1f} % slower than" if change <= -1 else "no gain over"
            )  # fmt: skip
            lines.append(f"{setting}: {word} unmanaged")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", required=True, help="the interpreter of an environment with PyTorch")
    parser.add_argument("--iterations", type=int, default=85)
    parser.add_argument("--compute-ms", type=float, nargs=2, default=(105.0, 95.0), metavar=("HIGH", "LOW"))
    parser.add_argument("--megabytes", type=float, default=1.05, help="gradients of each job's step")
    parser.add_argument("--repeats", type=int, default=1, help="runs of each setting, in turns")
    parser.add_argument("--json", metavar="FILE", help="write the figures there, too")
    chosen = parser.parse_args()
    python = Path(chosen.python).absolute()
    with work_directory(default_directory().parent) as work, ExitStack() as stack:
        spec = LabSpec(
            zones=2, hosts=4, gpus_per_host=2, link_mbps=scenario.LINK_MBPS,
            queue_packets=scenario.QUEUE_PACKETS, congestion_control=scenario.CONGESTION_CONTROL,
            share=environment_of(python),
        )  # fmt: skip
        stack.callback(remove, work)
        lab = up(spec, work / "lab", progress=say)
        stage = Stage(lab, work)
        stack.callback(stage.stop_daemon)
        named = zip(NAMES, chosen.compute_ms, strict=True)
        jobs = [Training(name, compute_ms, chosen.megabytes) for name, compute_ms in named]
        runner = Runner(stage, jobs, python, chosen.iterations)
        runner.prepare()
        say("the hosts are ready, and PyTorch can be imported on them")
        settings = [s for s in SETTINGS if runner.shapes or s.mode is not SHAPED]
        runs: Runs = {setting.name: [] for setting in settings}
        for repeat in range(chosen.repeats):
            for setting in settings:
                found = runner.run(setting)
                runs[setting.name].append(found)
                means = {name: statistics.mean(o.within) for name, o in found.items()}
                if setting.apart and not runner.periods_ms:
                    runner.periods_ms = {name: statistics.median(o.within) for name, o in found.items()}
                told = ", ".join(f"{name} {mean:.1f} ms" for name, mean in means.items())
                say(f"{setting.name}, run {repeat + 1}: {told}")
        say("taking everything down")
    print(*table(runs), "", *verdict(runs), "", *proof(runs), sep="\n")
    if not runner.shapes:
        print("Managed is without shaping: `rmx playbook run shaping` finds that this lab's hosts cannot.")
    if chosen.json:
        Path(chosen.json).write_text(json.dumps(figures(runs), indent=1) + "\n")
    return 0


def proof(runs: Runs) -> list[str]:
    """That it was training, under which conditions, and how much it was made to wait."""
    everyone = [(s, o) for s, found in runs.items() for run in found for o in run.values()]
    first = statistics.mean(o.summaries[0]["first_loss"] for _, o in everyone)
    last = statistics.mean(o.summaries[0]["last_loss"] for _, o in everyone)
    agree = sum(all(rank["replicas_agree"] for rank in o.summaries) for _, o in everyone)
    fell = sum(o.summaries[0]["last_loss"] < o.summaries[0]["first_loss"] for _, o in everyone)
    lines = [
        f"{len(everyone)} jobs trained: the loss fell in {fell} (mean {first:.3f} to {last:.3f}), "
        f"the replicas agree in {agree}.",
        f"Links {scenario.LINK_MBPS} Mbit/s, queue {scenario.QUEUE_PACKETS} packets, "
        f"{scenario.CONGESTION_CONTROL}; load of this machine {os.getloadavg()[0]:.1f}.",
    ]
    for setting in SETTINGS:
        if setting.mode is MANAGED and (found := runs.get(setting.name)):
            held = (f"{name} {sum(run[name].held_ms for run in found) / 1000:.1f} s" for name in NAMES)
            lines.append(f"Held back in all, {setting.name}: {', '.join(held)}.")
    return lines


def figures(runs: Runs) -> dict[str, Any]:
    return {
        setting: [
            {n: {"ranks": o.summaries, "within_ms": o.within, "held_ms": o.held_ms} for n, o in run.items()}
            for run in found
        ]
        for setting, found in runs.items()
    }


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RmError as error:
        sys.exit(f"make ddp: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
