"""The HTTPS door and the page of a daemon that waits: they name the leader, and a token goes only to daemons
that the user's configuration names."""

from __future__ import annotations

import http.client
import json
import logging
import queue
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rm.client.address import Address
from rm.client.connection import Connection
from rm.config import Config, DaemonConfig, HttpsConfig, JobsConfig, WebConfig
from rm.core.people.rights import Role
from rm.core.store import Doors, Lease
from rm.errors import ConfigError, Standby, Unreachable
from rm.web import standby
from rm.web.addresses import doors_of
from rm.web.callers import access, identity
from tests.certificates import Authority
from tests.fake_service import serving
from tests.fakes import PATIENCE_S
from tests.standing_by import standing_by
from tests.unit.test_web_api import SPEC

ANYWHERE = "127.0.0.1:0"
HERE = f"{socket.gethostname()}:/run/rm/rm.sock:a1b2"
ELSEWHERE = "control2:/run/rm/rm.sock:a1b2"
TOKEN = "rmt_1_secret"


class Heard(logging.Handler):
    """What rm.web logs: the ports that were opened, and sentences of warnings."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.ports: queue.Queue[int] = queue.Queue()
        self.warnings: queue.Queue[str] = queue.Queue()

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING:
            self.warnings.put(record.getMessage())
        elif "port" in record.getMessage():
            assert isinstance(record.args, tuple)
            self.ports.put(int(str(record.args[0])))

    def port(self) -> int:
        """The next one that was opened."""
        return self.ports.get(timeout=PATIENCE_S)


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Iterator[Heard]:
    monkeypatch.setattr(standby, "RETRY_S", 0.02)
    log, found = logging.getLogger("rm.web"), Heard()
    before = log.level
    log.setLevel(logging.INFO)  # forgets, too, which levels were off for the loggers below it
    log.addHandler(found)
    yield found
    log.removeHandler(found)
    log.setLevel(before)


@pytest.fixture
def tls(tmp_path: Path) -> HttpsConfig:
    Authority(tmp_path).issue(tmp_path / "cert.pem", tmp_path / "key.pem")
    return HttpsConfig(ANYWHERE, str(tmp_path / "cert.pem"), str(tmp_path / "key.pem"))


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The credentials that the leader has been shown."""
    found: list[str] = []

    async def caller(request: Any, keeper: Any) -> identity.Caller:
        found.append(request.headers["Authorization"])
        return identity.Caller(12345, "ann", Role.USER, "https", "127.0.0.1", "t1")

    monkeypatch.setattr(access, "caller_of", caller)
    monkeypatch.setenv("RM_TOKEN", TOKEN)
    return found


def with_doors(directory: Path, lease: list[Lease], config: Config) -> AbstractContextManager[None]:
    """A standby, which says that the holder of `lease[0]` leads."""
    config = msgspec.structs.replace(config, daemon=DaemonConfig(socket=str(directory / "standby.sock")))
    return standing_by(config, lambda: lease[0])


def at(port: int, directory: Path, *peers: int) -> Address:
    named = tuple(Address("https", host="127.0.0.1", port=peer) for peer in peers)
    return Address("https", host="127.0.0.1", port=port, ca_file=str(directory / "ca.pem"), peers=named)


def leading(port: int, holder: str = HERE) -> Lease:
    return Lease(holder, doors=Doors(https=f"https://127.0.0.1:{port}"))


def page_of(port: int, path: str = "/") -> tuple[http.client.HTTPResponse, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    connection.request("GET", path)
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    return response, text


# -- HTTPS


def test_a_client_follows_to_a_leader_that_its_configuration_names(
    tmp_path: Path, heard: Heard, tls: HttpsConfig, shown: list[str]
) -> None:
    config = Config(https=tls, jobs=JobsConfig(run_root_as="rmjob"))
    with serving(tmp_path / "leader.sock", config) as daemon:
        leader = heard.port()
        with with_doors(tmp_path, [leading(leader)], Config(https=tls)):
            client = Connection(at(heard.port(), tmp_path, leader))
            assert client.get("status")["daemon"]["epoch"] == 3
            assert client.post("jobs", body={"spec": SPEC}, key="once")["job"] == 1
            assert client.get("jobs")["jobs"][0]["id"] == 1
            client.close()
        assert list(daemon.service.table) == [1]
    assert set(shown) == {f"Bearer {TOKEN}"}


def test_a_post_that_a_standby_refused_is_made_by_the_leader(
    tmp_path: Path, heard: Heard, tls: HttpsConfig, shown: list[str]
) -> None:
    config = Config(https=tls, jobs=JobsConfig(run_root_as="rmjob"))
    with serving(tmp_path / "leader.sock", config) as daemon:
        leader = heard.port()
        with with_doors(tmp_path, [leading(leader)], Config(https=tls)):
            client = Connection(at(heard.port(), tmp_path, leader))
            client.post("jobs", body={"spec": SPEC})  # without a key: nothing was done before
            client.close()
        assert list(daemon.service.table) == [1]


def test_no_token_goes_to_a_leader_that_the_configuration_does_not_name(
    tmp_path: Path, heard: Heard, tls: HttpsConfig, shown: list[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        port = stranger.getsockname()[1]
        with with_doors(tmp_path, [leading(port)], Config(https=tls)):
            client = Connection(at(heard.port(), tmp_path, 1))
            for ask in (lambda: client.get("status"), lambda: client.post("jobs", body={}, key="k")):
                with pytest.raises(ConfigError, match=f"at https://127.0.0.1:{port}, which your") as refused:
                    ask()
                assert f'peers = ["https://127.0.0.1:{port}"]' in refused.value.hint
        stranger.setblocking(False)
        with pytest.raises(BlockingIOError):
            stranger.accept()  # nobody has connected


def test_who_asks_by_https_while_nobody_leads_waits_for_the_next_leader(
    tmp_path: Path, heard: Heard, tls: HttpsConfig, shown: list[str]
) -> None:
    with serving(tmp_path / "leader.sock", Config(https=tls)):
        leader = heard.port()
        lease = [Lease(ELSEWHERE)]
        with with_doors(tmp_path, lease, Config(https=tls)):
            address = at(heard.port(), tmp_path, leader)
            lease[0] = Lease()
            waits: list[str] = []

            def elected(why: str) -> None:
                waits.append(why)
                lease[0] = leading(leader)

            client = Connection(address, on_wait=elected)
            assert client.get("status")["daemon"]["epoch"] == 3
            assert ["waits for its turn" in why for why in waits] == [True]
            client.close()


def dead_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        return int(nobody.getsockname()[1])


def test_a_client_whose_first_address_is_dead_asks_the_peers_in_their_order(
    tmp_path: Path, heard: Heard, tls: HttpsConfig, shown: list[str]
) -> None:
    with serving(tmp_path / "leader.sock", Config(https=tls)):
        client = Connection(at(dead_port(), tmp_path, dead_port(), heard.port()))
        assert client.get("status")["daemon"]["epoch"] == 3
        client.close()
    assert shown == [f"Bearer {TOKEN}"]


def test_without_any_peer_that_answers_the_first_address_is_named(
    tmp_path: Path, shown: list[str], tls: HttpsConfig
) -> None:
    dead = dead_port()
    with pytest.raises(Unreachable, match=f"at https://127.0.0.1:{dead} "):
        Connection(at(dead, tmp_path, dead_port())).get("status")


def test_a_standby_that_still_names_the_dead_leader_is_asked_again(
    tmp_path: Path, heard: Heard, tls: HttpsConfig, shown: list[str]
) -> None:
    dead = dead_port()
    with serving(tmp_path / "leader.sock", Config(https=tls)):
        leader, lease = heard.port(), [leading(dead)]
        with with_doors(tmp_path, lease, Config(https=tls)):
            waits: list[str] = []

            def elected(why: str) -> None:
                waits.append(why)
                lease[0] = leading(leader)

            client = Connection(at(dead, tmp_path, heard.port(), leader), on_wait=elected)
            assert client.get("status")["daemon"]["epoch"] == 3
            assert ["next leader is waited for" in why for why in waits] == [True]
            client.close()


def test_an_address_with_a_wrong_certificate_is_no_dead_one(
    tmp_path: Path, heard: Heard, tls: HttpsConfig, shown: list[str]
) -> None:
    (tmp_path / "other").mkdir()
    Authority(tmp_path / "other").issue(tmp_path / "other/cert.pem", tmp_path / "other/key.pem")
    other = HttpsConfig(ANYWHERE, str(tmp_path / "other/cert.pem"), str(tmp_path / "other/key.pem"))
    with serving(tmp_path / "leader.sock", Config(https=tls)):
        leader = heard.port()
        with (
            with_doors(tmp_path, [Lease(ELSEWHERE)], Config(https=other)),
            pytest.raises(Unreachable, match="is not trusted"),
        ):
            Connection(at(heard.port(), tmp_path, leader)).get("status")
    assert shown == []


@pytest.mark.parametrize(
    ("lease", "said", "url"),
    [
        (Lease(), "waits for its turn", None),
        (Lease(ELSEWHERE), "another leads the cluster, on control2.", None),
        (leading(6832, ELSEWHERE), "another leads the cluster, on control2.", None),  # its own loopback
        (
            Lease(ELSEWHERE, doors=Doors(https="https://rm.test:6832")),
            "another leads the cluster, at https://rm.test:6832.",
            "https://rm.test:6832",
        ),
    ],
)
def test_what_strangers_learn_at_the_https_door(
    tmp_path: Path, heard: Heard, tls: HttpsConfig, lease: Lease, said: str, url: str | None
) -> None:
    now = [Lease(ELSEWHERE)]
    with with_doors(tmp_path, now, Config(https=tls)):
        port = heard.port()
        now[0] = lease
        trusted = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=PATIENCE_S, context=trusted)
        connection.request("GET", "/v1/status")
        response = connection.getresponse()
        body = response.read().decode()
        connection.close()
    error = json.loads(body)["error"]
    assert (response.status, error["kind"], response.getheader("Rm-Leader-Url")) == (503, "Standby", url)
    assert said in error["message"]
    assert "/run/rm" not in body + str(response.headers)


def test_a_leader_without_an_address_is_named_by_the_clients_error(
    tmp_path: Path, heard: Heard, tls: HttpsConfig, shown: list[str]
) -> None:
    with with_doors(tmp_path, [Lease(ELSEWHERE)], Config(https=tls)):
        client = Connection(at(heard.port(), tmp_path), patience_s=0)
        with pytest.raises(Standby, match="another leads the cluster, on control2"):
            client.get("status")
        client.close()


# -- the page


def test_the_page_of_a_standby_leads_to_the_leaders(tmp_path: Path, heard: Heard) -> None:
    doors = Doors(page="https://rm.test/a&b/")
    with with_doors(tmp_path, [Lease(ELSEWHERE, doors=doors)], Config(web=WebConfig(ANYWHERE))):
        response, text = page_of(heard.port(), "/job/7")
    assert response.status == 503
    assert response.headers["Content-Type"].startswith("text/html")
    assert "default-src 'none'" in response.headers["Content-Security-Policy"]
    assert response.headers["Cache-Control"] == "no-store"
    assert '<a href="https://rm.test/a&amp;b/">https://rm.test/a&amp;b/</a>' in text
    assert "another leads the cluster" in text


@pytest.mark.parametrize("url", ["http://127.0.0.1:8080/", "https://shared.test/"])
def test_the_page_links_to_no_address_that_is_not_the_leaders_from_here(
    tmp_path: Path, heard: Heard, url: str
) -> None:
    config = Config(web=WebConfig(ANYWHERE, url="https://shared.test/"))
    with with_doors(tmp_path, [Lease(ELSEWHERE, doors=Doors(page=url))], config):
        _, text = page_of(heard.port())
    assert "another leads the cluster, on control2" in text
    assert "href" not in text


# -- the ports


def test_a_port_that_is_taken_is_warned_about_and_tried_again(tmp_path: Path, heard: Heard) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        config = Config(web=WebConfig(f"127.0.0.1:{port}"))
        with with_doors(tmp_path, [Lease(ELSEWHERE)], config):
            warning = heard.warnings.get(timeout=PATIENCE_S)
            assert f"cannot listen on 127.0.0.1:{port}" in warning
            assert "tries again" in warning
            assert Path(tmp_path / "standby.sock").exists()  # it waits on
            other.close()
            assert heard.port() == port
            assert page_of(port)[0].status == 503
            assert heard.warnings.empty()  # it was told once


def test_a_door_is_left_to_a_leader_on_the_same_machine_with_the_same_address(
    tmp_path: Path, heard: Heard
) -> None:
    """Such a leader needs the port."""
    config = Config(web=WebConfig(ANYWHERE, url="http://shared.test/"))
    lease = [Lease(ELSEWHERE)]
    with with_doors(tmp_path, lease, config):
        port = heard.port()
        assert page_of(port)[0].status == 503
        lease[0] = Lease(HERE, doors=Doors(page="http://shared.test/"))
        assert is_closed(port)
        lease[0] = Lease(ELSEWHERE)
        again = heard.port()
    assert is_closed(again)  # it ended


def is_closed(port: int) -> bool:
    until_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < until_s:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S).close()
        except ConnectionRefusedError:
            return True
        time.sleep(0.02)
    return False


# -- the addresses


@pytest.mark.parametrize(
    ("https", "web", "doors"),
    [
        (HttpsConfig(), WebConfig(), Doors()),
        (
            HttpsConfig("0.0.0.0:6832"),
            WebConfig("[::]:8080"),
            Doors(f"https://{socket.gethostname()}:6832", f"http://{socket.gethostname()}:8080/"),
        ),
        (
            HttpsConfig("[fd00::1]:1"),
            WebConfig("8080"),
            Doors("https://[fd00::1]:1", "http://127.0.0.1:8080/"),
        ),
        (HttpsConfig(ANYWHERE), WebConfig(ANYWHERE), Doors()),
        (
            HttpsConfig(ANYWHERE, url="https://rm.test/"),
            WebConfig(ANYWHERE, url="https://rm.test/page/"),
            Doors("https://rm.test", "https://rm.test/page/"),
        ),
    ],
)
def test_where_users_reach_the_doors(https: HttpsConfig, web: WebConfig, doors: Doors) -> None:
    assert doors_of(Config(https=https, web=web)) == doors


@pytest.mark.parametrize(
    ("advertise", "machine"),
    [
        ("control2.test", "control2.test"),
        ("10.0.0.2", "10.0.0.2"),
        ("fd00::2", "[fd00::2]"),
        ("[fd00::2]",) * 2,
    ],
)
def test_an_advertised_machine_is_named_for_each_door(advertise: str, machine: str) -> None:
    config = Config(
        daemon=DaemonConfig(advertise=advertise),
        https=HttpsConfig("0.0.0.0:6832"),
        web=WebConfig("10.0.0.7:8080"),
    )
    assert doors_of(config) == Doors(f"https://{machine}:6832", "http://10.0.0.7:8080/", machine)


@pytest.mark.parametrize(
    "advertise", ["-oProxyCommand=x", "ann@control2", "control2:22", "a b", "a\n", "a/b"]
)
def test_what_is_no_name_of_a_machine_is_not_advertised(advertise: str) -> None:
    with pytest.raises(ConfigError, match=r"daemon\.advertise"):
        doors_of(Config(daemon=DaemonConfig(advertise=advertise)))


@pytest.mark.parametrize(
    "url",
    ["rm.test", "http://rm.test", "https://", "https://u@rm.test", "https://rm.test/x", "https://rm.test?x",
     "https://rm.test:port", "https://rm.test\r\nx", "javascript:alert(1)"],
)  # fmt: skip
def test_what_is_no_address_of_the_https_door_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"https\.url"):
        doors_of(Config(https=HttpsConfig(url=url)))


@pytest.mark.parametrize("url", ["rm.test", "ssh://rm.test", "javascript:alert(1)", "http://rm.test/a b"])
def test_what_is_no_address_of_a_page_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"web\.url"):
        doors_of(Config(web=WebConfig(url=url)))
