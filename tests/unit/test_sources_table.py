"""A source's table in rm.toml: what it says, what is wrong with it, and no secret."""

from __future__ import annotations

from typing import Any

import pytest

from rm.core.monitoring.archive import parse_archive
from rm.core.monitoring.source import endpoints, parse_source
from rm.daemon.monitoring.meshes import sources_of
from rm.errors import ConfigError
from tests import builders
from tests.unit.test_sources import read


def test_a_source_is_read_from_its_table() -> None:
    table = {
        "name": "ma", "kind": "esmond", "url": "https://ma.test/esmond/perfsonar/archive/", "every": "2m",
        "hosts": {"PS1.test": "a", "ps9.test": "none of ours"},
    }  # fmt: skip
    found = parse_source(table)
    assert (found.url, found.every_us, found.mesh) == (
        "https://ma.test/esmond/perfsonar/archive", 120_000_000, "esmond:ma",
    )  # fmt: skip
    names = endpoints([builders.host("a", address="10.0.0.1"), builders.host("B")], found)
    assert names == {"10.0.0.1": "a", "a": "a", "b": "B", "b.test": "B", "ps1.test": "a"}


@pytest.mark.parametrize(
    "url",
    [
        "http://u:{0}@x/", "http://{0}@x/", "http://x/?token={0}", "u:{0}@x", "x#{0}",
        "http://u:{0}%40x/", "http://u%3A{0}%40x/", "http://u:{0}\uff20x/", "http://u:{0}/", "{0}",
    ],
)  # fmt: skip
def test_an_address_that_may_hold_a_secret_is_never_shown(url: str) -> None:
    table = {"name": "ma", "kind": "esmond", "url": url.format("s3cr3t")}
    found, malformed = sources_of([table])
    assert not found
    assert "a password" in malformed[0][1]
    assert "s3cr3t" not in str(malformed)


@pytest.mark.parametrize(
    ("read_one", "table"),
    [
        (parse_archive, {"headers_file": {"Authorization": "Bearer s3cr3t"}}),
        (parse_archive, {"headers_file": ["s3cr3t"]}),
        (parse_source, {"kind": "esmond", "password_file": ["s3cr3t"]}),
    ],
)
def test_a_secret_in_place_of_its_file_is_never_shown(read_one: Any, table: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="_file: It is not text") as refused:
        read_one({"name": "ma", "url": "https://ma.test/x", **table})
    assert "s3cr3t" not in f"{refused.value} {refused.value.hint}"


def test_a_secret_in_place_of_its_files_name_is_never_shown() -> None:
    with pytest.raises(ConfigError, match="password_file of source") as refused:
        read("opensearch", "http://127.0.0.1:1", user="rm", password_file="s3cr3t")
    assert "s3cr3t" not in str(refused.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": "a b"}, "the name 'a b'"), ({"kind": "esmon"}, "not one of maddash"),
        ({"urll": ""}, "'url'?"),
        ({"url": "ftp://x"}, "not an address"), ({"url": "http://u:p@x/"}, "password_file"),
        ({"url": 7}, "not an address"),
        ({"every": "1"}, "not a duration"), ({"every": "1s"}, "out of range"),
        ({"every": 60}, "not a duration"),
        ({"hosts": {"x": 1}}, "names of hosts"), ({"only": "x"}, "list of names"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_table_is_said(change: dict[str, Any], said: str) -> None:
    table = {"name": "ma", "kind": "esmond", "url": "http://ma.test", **change}
    with pytest.raises(ConfigError) as error:
        parse_source(table)
    assert said in str(error.value)
    found, malformed = sources_of([table, {"name": "good", "kind": "maddash", "url": "http://x.test"}])
    assert [s.name for s in found] == ["good"]
    assert len(malformed) == 1
