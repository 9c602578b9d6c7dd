"""Training frameworks on hosts whose inventory says only their names and addresses.

The real ones need PyTorch and Lightning in an environment of their own, which `make frameworks` makes;
without it the stand-in does what they do first: find rank, size and meeting point in the same variables, and
meet.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rm.demo.training import traffic_file
from tests import builders
from tests.cluster import WAIT_S, Cluster, until
from tests.e2e.conftest import MakeCluster
from tests.e2e.test_own_hosts import ROUTED, SWITCHED, add_rail, on_plain_inventory

pytestmark = pytest.mark.lab
ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-ddp/bin/python"
HOSTS = 3
TRAINING_S = 500  # of patience: on a busy machine PyTorch takes a minute to be imported by all
VERIFIED_S = 300  # of patience: it takes many iterations, each longer on a busy machine
# what torch.distributed's env:// (torch/distributed/rendezvous.py) and Lightning's SLURMEnvironment read
LOOKED_FOR = r"""
import json, os, re
env = os.environ
torch = {"rank": int(env["RANK"]), "size": int(env["WORLD_SIZE"]), "local": int(env["LOCAL_RANK"])}
assert env["SLURM_JOB_NAME"] not in ("bash", "interactive")
assert int(env["SLURM_NTASKS"]) == 1 or "SLURM_NTASKS_PER_NODE" in env
first = re.sub(r"\[(.*?)\]", r"\1", re.sub(r"\[(.*?)[,-].*\]", r"\1", env["SLURM_NODELIST"])).split(",")[0]
assert torch["rank"] or first == env["SLURMD_NODENAME"]
slurm = {"rank": int(env["SLURM_PROCID"]), "size": int(env["SLURM_NTASKS"])}
assert slurm.items() <= torch.items()
"""
MEETING = Path(__file__).with_name("sbatch") / "train.py"  # makes `total`
TOLD = """
told = {"sum": total, "localid": int(env["SLURM_LOCALID"]), "host": env["SLURMD_NODENAME"]}
print(json.dumps({**torch, **told}))
"""


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster, tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    settings = {
        "jobs": {"run_root_as": "", "allow_root": True},  # whose interpreter may be root's own
        "regulate": {"verify_periods": 10, "verify_again_min": 0.02},
        "policies.options.comm.metronome": {"bursts": False},  # for gates
    }
    made = make_cluster(settings, zones=1, hosts=HOSTS)
    return on_plain_inventory(made, tmp_path_factory.mktemp("inventory"))


def told_by(cluster: Cluster, *words: str, script: str, wait_s: float = WAIT_S) -> list[dict[str, Any]]:
    """What each rank of the job printed last, by rank."""
    path = cluster.directory / "job.sh"
    path.write_text(script)
    job = cluster.wait(cluster.submit(*words, str(path)), wait_s=wait_s)
    logs = [cluster.log(job["id"], task["rank"]) for task in job["tasks"]]
    assert job["state"] == "COMPLETED", logs
    return [json.loads(log.strip().splitlines()[-1]) for log in logs]


def stand_in(cluster: Cluster, *words: str) -> list[dict[str, Any]]:
    return told_by(cluster, *words, script=f"#!/usr/bin/python3\n{LOOKED_FOR}{MEETING.read_text()}{TOLD}")


def test_tasks_find_each_other_as_frameworks_look_for_them(cluster: Cluster) -> None:
    found = stand_in(cluster, "--nodes=3", "--ntasks-per-node=2")
    assert [task["rank"] for task in found] == list(range(6))
    assert {task["sum"] for task in found} == {15}
    assert [task["local"] for task in found] == [task["localid"] for task in found] == [0, 1] * 3


def test_ranks_follow_the_list_of_hosts_also_round_and_round(cluster: Cluster) -> None:
    names = list(cluster.hosts())
    found = stand_in(cluster, f"--nodelist={names[2]},{names[0]}", "--ntasks=4", "--distribution=cyclic")
    order = list(dict.fromkeys(task["host"] for task in found))
    assert sorted(order) == sorted((names[0], names[2]))
    assert [task["host"] for task in found] == order * 2
    assert [task["localid"] for task in found] == [0, 0, 1, 1]


needs_frameworks = pytest.mark.skipif(
    not PYTHON.exists(), reason="PyTorch and Lightning are not installed: `make frameworks` installs and runs"
)


@needs_frameworks
def test_torchrun_trains_by_ddp_on_all_hosts(cluster: Cluster) -> None:
    torchrun = f"{PYTHON} -m torch.distributed.run --nnodes=$SLURM_NNODES --nproc-per-node=2"
    meet = "--node-rank=$SLURM_NODEID --master-addr=$MASTER_ADDR --master-port=$MASTER_PORT"
    script = f"#!/bin/sh\nexec {torchrun} {meet} {ROOT}/examples/ddp.py --iterations=20 --unhooked\n"
    path = cluster.directory / "torchrun.sh"
    path.write_text(script)
    job = cluster.wait(cluster.submit("--nodes=3", "--ntasks-per-node=1", str(path)), wait_s=TRAINING_S)
    logs = [cluster.log(job["id"], rank) for rank in range(HOSTS)]
    assert job["state"] == "COMPLETED", logs
    found = [json.loads(line) for log in logs for line in log.splitlines() if line.startswith("{")]
    assert sorted(one["rank"] for one in found) == list(range(2 * HOSTS))
    assert all(one["replicas_agree"] and one["last_loss"] < one["first_loss"] for one in found)


@needs_frameworks
def test_ddp_loops_that_only_register_rm_s_hook_take_turns_on_the_network(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    """Two jobs on the same two hosts, under a policy that schedules nothing and admits transfers."""
    settings = {"jobs": {"run_root_as": "", "allow_root": True}, "policies": {"comm": "srsf-n"}}
    cluster = make_cluster(settings, zones=1, hosts=2)
    path = tmp_path / "ddp.sh"
    train = f"{ROOT}/examples/ddp.py --iterations=150 --megabytes=1 --compute-ms=60"
    path.write_text(f"#!/bin/sh\nexec {PYTHON} {train}\n")
    words = ["--nodes=2", "--ntasks-per-node=1", "--launch=tasks", "--period=150ms", "--duty-cycle=0.6"]
    jobs = [cluster.submit(*words, "--bandwidth=90Mbit/s", str(path)) for _ in range(2)]
    found = []
    for job in jobs:
        ended = cluster.wait(job, wait_s=TRAINING_S)
        logs = [cluster.log(job, rank) for rank in (0, 1)]
        assert ended["state"] == "COMPLETED", logs
        found += [json.loads(log.strip().splitlines()[-1]) for log in logs]
    assert all(one["replicas_agree"] and one["last_loss"] < one["first_loss"] for one in found)
    assert max(one["waited_ms"] for one in found) > 100, "somebody waited for a turn"
    print("waited, ms:", sorted(one["waited_ms"] for one in found))


@needs_frameworks
def test_torchrun_trains_over_all_rails_of_two_hosts(cluster: Cluster) -> None:
    pair = sorted(cluster.hosts())[:2]
    rails = {"rail1": SWITCHED, "rail2": ROUTED}
    for rail, ends in rails.items():
        add_rail(cluster, rail, dict(zip(pair, ends, strict=True)))

    def sent() -> list[int]:
        counts = [f"/sys/class/net/{rail}/statistics/tx_bytes" for rail in rails]
        return [int(cluster.lab.exec(pair[0], ["cat", count]).stdout) for count in counts]

    before = sent()
    torchrun = f"{PYTHON} -m torch.distributed.run --nnodes=$SLURM_NNODES --nproc-per-node=1"
    meet = "--node-rank=$SLURM_NODEID --master-addr=$MASTER_ADDR --master-port=$MASTER_PORT"
    path = cluster.directory / "rails.sh"
    path.write_text(f"#!/bin/sh\nexec {torchrun} {meet} {ROOT}/examples/ddp.py --iterations=20 --unhooked\n")
    words = ("--nodes=2", "--ntasks-per-node=1", "--nodelist=" + ",".join(pair))
    job = cluster.wait(cluster.submit(*words, str(path)), wait_s=TRAINING_S)
    assert job["state"] == "COMPLETED", [cluster.log(job["id"], rank) for rank in (0, 1)]
    assert all(after - count > 1 << 20 for after, count in zip(sent(), before, strict=True))


@needs_frameworks
def test_lightning_trains_as_under_slurm(cluster: Cluster) -> None:
    script = f"#!/bin/sh\nexec {PYTHON} {ROOT}/examples/lightning_ddp.py\n"
    found = told_by(cluster, "--nodes=3", "--ntasks-per-node=1", script=script, wait_s=TRAINING_S)
    assert [one["rank"] for one in found] == list(range(HOSTS))
    assert {one["size"] for one in found} == {HOSTS}
    assert len({tuple(one["weights"]) for one in found}) == 1
    assert all(one["last_loss"] < one["first_loss"] / 2 for one in found)


SLOWER_MANAGED = """#!/usr/bin/python3
import os, time
from rm_iteration import Iterations
iterations = Iterations()
while True:
    iterations.start()
    slot = iterations.schedule or {}
    time.sleep(0.04 + (0.04 if slot.get("gate") else 0))
    iterations.end()
"""


def test_jobs_that_are_slower_in_their_slots_are_left_alone_and_tried_again(cluster: Cluster) -> None:
    """These compute for longer while they have a slot, as no profile says."""
    profile = cluster.directory / "profile.json"
    rate_mbps = 0.9 * cluster.client.get("hosts")["hosts"][0]["nic_bps"] / 1e6
    profile.write_text(traffic_file(builders.profile(40, (0, 12, rate_mbps))))
    script = cluster.directory / "slower.py"
    script.write_text(SLOWER_MANAGED)
    words = (
        "--nodes=2",
        "--ntasks-per-node=1",
        f"--traffic={profile}",
        "--nodelist=" + ",".join(sorted(cluster.hosts())[:2]),
    )
    jobs = [cluster.submit(*words, str(script)) for _ in range(2)]
    until(lambda: "(LeftAlone)" in cluster.rmx("why", jobs[1]), "they are left alone", VERIFIED_S)
    until(lambda: "managed again" in cluster.rmx("show", jobs[1]), "they are tried again", VERIFIED_S)
    for job in jobs:
        cluster.rmx("cancel", job)
        cluster.wait(job)
