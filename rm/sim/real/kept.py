"""Results of runs on disk, so that a comparison that was cut short goes on where it stopped."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from pathlib import Path

import rm
from rm.errors import UsageError
from rm.sim.real.compare import Measured, Unit
from rm.typed import convert
from rm.written_aside import written_aside

DECIDE = ("core", "policies", "sim", "units.py")  # of the package: what a run's result depends on


class Kept:
    """The results that the same code has found, one file a run.

    Raises:
        UsageError: the folder cannot be made.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / code_version()
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise UsageError(
                f"Results cannot be kept in {folder}: {problem.strerror}.", "Name a folder of yours."
            ) from problem

    def found(self, units: Sequence[Unit]) -> Mapping[Unit, Measured]:
        """Of those units that are kept."""
        known = {}
        for unit in units:
            with suppress(FileNotFoundError, ValueError):  # absent, or not whole: it is played again
                known[unit] = convert(json.loads(self._file(unit).read_bytes()), Measured)
        return known

    def keep(self, unit: Unit, measured: Measured) -> None:
        with written_aside(self._file(unit)) as file:
            file.write(json.dumps(asdict(measured)).encode())

    def _file(self, unit: Unit) -> Path:
        terms = f"{unit.terms.speed:g}-{unit.terms.faster:g}-{unit.terms.load:g}"
        if unit.queue:
            terms += f"-{unit.queue}"
        return self._folder / f"{unit.system}-{unit.workload}-{unit.cluster}-{terms}-{unit.seed}.json"


@cache
def code_version() -> str:
    """A digest of the files that decide what a run finds."""
    import hashlib  # here: it loads OpenSSL, which the simulator has no use for

    package = Path(rm.__file__).parent
    sums = hashlib.sha256()
    for name in DECIDE:
        whole = package / name
        files = [whole] if whole.is_file() else (*whole.rglob("*.py"), *whole.rglob("*.csv"))
        for path in sorted(files):
            sums.update(str(path.relative_to(package)).encode() + b"\0" + path.read_bytes())
    return sums.hexdigest()[:12]
