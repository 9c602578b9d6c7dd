"""Where the daemon is, as a user writes it."""

from pathlib import Path

import pytest

from rm.client.address import Address, find_daemon, parse
from rm.errors import ConfigError, UsageError
from rm.paths import SYSTEM_SOCKET


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("/run/x.sock", Address("unix", "/run/x.sock")),
        ("unix:///run/x.sock", Address("unix", "/run/x.sock")),
        ("ssh://control", Address("ssh", SYSTEM_SOCKET, "control")),
        ("ssh://control/", Address("ssh", SYSTEM_SOCKET, "control")),
        ("ssh://ann@[::1]:2222/a/rm.sock", Address("ssh", "/a/rm.sock", "::1", "ann", 2222)),
        ("https://rm.example.org", Address("https", host="rm.example.org", port=443)),
        ("https://rm.example.org:6832/", Address("https", host="rm.example.org", port=6832)),
    ],
)
def test_addresses(text: str, address: Address) -> None:
    assert parse(text, "RM_DAEMON") == address


@pytest.mark.parametrize(
    "text",
    [
        "control", "http://control", "ssh://", "ssh://-oProxyCommand=x", "ssh://a@-x", "ssh://-l@host", "https://u@h",
        "ssh://host/a:b", "https://h/path", "ssh://host:port", "ssh://u:secret@host", "ssh://h?x=1", "unix://h/p",
        "ssh://h/%0a",
    ],
)  # fmt: skip
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="RM_DAEMON"):
        parse(text, "RM_DAEMON")


def test_the_peers_are_those_beside_the_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RM_DAEMON", "RM_DAEMON__SOCKET"):
        monkeypatch.delenv(name, raising=False)
    file = tmp_path / "rm.toml"
    file.write_text('[daemon]\nurl = "https://one:1"\npeers = ["https://Two:2", "https://three"]\n')
    found = find_daemon(None, str(file))
    named = ("https://one:1", "https://two:2/", "https://three:443")
    assert all(found.names(parse(text, "a test")) for text in named)
    others = ("https://one:2", "https://two", "https://two.example.org:2", "ssh://two:2", "/two")
    assert not any(found.names(parse(text, "a test")) for text in others)
    monkeypatch.setenv("RM_DAEMON", "https://four:4")
    assert find_daemon(None, str(file)).peers == found.peers


@pytest.mark.parametrize("peers", ['"https://two"', '["ssh://two"]', '["two"]', "[7]"])
def test_peers_that_are_no_https_addresses_are_refused(tmp_path: Path, peers: str) -> None:
    file = tmp_path / "rm.toml"
    file.write_text(f'[daemon]\nurl = "https://one:1"\npeers = {peers}\n')
    with pytest.raises((UsageError, ConfigError), match=r"daemon\.peers in"):
        find_daemon(None, str(file))


def test_the_nearest_word_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RM_DAEMON", "RM_DAEMON__SOCKET", "RM_CA_FILE", "RM_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    file = tmp_path / "rm.toml"
    file.write_text(
        '[daemon]\nurl = "https://file:1"\nsocket = "/file"\nca_file = "/ca"\ntoken_file = "/t"\n'
    )
    monkeypatch.setenv("RM_CONFIG", str(file))
    assert find_daemon(None, None) == Address("https", host="file", port=1, ca_file="/ca", token_file="/t")
    monkeypatch.setenv("RM_DAEMON", "ssh://env")
    assert find_daemon(None, None).host == "env"
    monkeypatch.setenv("RM_DAEMON__SOCKET", "/env")
    assert find_daemon(None, None) == Address("unix", "/env")
    assert find_daemon("/flag", None) == Address("unix", "/flag")
