"""The demo's jobs: batch scripts with the training program inside, submitted as any user would."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rm.adapters.playbook.shipped import shipped_directory
from rm.api.jobs import Iterations, Job
from rm.api.network import Link
from rm.api.reasons import Schedule, Why
from rm.core.model.asked.traffic import TrafficProfile
from rm.demo.again import Spoiled
from rm.demo.scenario import Training
from rm.demo.stage import Stage
from rm.errors import RmError, TimedOut

END = "END_OF_PROGRAM"
POLL_S = 0.5
PATIENCE_S = 90.0
REPORTS_S = 3.0
UNFINISHED = "PENDING,CONFIGURING,RUNNING,COMPLETING"


@dataclass(frozen=True, slots=True)
class Iteration:
    """From one origin to the next, on the hosts' clock; `paused_us` of it waiting for its turn."""

    start_us: int
    duration_us: int
    paused_us: int
    comm_us: int

    @property
    def end_us(self) -> int:
        return self.start_us + self.duration_us

    @property
    def comm_begin_us(self) -> int:
        """It computes, communicates, and waits for the next one's turn."""
        return self.end_us - self.paused_us - self.comm_us


@dataclass(slots=True)
class JobRun:
    """One job of one run: where it ran, what it measured itself, and what rm said of it meanwhile."""

    training: Training
    job: int
    hosts: tuple[str, ...] = ()
    iterations: list[Iteration] = field(default_factory=list)
    pauses: int = 0
    schedule: Schedule | None = None
    links: dict[str, Link] = field(default_factory=dict)  # by host, those with a score
    why: Why | None = None
    done: int = 0  # iterations so far, and the last one's duration
    last_ms: float = 0.0


def batch_script(
    training: Training, program: str, iterations: int, start_delay_s: float, congestion: str
) -> str:
    """A self-contained batch script: each task has a GPU, and a host of its own where the job spreads."""
    layout = (
        f"--nodes={training.tasks} --ntasks-per-node=1" if training.spread else f"--ntasks={training.tasks}"
    )
    options = [
        f"--iterations={iterations}",
        f"--compute-ms={training.compute_ms:g}",
        f"--bytes={training.bytes}",
        f"--buckets={training.buckets}",
        f"--start-delay={start_delay_s:.3f}",
        # between two processes of one host it is the kernel's own, which only root may change
        *([f"--congestion-control={congestion}"] if training.spread else []),
        "--durations",
    ]
    return (
        "#!/bin/sh\n"
        f"#RM --job-name={training.name} --priority={training.priority} --time=10\n"
        f"#RM {layout} --gpus-per-task=1 --launch=tasks\n"
        f"exec python3 - {shlex.join(options)} <<'{END}'\n{program}\n{END}\n"
    )


def traffic_file(traffic: TrafficProfile) -> str:
    """The profile as `rmx submit --traffic FILE` reads it."""
    phases = [
        {"offset_us": p.offset_us, "duration_us": p.duration_us, "rate_bps": p.rate_bps}
        for p in traffic.phases
    ]
    return json.dumps({"period_us": traffic.period_us, "phases": phases}, indent=1) + "\n"


class Trainer:
    """Submits jobs and brings their figures home."""

    def __init__(self, stage: Stage, program: str, congestion: str) -> None:
        self._stage = stage
        self._program = program
        self._congestion = congestion

    def prepare(
        self,
        training: Training,
        iterations: int,
        start_delay_s: float,
        traffic: TrafficProfile | None,
        hosts: Sequence[str],
    ) -> list[str]:
        """Write the script (and the profile); the words of `submit` for it, each with `=`."""
        folder = self._stage.work
        script = folder / f"{training.name}.sh"
        text = batch_script(training, self._program, iterations, start_delay_s, self._congestion)
        script.write_text(text)
        words = [f"--file={script}", "--export=NONE", "--chdir=/tmp"]
        if traffic is not None:
            profile = folder / f"{training.name}.json"
            profile.write_text(traffic_file(traffic))
            words.append(f"--traffic={profile}")
        if hosts:
            words.append(f"--nodelist={','.join(hosts)}")
        return words

    def submit(self, training: Training, words: Sequence[str]) -> JobRun:
        answer = json.loads(self._stage.rmx("submit", *words, "--json"))
        return JobRun(training, int(answer["job"]))

    def submit_by_hook(self, training: Training, words: Sequence[str]) -> tuple[JobRun, str]:
        """The same as `rm submit …` in a shell with the hook; also returns the line as typed."""
        typed = shlex.join(["rm", "submit", *words])
        hook = 'eval "$(rmx shell-init bash)"\n'
        out = self._stage.run(["bash", "-c", f"{hook}{typed} --json"], "rm submit")
        return JobRun(training, int(json.loads(out)["job"])), typed

    def await_running(self, run: JobRun) -> None:
        end = time.monotonic() + PATIENCE_S
        while run.why is None:
            if time.monotonic() > end:
                raise Spoiled(f"Job {run.job} ({run.training.name}) did not start within {PATIENCE_S:g} s.")
            self._look([run])
            time.sleep(0.05)

    def follow(self, runs: Sequence[JobRun], show: Callable[[Sequence[JobRun]], None]) -> None:
        """Until all have ended well; meanwhile note what rm says of them."""
        end = time.monotonic() + PATIENCE_S
        waiting = list(runs)
        while waiting:
            self._look(runs)
            show(runs)
            first = waiting[0]
            try:
                ended = self._stage.client.wait(first.job, POLL_S)
            except TimedOut:
                if time.monotonic() > end:
                    state = self._stage.client.job(first.job).state
                    raise Spoiled(
                        f"Job {first.job} ({first.training.name}) is {state} after {PATIENCE_S:g} s."
                    ) from None
            else:
                self._collect(waiting.pop(0), ended)

    def end_all(self) -> None:
        """Cancel what still runs or waits, and see it end."""
        client = self._stage.client
        for job in client.jobs(state=UNFINISHED):
            client.cancel(job.id)
            client.wait(job.id)

    def _look(self, runs: Sequence[JobRun]) -> None:
        client = self._stage.client
        scored = {link.name: link for link in client.network.links() if link.score is not None}
        for run in runs:
            job = client.job(run.job)
            if job.state != "RUNNING":
                continue
            run.hosts = tuple(job.hosts)
            run.schedule = job.schedule or run.schedule
            run.links |= {h: scored[h] for h in run.hosts if h in scored and run.job in scored[h].jobs}
            reported = client.iterations(run.job)
            if reported.items:
                run.done, run.last_ms = reported.count, reported.items[-1][1] / 1000
            if run.why is None:
                run.why = client.why(run.job)

    def _collect(self, run: JobRun, job: Job) -> None:
        name = f"Job {run.job} ({run.training.name})"
        if job.state != "COMPLETED":
            said = self._log(run).strip().splitlines()
            raise RmError(f"{name} ended as {job.state}: {said[-1] if said else 'it printed nothing'}.")
        run.hosts = tuple(job.hosts)
        summary = json.loads(self._log(run).strip().splitlines()[-1])
        if not summary["correct"]:
            raise RmError(f"{name} reduced to a wrong result.")
        reported = self._reports(run, summary["iterations"])
        run.pauses = reported.pauses
        own = zip(summary["durations_ms"], summary["communications_ms"], reported.items, strict=True)
        run.iterations = [
            Iteration(item[0], round(1000 * duration), item[2], round(1000 * communication))
            for duration, communication, item in own
        ]

    def _reports(self, run: JobRun, expected: int) -> Iterations:
        """The job's iterations as rm knows them; its last reports may still be on their way."""
        end = time.monotonic() + REPORTS_S
        while True:
            reported = self._stage.client.iterations(run.job)
            if reported.count >= expected:
                return reported
            if time.monotonic() > end:
                raise Spoiled(
                    f"Of {expected} iterations of job {run.job} only {reported.count} were reported."
                )
            time.sleep(0.05)

    def _log(self, run: JobRun) -> str:
        return self._stage.rmx("logs", str(run.job))


def program_text() -> str:
    """The example that the jobs run."""
    return (shipped_directory("examples") / "allreduce.py").read_text(encoding="utf-8")
