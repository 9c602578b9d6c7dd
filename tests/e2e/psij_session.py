"""Jobs of PSI/J by its Slurm executor: one of two hosts, one that fails, one that is cancelled. Argument: a
folder, which is HOME as well."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path

from psij import Job, JobAttributes, JobExecutor, JobSpec, JobState, ResourceSpecV1
from psij.executors.batch.slurm import SlurmExecutorConfig

PATIENCE = timedelta(seconds=120)


def main(folder: str) -> None:
    config = SlurmExecutorConfig(queue_polling_interval=1, initial_queue_polling_delay=1)
    executor = JobExecutor.get_instance("slurm", config=config)

    def submitted(command: str, hosts: int = 1, launcher: str = "single") -> Job:
        job = Job(JobSpec(
            executable="/bin/sh", arguments=["-c", command], directory=Path(folder), launcher=launcher,
            stdout_path=Path(folder, f"psij-{len(jobs)}.out"), name=f"psij-{len(jobs)}",
            resources=ResourceSpecV1(node_count=hosts, processes_per_node=1, cpu_cores_per_process=1),
            attributes=JobAttributes(duration=timedelta(minutes=5)),
        ))  # fmt: skip
        executor.submit(job)
        jobs.append(job)
        return job

    jobs: list[Job] = []
    wide, bad = submitted("echo task on $(hostname)", 2, "srun"), submitted("exit 3")
    waits = submitted("sleep 600")
    assert str(wide.native_id) in executor.list()
    waits.wait(timeout=PATIENCE, target_states=[JobState.ACTIVE])
    waits.cancel()
    found = [job.wait(timeout=PATIENCE) for job in (wide, bad, waits)]
    states = [status.state if status else None for status in found]
    assert states == [JobState.COMPLETED, JobState.FAILED, JobState.CANCELED], found
    assert [status.exit_code for status in found if status][1] == 3, found
    said = sorted(Path(folder, "psij-0.out").read_text().splitlines())
    assert said == ["task on z1h1", "task on z1h2"], said
    print("done")


if __name__ == "__main__":
    main(*sys.argv[1:])
