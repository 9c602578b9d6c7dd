"""A job by qtoolkit, with which jobflow-remote asks Slurm: submitted, looked at by `squeue` and `scontrol`,
cancelled. Argument: a folder."""

from __future__ import annotations

import sys
import time

from qtoolkit.core.data_objects import CancelStatus, QResources, QState, SubmissionStatus
from qtoolkit.io.slurm import SlurmIO
from qtoolkit.manager import QueueManager


def main(folder: str) -> None:
    queue = QueueManager(SlurmIO())
    options = QResources(
        job_name="qtk", nodes=1, processes_per_node=1, time_limit=600, output_filepath="qtk.out"
    )
    said = queue.submit(["sleep 600"], options=options, work_dir=folder, script_fname="qtk.sh")
    assert said.status == SubmissionStatus.SUCCESSFUL, said
    job = said.job_id

    def until(state: QState) -> None:
        last = time.monotonic() + 100
        while queue.get_job(job).state != state:
            assert time.monotonic() < last, queue.get_job(job)
            time.sleep(0.5)

    until(QState.RUNNING)
    (listed,) = queue.get_jobs_list(jobs=[job])
    assert (listed.job_id, listed.name, listed.state) == (job, "qtk", QState.RUNNING), listed
    assert (listed.info.nodes, listed.info.cpus, listed.info.time_limit) == (1, 1, 600), listed.info
    whole = queue.get_job(job)
    assert (whole.name, whole.info.nodes, whole.info.time_limit) == ("qtk", 1, 600), whole
    cancelled = queue.cancel(job)
    assert (cancelled.status, cancelled.job_id) == (CancelStatus.SUCCESSFUL, job), cancelled
    until(QState.FAILED)
    print("done")


if __name__ == "__main__":
    main(*sys.argv[1:])
