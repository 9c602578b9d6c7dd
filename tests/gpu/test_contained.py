"""A user's job in a container on a real GPU, which podman is given by CDI."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import Cluster
from tests.gpu.conftest import TIGHT, Gpu
from tests.gpu.jobs import task, told
from tests.gpu.test_fenced import files, opened, opening, own_and_shared

pytestmark = pytest.mark.gpu
USER = "rm-gpu-test"  # made for these tests, and removed
SPECIFICATIONS = ("/etc/cdi", "/var/run/cdi")
# what the image has of its own; its programs and libraries are the host's
PLACES = ("dev", "proc", "run", "sys", "tmp", "usr", "var/tmp")
LINKS = {"bin": "usr/bin", "lib": "usr/lib", "lib64": "usr/lib64", "etc/mtab": "/proc/mounts"}
FILES = {"etc/passwd": "root:x:0:0::/:/bin/sh\n", "etc/group": "root:x:0:\n"}
EMPTY = ("etc/hosts", "etc/resolv.conf", "etc/ld.so.cache")


def described() -> bool:
    found = [path for folder in SPECIFICATIONS for path in Path(folder).glob("*.*")]
    return any("nvidia.com/gpu" in path.read_text() for path in found)


def make_image(image: Path, *places: str) -> None:
    for place in (*PLACES, *places):
        (image / place).mkdir(parents=True)
    (image / "etc").mkdir()
    for link, target in LINKS.items():
        (image / link).symlink_to(target)
    for name in (*FILES, *EMPTY):
        (image / name).write_text(FILES.get(name, ""))


@pytest.fixture(scope="module")
def contained(cluster: Cluster) -> Iterator[dict[str, Any]]:
    """What a job of USER's says of its container."""
    if not shutil.which("podman"):
        pytest.skip("needs podman")
    if not described():
        pytest.skip("needs what `nvidia-ctk cdi generate` writes into /etc/cdi")
    home = cluster.directory / "home"
    subprocess.run(["useradd", "--create-home", "--home-dir", home, USER], check=True)
    try:
        make_image(home / "image", str(cluster.directory).lstrip("/"))
        subprocess.run(["chown", "-hR", f"{USER}:", home], check=True)
        mounts = [f"{path}:{path}:ro" for path in ("/usr", "/etc/ld.so.cache", str(cluster.directory))]
        # which keep podman from making its namespaces
        cluster.configure({"fence": {**TIGHT, "no_new_privs": False, "seccomp": False}})
        cluster.restart()
        cluster.all_up()
        yield {"container_image": f"{home}/image", "container_mounts": ",".join(mounts)}
        cluster.configure({"fence": TIGHT})
        cluster.restart()
        cluster.all_up()
    finally:
        subprocess.run(["userdel", USER], check=True)


def test_a_container_has_the_gpus_of_its_job(
    cluster: Cluster, gpus: list[Gpu], contained: dict[str, Any]
) -> None:
    def ran(script: str, gpus: int) -> int:
        job = cluster.wait(cluster.post_job(script, user=USER, gpus_per_task=gpus, **contained))
        assert job["state"] == "COMPLETED", (job["reason"], cluster.log(job["id"], stream="err"))
        return int(job["id"])

    (one,) = told(cluster, ran(task(cluster, "--take"), 1))
    assert one.get("own") == gpus[0].uuid, one
    assert one["gpus"] == [gpus[0].uuid]
    (nothing,) = told(cluster, ran(task(cluster), 0))
    assert "error" in nothing
    said = opened(cluster.log(ran(opening(files()), 1)))
    assert f"/dev/nvidia{gpus[0].minor}" in said
    assert said <= own_and_shared(gpus[0].minor)
