"""What rm finds of the GPUs of this machine, and what it shows."""

from __future__ import annotations

import pytest

from tests.cluster import Cluster
from tests.gpu.conftest import Gpu
from tests.gpu.jobs import run, slurm, task
from tests.this_machine import NAME

pytestmark = pytest.mark.gpu


def test_the_agent_finds_what_the_driver_says(cluster: Cluster, gpus: list[Gpu]) -> None:
    host = cluster.hosts()[NAME]
    found = [(gpu["index"], gpu["uuid"], gpu["model"], gpu["mem_bytes"]) for gpu in host["gpus"]]
    assert found == [(index, gpu.uuid, gpu.model, gpu.mem_bytes) for index, gpu in enumerate(gpus)]
    assert "gpus" in host["found"]
    assert "gpus" not in host["unenforced"]


def test_they_are_shown(cluster: Cluster, gpus: list[Gpu]) -> None:
    shown = cluster.rmx("host", "show", NAME)
    assert all(gpu.uuid in shown and gpu.model in shown for gpu in gpus)
    assert f"{len(gpus)}/{len(gpus)}" in cluster.rmx("hosts")
    gres = slurm(cluster, "sinfo", "-h", "-o", "%G").strip()
    assert sum(int(one.rpartition(":")[2]) for one in gres.split(",")) == len(gpus)
    node = slurm(cluster, "scontrol", "show", "node", NAME)
    assert f"Gres={gres}" in node
    assert f"gres/gpu={len(gpus)}" in node


def test_jobs_get_the_type_that_sinfo_shows_and_the_words_of_the_model(
    cluster: Cluster, gpus: list[Gpu]
) -> None:
    kind = slurm(cluster, "sinfo", "-h", "-o", "%G").split(",")[0].split(":")[1]
    word = gpus[0].model.split()[1].lower()
    for options in (
        (f"--gres=gpu:{kind}:1",),
        (f"--gres=gpu:{kind.upper()}:1",),
        (f"--gpus={word}:1",),
        ("--gpus=1", f"--constraint={word}"),
    ):
        ((said,),) = run(cluster, *options, script=task(cluster))
        assert said.get("gpus") == [gpus[0].uuid], (options, said)


def test_a_burn_in_looks_at_them(cluster: Cluster, gpus: list[Gpu]) -> None:
    quick = ["seconds=1", "memory_percent=1", "disk_mb=16"]
    words = [word for one in quick for word in ("-e", f"rm_burn_in_{one}")]
    burn_in = ("playbook", "run", "burn_in", "-i", cluster.lab.inventory, "--tags", "host", *words)
    cluster.rmx(*burn_in, "-e", f"rm_burn_in_gpus={len(gpus)}")
    done = cluster.run(*burn_in, "-e", f"rm_burn_in_gpus={len(gpus) + 1}")
    assert done.returncode != 0
    assert f"{len(gpus)} GPUs answer, {len(gpus) + 1} should" in done.stdout + done.stderr
