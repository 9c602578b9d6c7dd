"""A GPU of a host begins to have memory errors: its agent finds out, the alert fires, and is over again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster import Cluster, until

pytestmark = pytest.mark.lab
TABLES = """
[[alerts.channel]]
name = "file"
command = ["/bin/sh", "-c", "cat >> {file}; echo >> {file}"]

[[alerts.rule]]
name = "gpus"
on = ["gpu"]
after_s = 0
clear_s = 0
"""
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


def put(cluster: Cluster, host: str, path: str, text: str, mode: str = "644") -> None:
    """Replaced at once: no program sees a part of it."""
    script = f"cat >{path}.new && chmod {mode} {path}.new && mv {path}.new {path}"
    assert cluster.lab.exec(host, ["sh", "-c", script], text.encode()).returncode == 0


def told(file: Path) -> list[str]:
    lines = file.read_text().splitlines() if file.exists() else []
    return [f"{m['event']}: {m['message']}" for m in (json.loads(line) for line in lines if line)]


def test_memory_errors_of_a_gpu_are_told(make_cluster: Callable[..., Cluster]) -> None:
    settings = {"alerts": {"every_s": 0.3, "facts_s": 0.5}}
    cluster = make_cluster(settings, zones=1, hosts=1, gpus_per_host=0)
    (host,) = cluster.hosts()
    file = cluster.directory / "told"
    put(cluster, host, "/srv/errors", "0\n")
    put(cluster, host, "/usr/local/bin/nvidia-smi", DRIVER, "755")
    with cluster.config.open("a") as config:
        config.write(TABLES.format(file=file))
    cluster.stop()
    cluster.start()
    cluster.all_up()
    until(lambda: len(cluster.hosts()[host]["gpus"]) == 2, "the agent has told of its GPUs")
    put(cluster, host, "/srv/errors", "4\n")
    until(lambda: told(file), "the alert fires")
    assert told(file)[0].startswith(f"firing: {host}: GPU 1 has 4 uncorrected memory errors")
    put(cluster, host, "/srv/errors", "0\n")
    until(lambda: len(told(file)) == 2, "the driver was loaded anew: it is over")
    assert told(file)[1].startswith("resolved")
