"""PyTorch on a real GPU as a job: torch.cuda, and DDP over NCCL, hooked or not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cluster import Cluster
from tests.gpu.conftest import Gpu
from tests.gpu.jobs import run, said_by, submit

pytestmark = pytest.mark.gpu
ROOT = Path(__file__).parents[2]
ITERATIONS = 600
TRAINING_S = 120
TORCH = """
import json, os, sys, torch
said = {"count": torch.cuda.device_count()}
if said["count"]:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    a = torch.randn(4096, 4096, device="cuda")
    said["finite"] = bool(torch.isfinite(a @ a).all())
    said["uuid"] = "GPU-" + str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)
    kept = torch.empty(1 << 30, dtype=torch.uint8, pin_memory=True)  # of the host's memory
    said["pinned"] = int(kept.to("cuda").numel())
print(json.dumps(said))
"""


def test_torch_sees_the_gpus_of_its_job(cluster: Cluster, gpus: list[Gpu], torch: str) -> None:
    path = cluster.directory / "seen.py"
    path.write_text(TORCH)
    script, options = f"exec {torch} {path}", ("--launch=tasks", "--mem=16G")
    ((one,),) = run(cluster, "--gpus=1", *options, script=script, wait_s=TRAINING_S)
    assert one == {"count": 1, "finite": True, "uuid": gpus[0].uuid, "pinned": 1 << 30}
    ((none,),) = run(cluster, *options, script="export CUDA_VISIBLE_DEVICES=0\n" + script, wait_s=TRAINING_S)
    assert none == {"count": 0}


@pytest.mark.parametrize("launcher", ["torchrun", "rm"])
def test_ddp_trains_over_nccl_and_reports_its_iterations(
    cluster: Cluster, gpus: list[Gpu], torch: str, launcher: str
) -> None:
    (cluster.directory / "ddp.py").write_text((ROOT / "examples/ddp.py").read_text())
    train = f"{cluster.directory}/ddp.py --cuda --iterations={ITERATIONS} --megabytes=64"
    if launcher == "torchrun":
        meet = "--node-rank=$SLURM_NODEID --master-addr=$MASTER_ADDR --master-port=$MASTER_PORT"
        options = (f"--gpus-per-node={len(gpus)}", "--nodes=1", "--launch=tasks")
        script = (
            f"exec {torch} -m torch.distributed.run --nnodes=1 --nproc-per-node={len(gpus)} {meet} {train}"
        )
    else:
        options = (f"--ntasks={len(gpus)}", "--gpus-per-task=1", "--nodes=1", "--launch=tasks")
        script = f"exec {torch} {train}"
    job = submit(cluster, *options, script=script)
    said = [one for lines in said_by(cluster, job, TRAINING_S) for one in lines]
    assert len(said) == len(gpus)
    counted = json.loads(cluster.rmx("iterations", job, "--json"))
    print(said, {key: value for key, value in counted.items() if key != "items"})
    for one in said:
        assert one["hooked"]
        assert one["device"] == gpus[0].model
        assert one["replicas_agree"]
        assert one["last_loss"] < one["first_loss"]
    assert ITERATIONS - 2 <= counted["count"] <= ITERATIONS  # by the slowest rank
    assert counted["mean_us"] == pytest.approx(1000 * max(one["mean_ms"] for one in said), rel=0.3)
