"""mpirun and mpiexec inside a job, over three hosts, without SSH between them.

Open MPI, MPICH and mpi4py are in environments of their own, which `make frameworks` makes.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster import Cluster
from tests.e2e.conftest import MakeCluster

MPI = Path(__file__).parents[2] / ".venv-mpi"
installed = (MPI / ".installed").exists()
pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(not installed, reason="MPI is not installed: `make frameworks` installs and runs"),
]
HOSTS = 3
WAIT_S = 300  # of patience
PROGRAM = """
import os, socket
from mpi4py import MPI
world, env = MPI.COMM_WORLD, os.environ
total = world.allreduce(world.rank + 1)
words = ["rank", world.rank, "of", world.size, "on", socket.gethostname(), "sum", total, env.get("RANK")]
os.write(1, (" ".join(map(str, words)) + chr(10)).encode())
"""


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster) -> Cluster:
    settings = {"jobs": {"run_root_as": "", "allow_root": True}}  # whose interpreter may be root's own
    return make_cluster(settings, zones=1, hosts=HOSTS)


def run(cluster: Cluster, kind: str, launcher: str) -> tuple[list[str], list[str]]:
    """The job's hosts, and what the job printed."""
    home = MPI / kind / "bin"
    path = cluster.directory / f"{kind}.sh"
    path.write_text(f"#!/bin/bash\nexport PATH={home}:$PATH\n{launcher} {home}/python -c '{PROGRAM}'\n")
    job_id = cluster.submit("--nodes=3", "--ntasks-per-node=2", str(path))
    job = cluster.wait(job_id, wait_s=WAIT_S)
    said = cluster.log(job_id)
    assert job["state"] == "COMPLETED", said
    return job["hosts"], [line for line in said.splitlines() if line.startswith("rank")]


@pytest.mark.parametrize(
    ("kind", "launcher"),
    [
        ("openmpi", "mpirun --allow-run-as-root"),
        ("mpich", "mpirun"),
    ],
)
def test_all_ranks_on_all_hosts_reduce_together(cluster: Cluster, kind: str, launcher: str) -> None:
    hosts, lines = run(cluster, kind, launcher)
    expected = [f"rank {rank} of 6 on {hosts[rank // 2]} sum 21 None" for rank in range(6)]
    assert sorted(lines) == expected
