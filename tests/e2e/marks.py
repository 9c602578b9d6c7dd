"""Tasks that leave marks on their hosts, and wait for one: which attempts ran there, seen past the daemon."""

from __future__ import annotations

from pathlib import Path

from tests.cluster import Cluster

# each task leaves one line for each time it ran, where a reboot does not wipe it
MARK = "echo $RM_ATTEMPT >>/var/tmp/ran.$SLURM_JOB_ID.$RANK"
GO = "while [ ! -e /var/tmp/go.$SLURM_JOB_ID ]; do sleep 0.2; done"  # each costs a process


def runs(cluster: Cluster, job: int, rank: int = 0) -> list[str]:
    """The attempts in which the rank ran, on any host."""
    return [
        line
        for host in cluster.lab.hosts
        for line in cluster.read(host.name, f"/var/tmp/ran.{job}.{rank}").split()
    ]


def go(cluster: Cluster, job: int) -> None:
    for host in cluster.lab.statuses():
        if host.state == "up":
            cluster.lab.exec(host.name, ["touch", f"/var/tmp/go.{job}"])


def no_defects(cluster: Cluster) -> None:
    """Whatever happened: no traceback, and no 'defect of rm' in the daemon's log."""
    text = Path(cluster.log_file).read_text()
    assert "Traceback" not in text
    assert "defect" not in text
