"""Generated examples are the same in every run, and no example has to be quick on a busy machine.

The programs that tests start hear a Ctrl-C, wherever the tests run, and find rm compiled. Workers that begin
together compile the tests together. Files of tests that compute, and most of the short ones, are begun among
those that wait for hosts. The rest comes last.
"""

import gc
import os
import signal
import sys
import warnings
from collections.abc import Generator, Iterable
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from tests import postgres
from tests.examples import examples

settings.register_profile(
    "repeatable",
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=examples(100),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("repeatable")

# hypothesis would draw constants of all modules that are loaded: other examples where a file runs alone, for
# which each worker would read all sources
assert hasattr(providers, "_get_local_constants"), "hypothesis has another name for it now"
providers._get_local_constants = lambda: providers._local_constants

# a shell lets what runs in its background ignore Ctrl-C, and every program inherits that
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# or each of the many programs that tests start would compile all of rm that it imports
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# thousands of tests are objects that stay: to look through them less often takes a tenth off all tests
gc.set_threshold(20_000, 10, 10)

HERE = Path(__file__).parent
BESIDE_WAITING = 65  # percent of the short files; the others are enough to keep all workers busy at the end
STRICT = ("unit", "contract", "sim")  # folders whose tests fail by what warns
WARNINGS = (
    "error",
    # commands of Slurm's leave their connection to the end of their process, and aiohttp's servers theirs
    r"ignore:unclosed (<socket|<ssl|transport|event loop):ResourceWarning",
    # click-man, which makes the manual pages
    r"ignore:.*make_default_short_help:DeprecationWarning",
    # Python 3.12 and later: tests fork beside a thread that serves a fake
    r"ignore:.*multi-threaded.*fork:DeprecationWarning",
)
# which worker this is, of how many; a run without workers is its only one
WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
_ran: list[str] = []  # the folder of the test that this process ran last
ENDING = (signal.SIGINT, signal.SIGPIPE, signal.SIGTERM)
_handlers = [signal.getsignal(number) for number in ENDING]


@pytest.fixture(scope="session", autouse=True)
def _initialised_once(tmp_path_factory: pytest.TempPathFactory) -> None:
    """One worker of a run runs PostgreSQL's `initdb`; their directories are beside each other."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        postgres.shared = tmp_path_factory.getbasetemp().parent / "postgres"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Strict tests fail by what they leave unclosed, but not by what others left before them, which may be
    found at any time: it is collected here."""
    folder = item.path.relative_to(HERE).parts[0]
    if folder in STRICT and _ran and _ran[0] not in STRICT:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            gc.collect()
    _ran[:] = [folder]


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """A test that lets a signal end its process would end this one, in silence, in a later test: the first
    write to a pipe that nobody reads."""
    left = [signal.getsignal(number) for number in ENDING]
    if left != _handlers:
        for number, handler in zip(ENDING, _handlers, strict=True):
            signal.signal(number, handler)
        pytest.fail(f"the test leaves other handlers of signals: {left}", pytrace=False)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """A worker does not report what passed before and after a test: to pack, send and read three reports of
    each short test costs more than to run it."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in runtestprotocol(item, nextitem=nextitem, log=False):
        if report.when == "call" or not report.passed:
            item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


class Folder(pytest.Dir):
    """Each worker begins to collect at another file: what one has compiled, the others find, where all of
    them would compile each file at the same time."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        found = list(super().collect())
        first = len(found) * WORKER // WORKERS
        return found[first:] + found[:first]


@pytest.hookimpl(tryfirst=True)
def pytest_collect_directory(path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if (path / "__init__.py").exists():
        return None
    folder: pytest.Collector = Folder.from_parent(parent, path=path)
    return folder


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is there when all tests are found stays to the end: no search for garbage goes over it, neither
    while it is made nor later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the files for workers that each take the next one: the processors are never idle while hosts are
    waited for, nor are workers at the end. A file's tests stay together, in their order, which is the same
    for all workers."""
    groups: dict[str, list[Path]] = {"waits": [], "computes": [], "short": []}
    paths = sorted({item.path for item in items})
    for path in paths:
        groups[_kind(path)].append(path)
    short = groups["short"]
    beside = len(short) * BESIDE_WAITING // 100
    place = {path: 1.0 + number for number, path in enumerate(short[beside:])}
    for group in (groups["waits"], groups["computes"], short[:beside]):
        place |= {path: (number + 0.5) / len(group) for number, path in enumerate(group)}
    items.sort(key=lambda item: place[item.path])
    strict = {path for path in paths if path.relative_to(HERE).parts[0] in STRICT}
    for item in items:
        if item.path in strict:
            item.add_marker(pytest.mark.filterwarnings(*WARNINGS))


def _kind(path: Path) -> str:
    name = path.relative_to(HERE).as_posix()
    if name.startswith(("e2e/equivalence/", "sim/test_schedules_")):
        return "computes"
    return "waits" if name.startswith("e2e/") else "short"
