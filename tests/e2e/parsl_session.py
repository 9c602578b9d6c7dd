"""A block of two hosts, which parsl's provider submits and its launcher starts by `srun`, squares numbers.
Arguments: a folder, and this machine's address there."""

from __future__ import annotations

import os
import socket
import sys
import time

import parsl
from parsl import python_app
from parsl.config import Config
from parsl.executors import HighThroughputExecutor
from parsl.jobs.states import JobState
from parsl.launchers import SrunLauncher
from parsl.providers import SlurmProvider


@python_app
def square(number: int) -> tuple[int, str]:
    import socket
    import time

    time.sleep(0.5)  # long enough for both hosts to have some
    return number * number, socket.gethostname()


def main(folder: str, address: str) -> None:
    provider = SlurmProvider(
        nodes_per_block=2, init_blocks=1, max_blocks=1, walltime="00:10:00", exclusive=False,
        cores_per_node=1,
        launcher=SrunLauncher(), worker_init=f"export PATH={os.path.dirname(sys.executable)}:$PATH",
        scheduler_options="#SBATCH --comment=parsl",
    )  # fmt: skip
    executor = HighThroughputExecutor(
        label="blocks", address=address, max_workers_per_node=1, provider=provider
    )
    with parsl.load(Config(executors=[executor], run_dir=f"{folder}/runs")):
        found = [one.result() for one in [square(number) for number in range(10)]]
        assert [number for number, _ in found] == [n * n for n in range(10)]
        assert {host for _, host in found} == {"z1h1", "z1h2"}
        (job,) = executor.blocks_to_job_id.values()
        (status,) = provider.status([job])
        assert status.state is JobState.RUNNING, status
    assert socket.gethostname() not in {host for _, host in found}
    until = time.monotonic() + 60
    while provider.status([job])[0].state is JobState.RUNNING and time.monotonic() < until:
        time.sleep(1)
    assert provider.status([job])[0].state in (JobState.CANCELLED, JobState.COMPLETED)
    print("done")


if __name__ == "__main__":
    main(*sys.argv[1:])
