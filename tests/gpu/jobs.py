"""Jobs that do something with GPUs, and what their tasks say."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from tests.cluster import WAIT_S, Cluster

SLURM = Path("slurm")  # below the cluster's directory


def task(cluster: Cluster, *words: str) -> str:
    """The command of a task, as the shell of a job runs it."""
    return " ".join(["/usr/bin/python3", f"{cluster.directory}/gpu_task.py", *words])


def submit(cluster: Cluster, *options: str, script: str) -> int:
    path = cluster.directory / "job.sh"
    path.write_text(f"#!/bin/sh\n{script}\n")
    return cluster.submit(*options, path)


def told(cluster: Cluster, job: int, rank: int = 0) -> list[dict[str, Any]]:
    """What tasks have said so far in the log of a task."""
    return [json.loads(line) for line in cluster.said(job, rank).splitlines() if line.startswith("{")]


def run(cluster: Cluster, *options: str, script: str, wait_s: float = WAIT_S) -> list[list[dict[str, Any]]]:
    """What the tasks of a job said, by rank."""
    return said_by(cluster, submit(cluster, *options, script=script), wait_s)


def said_by(cluster: Cluster, number: int, wait_s: float = WAIT_S) -> list[list[dict[str, Any]]]:
    """The same of a job that was submitted, and must succeed."""
    job = cluster.wait(number, wait_s=wait_s)
    ranks = [one["rank"] for one in job["tasks"]]
    logs = [cluster.log(job["id"], rank, stream) for rank in ranks for stream in ("out", "err")]
    assert job["state"] == "COMPLETED", (job["reason"], logs)
    return [told(cluster, job["id"], rank) for rank in ranks]


def slurm(cluster: Cluster, program: str, *words: str) -> str:
    """What a command of Slurm's prints."""
    folder = cluster.directory / SLURM
    if not folder.exists():
        cluster.rmx("slurm-shims", folder)
    env = {**os.environ, "RM_DAEMON__SOCKET": cluster.socket}
    done = subprocess.run(
        [folder / program, *words], env=env, capture_output=True, text=True, timeout=WAIT_S, check=True
    )
    return done.stdout
