"""What a paper printed, and the range within which a result reproduces it: `expected/NAME.toml`.

    [[row]]
    figure = "Fig. 11"
    case = "CIFAR-10, 40 Mbit/s"
    metric = "training time, worst case"
    unit = "s"
    published = 1041            # left out where the paper gives no number
    place = "Sec. 4.3"          # where the paper says so
    low = 940
    high = 1140
    why = "10 %: one run, printed without a spread"

`published`, `low` and `high` are in `unit`. A row that nothing published or claimed could contradict has
no range: it is a plain figure, which is not judged. Nor has a further reading of what another row judges,
although it may have the published value beside it. Rows are shown in the order of the file.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from rm.errors import ConfigError
from rm.sim.papers.frame.paper import Key

DIRECTORY = Path(__file__).parents[1] / "expected"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    figure: str
    case: str
    metric: str
    unit: str
    place: str
    why: str
    low: float | None = None
    high: float | None = None
    published: float | None = None

    @property
    def key(self) -> Key:
        return self.figure, self.case, self.metric


def read(path: Path) -> dict[Key, Expected]:
    """The expected rows of a file, in its order.

    Raises:
        ConfigError: a row is incomplete, twice there, or its range is none.
    """
    try:
        rows = tomllib.loads(path.read_text()).get("row", [])
    except FileNotFoundError:
        raise ConfigError(f"There is no {path.name}.", "A paper needs its expected ranges.") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path.name} is not TOML: {error}.") from None
    found: dict[Key, Expected] = {}
    for number, row in enumerate(rows, 1):
        one = _row(row, f"Row {number} of {path.name}")
        if one.key in found:
            raise ConfigError(f"Row {number} of {path.name} repeats {', '.join(one.key)}.")
        found[one.key] = one
    return found


def _row(row: Mapping[str, Any], where: str) -> Expected:
    known = {f.name for f in fields(Expected)}
    if wrong := sorted(row.keys() - known):
        raise ConfigError(f"{where} has unknown keys: {', '.join(wrong)}.", f"Known: {', '.join(known)}.")
    if missing := sorted(known - row.keys() - {"published", "low", "high"}):
        raise ConfigError(f"{where} lacks {', '.join(missing)}.")
    for key in ("published", "low", "high"):
        value = row.get(key, 0)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ConfigError(f"{where}: {key} is {value!r}, not a finite number.")
    for key in known - {"published", "low", "high"}:
        if not isinstance(row[key], str) or not (row[key] or key == "unit"):
            raise ConfigError(f"{where}: {key} is {row[key]!r}, not text.")
    if ("low" in row) != ("high" in row):
        raise ConfigError(f"{where} has half a range.", "Give low and high, or none of them.")
    if "low" in row and row["low"] > row["high"]:
        raise ConfigError(f"{where}: low {row['low']} is above high {row['high']}.")
    return Expected(**row)
