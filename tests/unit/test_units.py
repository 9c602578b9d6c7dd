"""Units: what users write is read exactly, and what rm writes is read back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rm import units
from rm.errors import UsageError

MINUTE, HOUR, DAY = 60_000_000, 3_600_000_000, 86_400_000_000


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("90", 90 * MINUTE),
        ("1:30", MINUTE + 30_000_000),
        ("2:00:05", 2 * HOUR + 5_000_000),
        ("1-2", DAY + 2 * HOUR),
        ("1-2:03", DAY + 2 * HOUR + 3 * MINUTE),
        ("1-2:03:04", DAY + 2 * HOUR + 3 * MINUTE + 4_000_000),
        ("1-", DAY),
        ("0", None),
        ("0:00:00", None),
        ("UNLIMITED", None),
        ("unlimited", None),
        ("1h", HOUR),
        ("1h 30m", HOUR + 30 * MINUTE),
        ("250ms", 250_000),
    ],
)
def test_time_limits(text: str, us: int | None) -> None:
    assert units.parse_time_limit_us(text) == us


@pytest.mark.parametrize("text", ["", "-", "abc", "1:2:3:4", "1--", "-5", "1h30", "3 apples"])
def test_bad_time_limits_say_how_to_write_them(text: str) -> None:
    with pytest.raises(UsageError, match=r"not a time limit.*Write M"):
        units.parse_time_limit_us(text)


@pytest.mark.parametrize(
    ("text", "us"), [("250ms", 250_000), ("0.0001ms", 1), ("1.5s", 1_500_000), ("1h30m", HOUR + 30 * MINUTE)]
)
def test_durations(text: str, us: int) -> None:
    assert units.parse_duration_us(text) == us


def test_a_duration_without_unit_is_refused() -> None:
    with pytest.raises(UsageError, match=r"'200' is not a duration. Write 200s for seconds, or 200m for min"):
        units.parse_duration_us("200")


@given(st.integers(min_value=0, max_value=10**15))
def test_durations_are_read_back(us: int) -> None:
    assert units.parse_duration_us(units.format_duration(us)) == us


@given(st.integers(min_value=1, max_value=10**8))
def test_elapsed_is_read_back_as_a_time_limit(seconds: int) -> None:
    assert units.parse_time_limit_us(units.format_elapsed(seconds * 1_000_000)) == seconds * 1_000_000


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("100", 100 * 2**20),
        ("1.5G", 3 * 2**29),
        ("4K", 4096),
        ("2T", 2**41),
        ("16GB", 2**34),
        ("7B", 7),
        ("1GiB", 2**30),
    ],
)
def test_memory(text: str, size: int) -> None:
    assert units.parse_memory_bytes(text) == size


@pytest.mark.parametrize("text", ["", "G", "1X", "-1G", "1..5G"])
def test_bad_memory(text: str) -> None:
    with pytest.raises(UsageError, match="not a memory size"):
        units.parse_memory_bytes(text)


def test_sizes_are_shown_in_the_unit_that_fits() -> None:
    shown = [units.format_bytes(n) for n in (0, 7, 2**34, 3 * 2**29, 300 * 2**20, 2**30 + 1)]
    assert shown == ["0 B", "7 B", "16 GiB", "1.5 GiB", "300 MiB", "1 GiB"]
    assert units.format_bytes(24684084 << 10) == "23.5 GiB"
    assert units.format_share(300 << 20, 3 << 29) == "0.2/1.5 GiB"


@pytest.mark.parametrize(
    ("text", "bps"),
    [
        ("22Gbps", 22 * 10**9),
        ("100mbit", 10**8),
        ("100Mbit/s", 10**8),
        ("1.5G", 1_500_000_000),
        ("1000000", 1_000_000),
        ("10kbit", 10_000),
        ("5Mb/s", 5_000_000),
    ],
)
def test_bandwidth(text: str, bps: int) -> None:
    assert units.parse_bandwidth_bps(text) == bps


def test_bytes_are_not_taken_for_bits() -> None:
    with pytest.raises(UsageError, match="bytes"):
        units.parse_bandwidth_bps("10GB/s")
    with pytest.raises(UsageError, match="not a bandwidth"):
        units.parse_bandwidth_bps("fast")


def test_host_lists() -> None:
    assert units.parse_hosts("gpu[01-04,07],login1") == (
        "gpu01",
        "gpu02",
        "gpu03",
        "gpu04",
        "gpu07",
        "login1",
    )
    assert units.parse_hosts("r[1-2]n[8-10],r1n8") == ("r1n8", "r1n9", "r1n10", "r2n8", "r2n9", "r2n10")
    assert units.fold_hosts(["gpu07", "gpu01", "gpu02", "login1", "head"]) == "gpu[01-02,07],login1,head"
    assert units.fold_hosts(["n8", "n9", "n10"]) == "n[8-10]"
    assert units.fold_hosts(["n08", "n09", "n10"]) == "n[08-10]"


@pytest.mark.parametrize(
    "text", ["gpu[1-", "gpu]1[", "gpu[3-1]", "gpu[a-b]", "n[0-99999999]", "n[1-999][1-999]", "a b", "-f"]
)
def test_bad_host_lists(text: str) -> None:
    with pytest.raises(UsageError):
        units.parse_hosts(text)


@pytest.mark.parametrize(
    "text",
    [
        "a[0-40000],b[0-40000]",
        "a[0-40000],a[0-40000]",
        f"a[1-{'9' * 5_000}]",
        f"a[{'0' * 5_000}-9]",
        f"{'a' * 300}[0-9]",
        "a" + "[1]" * 2_000,
        "[" * 100_000,
    ],
)
def test_a_host_list_takes_no_more_time_and_room_than_its_most_hosts(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        units.parse_hosts(text)
    assert len(refused.value.what) < 600


@given(st.lists(st.from_regex(r"[a-c]{1,2}[0-9]{0,3}", fullmatch=True), unique=True, min_size=1))
def test_folded_hosts_expand_to_the_same_set(hosts: list[str]) -> None:
    assert set(units.parse_hosts(units.fold_hosts(hosts))) == set(hosts)
    assert list(units.parse_hosts(units.hosts_in_order(hosts))) == list(dict.fromkeys(hosts))
