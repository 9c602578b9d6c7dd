"""Two workers of dask, each a job, square numbers. Arguments: a folder, and this machine's address there."""

from __future__ import annotations

import socket
import sys

from dask.distributed import Client
from dask_jobqueue import SLURMCluster

WORKERS = 2
PATIENCE_S = 200


def square(number: int) -> int:
    return number * number


def main(folder: str, address: str) -> None:
    with SLURMCluster(
        cores=1, processes=1, memory="300MB", walltime="00:10:00", log_directory=folder,
        job_extra_directives=["--comment='of dask'"], scheduler_options={"host": address},
    ) as cluster:  # fmt: skip
        cluster.scale(jobs=WORKERS)
        with Client(cluster) as client:
            client.wait_for_workers(WORKERS, timeout=PATIENCE_S)
            assert client.gather(client.map(square, range(20))) == [n * n for n in range(20)]
            assert all(name.startswith("z1h") for name in client.run(socket.gethostname).values())
    print("done")


if __name__ == "__main__":
    main(*sys.argv[1:])
