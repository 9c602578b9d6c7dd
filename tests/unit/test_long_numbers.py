"""Numbers of more digits than Python reads, wherever a command takes one."""

from __future__ import annotations

import pytest

from tests.slurm_program import Slurm

LONG = "9" * 5000


@pytest.mark.parametrize(
    "line",
    [
        "scancel 1.{}", "scancel -u {}", "squeue --iterate={}", "sinfo --iterate={}", "sstat -j 1.{}",
        "scontrol update JobId=2 Shared={}", "scontrol update JobId=2 TimeLimit=+{}",
        "scontrol update JobId=2 TimeLimit={}", "scontrol update JobId=2 EndTime=now+{}",
        "scontrol update PartitionName=x PriorityTier={}", "scontrol update PartitionName=x MaxTime={}",
        "scontrol update JobId=2 NumNodes={}", "scontrol update JobId=2 MinMemoryNode={}",
        "scontrol update NodeName=h[1-{}] State=DRAIN Reason=x",
        "scontrol show job {}", "scontrol show hostnames h[1-{}]",
        "sacctmgr -i modify user x set MaxJobs={}", "sacctmgr -i modify user x set MaxWall={}",
        "sacct -S now-{}days", "sacct -i 1-{}", "sacct --timelimit-min={}", "sacct -k {}", "sacct -N h[1-{}]",
        "sreport user top TopCount={}", "sreport user top start=now-{}days",
        "squeue -w h[1-{}]", "sinfo -n h[1-{}]", "squeue -j 1_{}", "sprio -j {}",
    ],
)  # fmt: skip
@pytest.mark.usefixtures("jobs_of_slurm")
def test_are_answered_with_a_sentence(slurm: Slurm, line: str) -> None:
    assert "defect" not in slurm(*line.format(LONG).split()).err
