"""A GPU of a host begins to have memory errors: its agent finds out, the alert fires, and is over again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster import Cluster, until
from tests.e2e.told import channel, told

pytestmark = pytest.mark.lab
# answers in the columns that it is asked for; errors are those in the file beside it
DRIVER = """#!/bin/sh
for word; do case $word in --query-gpu=*) asked=${word#*=};; esac; done
for gpu in 0 1; do
  line=
  for name in $(echo "$asked" | tr , ' '); do
    case $name in
      index) value=$gpu;;
      uuid) value=GPU-$gpu;;
      name) value='NVIDIA H100 80GB HBM3';;
      memory.total) value=81559;;
      ecc.errors.uncorrected.volatile.total) value=$([ $gpu = 1 ] && cat /srv/errors || echo 0);;
      pcie.link.width.*) value=16;;
      *) value='[N/A]';;
    esac
    line="$line${line:+, }$value"
  done
  echo "$line"
done
"""


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
