"""A GPU of a host begins to have memory errors: its agent finds out, the alert fires, and is over again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster import Cluster, until
from tests.e2e.told import channel, told
from tests.stand_in_gpus import nvidia_smi

pytestmark = pytest.mark.lab
DRIVER = nvidia_smi(
    {
        "ecc.errors.uncorrected.volatile.total": "$([ $gpu = 1 ] && cat /srv/errors || echo 0)",
        "pcie.link.width.*": "16",
    }
)


def test_memory_errors_of_a_gpu_are_told(make_cluster: Callable[..., Cluster], tmp_path: Path) -> None:
    file, rule = tmp_path / "told", {"name": "gpus", "on": ["gpu"], "after_s": 0, "clear_s": 0}
    alerts = {"every_s": 0.3, "facts_s": 0.5, "channel": [channel(file)], "rule": [rule]}
    cluster = make_cluster({"alerts": alerts}, zones=1, hosts=1, gpus_per_host=0)
    (host,) = cluster.hosts()
    cluster.write(host, "/srv/errors", "0\n")
    cluster.write(host, "/usr/local/bin/nvidia-smi", DRIVER, "755")
    cluster.restart()
    cluster.all_up()
    until(lambda: len(cluster.hosts()[host]["gpus"]) == 2, "the agent has told of its GPUs")
    cluster.write(host, "/srv/errors", "4\n")
    until(lambda: told(file), "the alert fires")
    assert told(file)[0]["event"] == "firing"
    assert told(file)[0]["message"].startswith(f"{host}: GPU 1 has 4 uncorrected memory errors")
    cluster.write(host, "/srv/errors", "0\n")
    until(lambda: len(told(file)) >= 2, "the driver was loaded anew: it is over")
    assert told(file)[1]["event"] == "resolved"
