"""Units: durations in integer microseconds, sizes in bytes, rates in bit/s, host lists.

Every number that others share is an exact integer; a fraction of the smallest unit is rounded
up for durations (a limit is never shorter than asked) and down for sizes and rates.
All parse functions raise UsageError with one sentence. Formats: Slurm's time, memory and host
list notations, plus `1h30m`, `250ms`, `1.5G`, `100mbit`.
"""

from __future__ import annotations

from rm.errors import UsageError
from rm.imported_later import re

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SECOND_US = 1_000_000
MINUTE_US = 60 * SECOND_US
HOUR_US = 60 * MINUTE_US
DAY_US = 24 * HOUR_US
MIB, GIB = 1 << 20, 1 << 30
MBPS = 1_000_000  # bit/s
LEASE_LEAST_US, LEASE_MOST_US = 10 * SECOND_US, DAY_US  # less would not outlive a daemon's restart
HOSTS_MAX = 65_536  # a host list longer than this is a slip of the keyboard

_DURATION_UNITS = {
    "us": 1, "µs": 1, "usec": 1, "ms": 1_000, "msec": 1_000,
    "s": SECOND_US, "sec": SECOND_US, "secs": SECOND_US, "second": SECOND_US, "seconds": SECOND_US,
    "m": MINUTE_US, "min": MINUTE_US, "mins": MINUTE_US, "minute": MINUTE_US, "minutes": MINUTE_US,
    "h": HOUR_US, "hr": HOUR_US, "hour": HOUR_US, "hours": HOUR_US,
    "d": DAY_US, "day": DAY_US, "days": DAY_US, "w": 7 * DAY_US, "week": 7 * DAY_US, "weeks": 7 * DAY_US,
}  # fmt: skip
# compiled when they are first used: a client needs few of them, and waits for each
# Python reads no more than 4,300 digits: more than 99 are no number
_NUMBER_UNIT = r"\s*(\d{1,99})(?:\.(\d{1,99}))?\s*([a-zA-Zµ]+)"
_QUANTITY = r"(\d{1,99})(?:\.(\d{1,99}))?\s*([a-zA-Z/]*)\Z"
_CLOCK = r"(?:(\d{1,99})-)?(\d{1,99})(?::(\d{1,99}))?(?::(\d{1,99}))?\Z"
_DAYS = r"\d+-\Z"
_UNLIMITED = ("UNLIMITED", "INFINITE", "-1")


def number_of(text: str) -> int | None:
    """The whole number of ASCII digits, 99 at most; None: it is none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 99 else None


def _scaled(whole: str, fraction: str | None, unit: int, up: bool = False) -> int:
    """whole.fraction * unit as an integer, without floating point."""
    digits = fraction or ""
    numerator: int = int(whole + digits) * unit
    denominator: int = 10 ** len(digits)
    return -(-numerator // denominator) if up else numerator // denominator


def parse_duration_us(text: str) -> int:
    """`250ms`, `1.5s`, `1h 30m`, `2days` to microseconds; a bare number has no unit and is refused."""
    position, total = 0, 0
    stripped = text.strip()
    while position < len(stripped):
        match = re.compile(_NUMBER_UNIT).match(stripped, position)
        factor = _DURATION_UNITS.get(match[3].lower()) if match else None
        if match is None or factor is None:
            break
        total += _scaled(match[1], match[2], factor, up=True)
        position = match.end()
    if not stripped or position < len(stripped):
        mend = "Write a number with its unit, such as 250ms or 1h30m."
        if stripped.isascii() and stripped.isdigit():  # seconds to timeout(1), minutes to Slurm
            mend = f"Write {stripped}s for seconds, or {stripped}m for minutes."
        raise UsageError(f"'{text}' is not a duration.", mend)
    return total


def parse_lease_us(text: str) -> int:
    """A duration from 10 s to a day, or `0`, which is none."""
    stripped = text.strip()
    if stripped == "0":
        return 0
    lease_us = parse_duration_us(stripped)
    if lease_us and not LEASE_LEAST_US <= lease_us <= LEASE_MOST_US:
        raise UsageError(f"'{text}' is not from 10 s to a day.", "Write 60s or 5min, or 0 for none.")
    return lease_us


def parse_time_limit_us(text: str) -> int | None:
    """Slurm's `M | M:S | H:M:S | D- | D-H | D-H:M | D-H:M:S | UNLIMITED`, or a duration with units.

    Returns microseconds; None for no limit, which is what 0 means, too. Unlike in Slurm seconds are kept,
    not rounded up.
    """
    stripped = text.strip()
    if stripped.upper() in _UNLIMITED:
        return None
    match = re.match(_CLOCK, f"{stripped}0" if re.match(_DAYS, stripped) else stripped)
    if match is None:
        try:
            limit = parse_duration_us(stripped)
        except UsageError:
            limit = 0
    else:
        days, first, second, third = match.groups()
        a, b, c = int(first), int(second or 0), int(third or 0)
        if days is not None:
            limit = int(days) * DAY_US + a * HOUR_US + b * MINUTE_US + c * SECOND_US
        elif third is not None:
            limit = a * HOUR_US + b * MINUTE_US + c * SECOND_US
        else:
            limit = a * MINUTE_US + b * SECOND_US
        if limit == 0:
            return None
    if limit <= 0:
        raise UsageError(
            f"'{text}' is not a time limit.",
            "Write M, M:S, H:M:S, D-H, D-H:M, D-H:M:S, a duration such as 1h30m, or UNLIMITED.",
        )
    return limit


def format_elapsed(us: int) -> str:
    """Microseconds as Slurm shows them: `M:SS`, `H:MM:SS`, `D-HH:MM:SS`."""
    seconds = us // SECOND_US
    if seconds <= 0:  # of all jobs that wait
        return "0:00"
    days, rest = divmod(seconds, 86_400)
    hours, rest = divmod(rest, 3_600)
    minutes, seconds = divmod(rest, 60)
    if days:
        return f"{days}-{hours:02}:{minutes:02}:{seconds:02}"
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def format_time_limit(us: int | None) -> str:
    return "UNLIMITED" if us is None else format_elapsed(us)


def format_duration(us: int) -> str:
    """The shortest exact spelling that parse_duration_us reads back: `250ms`, `1h30m`, `1.5ms`."""
    if us == 0:
        return "0s"
    if us < SECOND_US:
        whole, rest = divmod(us, 1_000)
        if not whole:
            return f"{us}us"
        return f"{whole}.{rest:03}".rstrip("0").rstrip(".") + "ms"
    parts = []
    for unit, size in (("d", DAY_US), ("h", HOUR_US), ("m", MINUTE_US)):
        count, us = divmod(us, size)
        if count:
            parts.append(f"{count}{unit}")
    if us:
        parts.append(f"{us // SECOND_US}.{us % SECOND_US:06}".rstrip("0").rstrip(".") + "s")
    return "".join(parts)


_BINARY = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}


def parse_memory_bytes(text: str, default_unit: str = "M") -> int:
    """Slurm's memory sizes: `K M G T` are powers of 1024, without a unit megabytes."""
    match = re.match(_QUANTITY, text.strip())
    unit = match[3].upper() if match else ""
    unit = unit if unit == "B" else unit.removesuffix("IB").removesuffix("B")
    if match is None or (unit not in _BINARY and unit != "B"):
        raise UsageError(f"'{text}' is not a memory size.", "Write a number with K, M, G or T, such as 16G.")
    if unit == "B":
        return _scaled(match[1], match[2], 1)
    return _scaled(match[1], match[2], 1024 ** _BINARY[unit or default_unit])


_SIZES = (("TiB", 1 << 40), ("GiB", GIB), ("MiB", 1 << 20), ("KiB", 1 << 10))


def _one_decimal(size: int, factor: int) -> str:
    """Rounded down, so that nobody reads room that is not there."""
    whole, tenths = divmod(size * 10 // factor, 10)
    return f"{whole}.{tenths}" if tenths else str(whole)


def _unit_for(size: int) -> tuple[str, int]:
    return next(((name, factor) for name, factor in _SIZES if size >= factor), ("B", 1))


def format_bytes(size: int) -> str:
    """In the largest unit that fits, to one decimal: `16 GiB`, `23.5 GiB`, `300 MiB`, `7 B`."""
    name, factor = _unit_for(size)
    return f"{_one_decimal(size, factor)} {name}"


def format_share(part: int, whole: int) -> str:
    """What is free of what there is, in one unit: `7.3/23.5 GiB`."""
    name, factor = _unit_for(whole)
    return f"{_one_decimal(part, factor)}/{_one_decimal(whole, factor)} {name}"


_DECIMAL = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


def format_count(count: int, what: str) -> str:
    """`1 host`, `2 hosts`."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def parse_bandwidth_bps(text: str) -> int:
    """`22Gbps`, `100mbit`, `100Mbit/s`, `1.5G`, `1000000` to bit/s; powers of 1000, never bytes."""
    match = re.match(_QUANTITY, text.strip())
    unit = match[3] if match else "?"
    if unit.endswith(("B", "B/s", "Bps", "byte", "bytes", "byte/s", "bytes/s")):
        raise UsageError(
            f"'{text}' counts bytes; rates are in bit/s here.", "Multiply by 8: 1 GB/s is 8Gbps."
        )
    prefix = unit.upper()
    for ending in ("BITS/S", "BIT/S", "BITPS", "B/S", "BPS", "BITS", "BIT", "B"):
        if prefix.endswith(ending):
            prefix = prefix.removesuffix(ending)
            break
    if match is None or prefix not in _DECIMAL:
        raise UsageError(
            f"'{text}' is not a bandwidth.", "Write bit/s with K, M, G or T, such as 100Mbit or 22Gbps."
        )
    return _scaled(match[1], match[2], 1000 ** _DECIMAL[prefix])


def format_bandwidth(bps: int) -> str:
    """`22Gbps`, `1.5Gbps`, `100Mbps`, `750bps`."""
    for unit in ("T", "G", "M", "K"):
        factor = 1000 ** _DECIMAL[unit]
        if bps >= factor:
            return f"{bps / factor:.2f}".rstrip("0").rstrip(".") + f"{unit}bps"
    return f"{bps}bps"


def _split_hosts(text: str) -> list[str]:
    """Split at commas that are not inside brackets."""
    parts, depth, start = [], 0, 0
    for i, char in enumerate(text):
        if char == "[":
            depth += 1
        elif char == "]":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
        if depth not in (0, 1):
            raise _no_list(text, "its brackets do not match")
    if depth:
        raise _no_list(text, "its brackets do not match")
    return [part.strip() for part in [*parts, text[start:]] if part.strip()]


_HOSTS_HINT = "Write names and ranges such as gpu[01-04,07],login1."
_HOST_NAME = r"[A-Za-z0-9_]([A-Za-z0-9._-]*)\Z"
_RANGE = r"(\d{1,18})(?:-(\d{1,18}))?\Z"
_HOST_CHARACTERS, _BRACKETS = 255, 8  # of one name
_CUT = 200  # characters of a list that a sentence repeats


def is_host_name(text: str) -> bool:
    """Can a list of hosts name it?"""
    return re.match(_HOST_NAME, text) is not None


def _no_list(text: str, why: str) -> UsageError:
    return UsageError(f"'{text[:_CUT]}' is not a host list: {why}.", _HOSTS_HINT)


def _too_many(text: str) -> UsageError:
    return UsageError(f"The host list '{text[:_CUT]}' names more than {HOSTS_MAX} hosts.", _HOSTS_HINT)


def _expand(pattern: str, whole: str) -> list[str]:
    if "[" not in pattern:
        if not is_host_name(pattern):
            raise UsageError(f"'{pattern[:_CUT]}' is not a host name.", _HOSTS_HINT)
        return [pattern]
    texts = re.split(r"\[[^\]]*\]", pattern)
    if sum(map(len, texts)) > _HOST_CHARACTERS or len(texts) > _BRACKETS + 1:
        raise _no_list(whole, "a name in it is too long, or has too many brackets")
    head, _, rest = pattern.partition("[")
    body, _, tail = rest.partition("]")
    names: list[str] = []
    for piece in body.split(","):
        match = re.match(_RANGE, piece.strip())
        low, high = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if match is None or high < low:
            raise UsageError(
                f"'{piece[:_CUT]}' is not a range in the host list '{whole[:_CUT]}'.", _HOSTS_HINT
            )
        if high - low + len(names) >= HOSTS_MAX:
            raise _too_many(whole)
        names += [f"{head}{number:0{len(match[1])}}" for number in range(low, high + 1)]
    expanded: list[str] = []
    for name in names:
        expanded += _expand(name + tail, whole)
        if len(expanded) > HOSTS_MAX:
            raise _too_many(whole)
    return expanded


def parse_hosts(text: str) -> tuple[str, ...]:
    """Expand Slurm's host list `gpu[01-04,07],login1`; order kept, doubles dropped."""
    found: dict[str, None] = {}
    named = 0  # with doubles: each takes its time
    for pattern in _split_hosts(text):
        names = _expand(pattern, text)
        named += len(names)
        if named > HOSTS_MAX:
            raise _too_many(text)
        found.update(dict.fromkeys(names))
    return tuple(found)


_DIGITS = "0123456789"


def fold_hosts(hosts: Iterable[str]) -> str:
    """The inverse of parse_hosts: `gpu01 gpu02 gpu03 login1` to `gpu[01-03],login1`.

    Names group by stem and number of digits, in order of first appearance.
    """
    groups: dict[tuple[str, int], list[int]] = {}
    for kind, number in _split_names(hosts):
        groups.setdefault(kind, []).append(number)
    return ",".join(_folded(kind, sorted(numbers)) for kind, numbers in groups.items())


def name_order(name: str) -> tuple[tuple[str | int, ...], str]:
    """A key by which `gpu9` comes before `gpu10`."""
    parts = re.split(r"([0-9]+)", name)  # texts and numbers in turn
    return tuple(int(part) if at % 2 else part for at, part in enumerate(parts)), name


def hosts_in_order(hosts: Iterable[str]) -> str:
    """A host list that parse_hosts, and Slurm's programs, read back in this very order: `gpu[03,01-02]`."""
    runs: list[tuple[tuple[str, int], list[int]]] = []
    for kind, number in _split_names(hosts):
        if runs and runs[-1][0] == kind:
            runs[-1][1].append(number)
        else:
            runs.append((kind, [number]))
    return ",".join(_folded(kind, numbers) for kind, numbers in runs)


def _split_names(hosts: Iterable[str]) -> list[tuple[tuple[str, int], int]]:
    """((stem, digits), number) of each host, digits 0 for a name that ends in no number."""
    names = [(name.rstrip(_DIGITS), name) for name in dict.fromkeys(hosts)]
    numbered = [(stem, name[len(stem) :]) for stem, name in names]
    padded = {stem for stem, digits in numbered if len(digits) > 1 and digits.startswith("0")}
    split = []
    for stem, digits in numbered:
        if not digits:
            split.append(((stem, 0), 0))
        else:  # without leading zeros n[8-10] reads back as n8 n9 n10
            split.append(((stem, len(digits) if stem in padded else 1), int(digits)))
    return split


def _folded(kind: tuple[str, int], numbers: list[int]) -> str:
    """The hosts of one stem, in the order of the numbers."""
    stem, width = kind
    if width == 0:
        return stem
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    spelled = [f"{a:0{width}}" if a == b else f"{a:0{width}}-{b:0{width}}" for a, b in runs]
    return f"{stem}{spelled[0]}" if len(numbers) == 1 else f"{stem}[{','.join(spelled)}]"


def umask_of(environment: Mapping[str, str]) -> int:
    """Of whoever submitted a job that has this environment; the usual one where that does not say."""
    try:
        return int(environment["SLURM_UMASK"], 8) & 0o777
    except (LookupError, ValueError):
        return 0o022
