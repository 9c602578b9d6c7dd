"""Lab hosts for the end-to-end tests: `make_lab(...)` for a lab of one's own, `lab` for a shared one.

`cluster` is the whole product on a lab, shared by a module's tests; `make_cluster(...)` makes others.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from rm.errors import RmError
from rm.lab import Lab, LabSpec, up
from rm.lab.requirements import check
from tests import prepared
from tests.cluster import Cluster, Settings, alive, running

MakeLab = Callable[..., Lab]
MakeCluster = Callable[..., Cluster]


def _unavailable() -> str:
    if os.geteuid() != 0:
        return "needs root: the tests themselves must reach the lab's hosts"
    try:
        check()
    except RmError as error:
        return str(error)
    return ""


def _factory(root: Path, made: list[Lab]) -> MakeLab:
    def make(**spec: Any) -> Lab:
        lab = up(LabSpec(**spec), root / f"lab{len(made)}")
        made.append(lab)
        return lab

    return make


def _labs(root: Path) -> Iterator[MakeLab]:
    if reason := _unavailable():
        pytest.skip(reason)
    made: list[Lab] = []
    try:
        yield _factory(root, made)
    finally:
        for lab in made:
            lab.down()


@pytest.fixture(scope="session", autouse=True)
def _prepared_once(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Of a run's workers one runs `bootstrap.yml`. Their directories for files are beside each other."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        prepared.shared = tmp_path_factory.getbasetemp().parent / "prepared.tar"


@pytest.fixture
def make_lab(tmp_path: Path) -> Iterator[MakeLab]:
    """`make_lab(zones=1, hosts=2, …)` brings a lab up (the arguments are LabSpec's); gone after the test."""
    yield from _labs(tmp_path)


@pytest.fixture(scope="module")
def make_module_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MakeLab]:
    """The same for labs that all tests of a module share."""
    yield from _labs(tmp_path_factory.mktemp("labs"))


@pytest.fixture(scope="module")
def lab(make_module_lab: MakeLab) -> Lab:
    """Two zones with two hosts each, shared by a module's tests: mend what you break."""
    return make_module_lab(zones=2, hosts=4)


@pytest.fixture(scope="module")
def make_cluster(make_module_lab: MakeLab) -> Iterator[MakeCluster]:
    """`make_cluster({"jobs": {"grace_s": 2}}, zones=1, hosts=2)`: rm.toml's overrides, and LabSpec's."""
    with ExitStack() as stack:

        def make(settings: Settings | None = None, **lab: Any) -> Cluster:
            # not below pytest's own directory, which other users cannot enter
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rm-cluster-")))
            directory.chmod(0o755)
            return stack.enter_context(running(make_module_lab(**lab), directory, settings or {}))

        yield make


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster) -> Cluster:
    """Two zones with two hosts of two GPUs each, agents on them and a daemon: mend what you break."""
    return make_cluster(zones=2, hosts=4, gpus_per_host=2, zone_delay_ms=0)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that fails shows what the daemons of its clusters said, and whether one has ended."""
    report = yield
    if report.failed:
        report.sections += [("a daemon", cluster.last_words()) for cluster in alive]
    return report
