"""An array and a job that waits for it, by simple_slurm. Argument: a folder."""

from __future__ import annotations

import datetime
import sys
import time
from pathlib import Path

from simple_slurm import Slurm


def main(folder: str) -> None:
    array = Slurm(
        array=range(3, 12, 4), cpus_per_task=1, job_name="squares", time=datetime.timedelta(minutes=2),
        output=f"{folder}/{Slurm.JOB_ARRAY_MASTER_ID}_{Slurm.JOB_ARRAY_ID}.out",
    )  # fmt: skip
    array.add_cmd("echo begins")
    first = array.sbatch("echo", Slurm.SLURM_ARRAY_TASK_ID)
    assert isinstance(first, int)
    last = Slurm("--dependency", {"afterok": first}, "--output", f"{folder}/last.out").sbatch("echo last")
    waits = Slurm("--begin", "now+1hour", "-J", "waits").sbatch("true")
    array.squeue.update_squeue()
    assert array.squeue.jobs[waits]["NAME"] == "waits", array.squeue.jobs
    array.scancel.cancel_job(waits)
    until = time.monotonic() + 100
    while not Path(folder, "last.out").exists() and time.monotonic() < until:
        time.sleep(0.5)
    for task in (3, 7, 11):
        assert Path(folder, f"{first}_{task}.out").read_text() == f"begins\n{task}\n"
    assert last > first
    assert Slurm().srun("echo hello") == 0
    print("done")


if __name__ == "__main__":
    main(*sys.argv[1:])
