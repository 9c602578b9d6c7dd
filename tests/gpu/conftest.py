"""rm on a real GPU: this machine is the control machine and the one host. `make gpu` runs these tests.

They install rm's agents here and take them off again, so they run only where RM_TEST_GPU asks for it. The
python3 that RM_TEST_TORCH names has PyTorch with CUDA; without it the tests of training are skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import Cluster
from tests.e2e.told import channel
from tests.this_machine import cluster_of_this_machine, in_use

IDLE_S = 8.0
# as docs/security.md sets a cluster up tightly
TIGHT = {
    "no_new_privs": True, "seccomp": True, "private_tmp": "tmpfs", "cpus": "cores", "unenforced": "refuse",
}  # fmt: skip


@dataclass(frozen=True)
class Gpu:
    """What the driver's program says in its other form (`nvidia-smi -q -x`)."""

    uuid: str
    model: str
    mem_bytes: int
    minor: int
    bus: str  # as the kernel writes it: 0000:3b:00.0


@pytest.fixture(scope="session")
def gpus() -> list[Gpu]:
    """The GPUs of this machine, in the order of their places on the bus."""
    if not os.environ.get("RM_TEST_GPU"):
        pytest.skip("runs rm on this machine itself, on a real GPU: `make gpu` where there is one")
    tool = shutil.which("nvidia-smi")
    if not tool:
        pytest.fail("RM_TEST_GPU is set, and this machine has no nvidia-smi: it has no GPU of NVIDIA's.")
    told = subprocess.run([tool, "-q", "-x"], capture_output=True, text=True, check=True).stdout
    found = [_gpu(element) for element in ET.fromstring(told).iter("gpu")]
    if not found:
        pytest.fail("RM_TEST_GPU is set, and no GPU answers nvidia-smi.")
    return sorted(found, key=lambda gpu: gpu.bus)


def _gpu(element: ET.Element) -> Gpu:
    def said(path: str) -> str:
        return element.findtext(path) or ""

    size_mib = int(said("fb_memory_usage/total").removesuffix(" MiB"))
    return Gpu(
        said("uuid"),
        said("product_name"),
        size_mib << 20,
        int(said("minor_number")),
        element.attrib["id"][4:].lower(),
    )


@pytest.fixture(scope="session")
def alerts_file(gpus: list[Gpu]) -> Iterator[Path]:
    """Where a channel of alerts writes."""
    with tempfile.TemporaryDirectory(prefix="rm-alerts-") as folder:
        yield Path(folder, "told")


@pytest.fixture(scope="session")
def cluster(gpus: list[Gpu], alerts_file: Path) -> Iterator[Cluster]:
    """This machine as control machine and host, shared by all tests: mend what you break."""
    if reason := in_use():
        pytest.fail(f"This machine {reason}. The tests of GPUs need one that is not.")
    rules = [{"name": "gpus", "on": ["gpu", "gpus-idle"], "after_s": 0, "clear_s": 0}]
    settings: dict[str, dict[str, Any]] = {
        "fence": TIGHT,
        "alerts": {
            "every_s": 0.3,
            "facts_s": 2,
            "gpus_idle_s": IDLE_S,
            "channel": [channel(alerts_file)],
            "rule": rules,
        },
    }
    # not below /tmp, of which a job has its own
    with tempfile.TemporaryDirectory(prefix="rm-gpu-", dir="/var/tmp") as folder:
        directory = Path(folder)
        directory.chmod(0o755)
        shutil.copy(Path(__file__).with_name("gpu_task.py"), directory)
        with cluster_of_this_machine(directory, settings) as made:
            yield made


@pytest.fixture(autouse=True)
def tidy(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "cluster" in request.fixturenames:
        request.getfixturevalue("cluster").tidy()


@pytest.fixture(scope="session")
def torch() -> str:
    """The python3 of jobs that train."""
    python = os.environ.get("RM_TEST_TORCH", "")
    look = "import torch; raise SystemExit(not torch.cuda.is_available())"
    if not python or subprocess.run([python, "-c", look], check=False).returncode:
        pytest.skip("needs PyTorch with CUDA: RM_TEST_TORCH names the python3 that has it")
    return python
