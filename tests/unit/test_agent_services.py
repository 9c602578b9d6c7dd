"""What a host asks a name server and a web server: the answers are read, and wrong ones say what is wrong."""

from __future__ import annotations

import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.agent_process import AGENTS
from tests.archive_servers import serving

sys.path.insert(0, str(AGENTS))
import rm_clock
import rm_dns
import rm_http
import rm_probe

TYPES = rm_dns.TYPES
WWW = b"\xc0\x0c"  # the name that was asked for
Answer = Callable[[bytes], bytes | None]


def record(kind: str, data: bytes, name: bytes = WWW) -> bytes:
    return name + struct.pack("!HHIH", TYPES[kind], 1, 60, len(data)) + data


def reply(*records: bytes, flags: int = 0x8180) -> Answer:
    """The question comes back with these records."""

    def made(asked: bytes) -> bytes:
        return (
            asked[:2] + struct.pack("!HHHHH", flags, 1, len(records), 0, 0) + asked[12:] + b"".join(records)
        )

    return made


def on_one_port() -> tuple[socket.socket, socket.socket]:
    """UDP and TCP; of a port that another program has for one of the two the next is tried."""
    while True:
        udp, tcp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), socket.socket()
        udp.bind(("127.0.0.1", 0))
        try:
            tcp.bind(udp.getsockname())
        except OSError:
            udp.close()
            tcp.close()
        else:
            return udp, tcp


@contextmanager
def name_server(answer: Answer, over_tcp: Answer | None = None) -> Iterator[int]:
    """Answers on a port of 127.0.0.1 over UDP, and over TCP if it shall."""
    udp, tcp = on_one_port()
    with udp, tcp:
        tcp.listen()

        def serve() -> None:
            asked, peer = udp.recvfrom(512)
            if not asked:  # its time was over before it asked
                return
            if (told := answer(asked)) is not None:
                udp.sendto(b"x" * 20, peer)  # somebody else's
                udp.sendto(told, peer)
            if over_tcp is not None:
                link, _ = tcp.accept()
                with link:
                    asked = link.recv(512)[2:]
                    told = over_tcp(asked) or b""
                    link.sendall(struct.pack("!H", len(told)) + told)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield udp.getsockname()[1]
        finally:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
                end.sendto(b"", udp.getsockname())
            thread.join()


def ask(port: int, kind: str, query: str = "www.example.org", timeout_us: int = 10_000_000) -> dict[str, Any]:
    found: dict[str, Any] = rm_dns.ask(query, kind, "127.0.0.1", timeout_us, port)
    return found


@pytest.mark.parametrize(
    ("kind", "data", "text"),
    [
        ("a", bytes([192, 0, 2, 7]), "192.0.2.7"),
        ("aaaa", b"\x20\x01\x0d\xb8" + b"\0" * 11 + b"\x01", "2001:db8::1"),
        ("cname", b"\x03web" + b"\xc0\x10", "web.example.org"),
        ("ns", b"\x02ns" + b"\xc0\x10", "ns.example.org"),
        ("mx", b"\0\x0a\x02mx" + b"\xc0\x10", "10 mx.example.org"),
        ("txt", b"\x03v=1\x02 -", "v=1 -"),
        (
            "soa", b"\x02ns\xc0\x10\x04root\xc0\x10" + struct.pack("!5I", 7, 1, 2, 3, 4),
            "ns.example.org root.example.org 7 1 2 3 4",
        ),
    ],
)  # fmt: skip
def test_records_are_read_with_compressed_names(kind: str, data: bytes, text: str) -> None:
    with name_server(reply(record(kind, data))) as port:
        found = ask(port, kind)
    assert (found["records"], found["error"], found["nameserver"]) == ([text], "", "127.0.0.1")
    assert 0 < found["time_us"] < 10_000_000


def test_a_chain_of_names_gives_what_it_leads_to() -> None:
    alias = record("cname", b"\x03web\xc0\x10")
    with name_server(reply(alias, record("a", bytes([192, 0, 2, 7]), b"\xc0\x2d"))) as port:
        assert ask(port, "a")["records"] == ["192.0.2.7"]


def test_an_address_is_asked_for_under_its_reversed_name() -> None:
    seen: list[bytes] = []

    def told(asked: bytes) -> bytes | None:
        seen.append(asked)
        return reply(record("ptr", b"\x03web\xc0\x0c"))(asked)

    with name_server(told) as port:
        assert ask(port, "ptr", "192.0.2.7")["error"] == ""
    assert b"\x017\x012\x010\x03192\x07in-addr\x04arpa\0" in seen[0]
    assert rm_dns.reversed_name("2001:db8::1").startswith("1.0.0.0.")
    assert rm_dns.reversed_name("2001:db8::1").endswith("8.b.d.0.1.0.0.2.ip6.arpa")


def test_an_answer_that_is_cut_is_asked_for_again_over_tcp() -> None:
    whole = reply(*(record("a", bytes([192, 0, 2, n])) for n in range(60)))
    with name_server(reply(flags=0x8380), whole) as port:
        assert len(ask(port, "a")["records"]) == 60


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (reply(flags=0x8183), "NXDOMAIN"),
        (reply(flags=0x8182), "SERVFAIL"),
        (reply(flags=0x8185), "REFUSED"),
        (reply(), "there is no record of this type"),
        (reply(record("a", b"\1\2")[:-1]), "illegal IP address|cannot be read|packed IP"),
        (reply(b"\xc0\x0c" * 20), "buffer|cannot be read|requires"),
        (lambda asked: reply(b"\xc0" + bytes([len(asked)]))(asked), "has no end"),
        (lambda asked: None, "no answer within 0.2 s"),
    ],
)
def test_what_is_no_right_answer_says_why(answer: Answer, said: str) -> None:
    with name_server(answer) as port:  # only one that says nothing is not waited for
        found = ask(port, "a", timeout_us=200_000 if "no answer" in said else 60_000_000)
    assert found["records"] == []
    assert any(part in found["error"] for part in said.split("|")), found["error"]


def test_a_name_that_is_none_and_a_server_that_is_none_are_said() -> None:
    assert "is not a name" in ask(1, "a", "www..example.org")["error"]
    assert rm_dns.ask("x.test", "a", "no such host", 200_000)["error"]


# -- pages


def page(**more: Any) -> Callable[[web.Request], Any]:
    async def told(request: web.Request) -> web.Response:
        return web.Response(**more)

    return told


async def away(request: web.Request) -> web.Response:
    raise web.HTTPFound("ftp://127.0.0.1/")


async def along(request: web.Request) -> web.Response:
    raise web.HTTPFound("/up")


ROUTES = (
    web.get("/up", page(text="all is well")),
    web.get("/down", page(status=503, reason="Busy")),
    web.get("/away", away),
    web.get("/along", along),
)


@pytest.mark.parametrize(
    ("path", "contains", "status", "found", "error"),
    [
        ("/up", "", 200, None, ""),
        ("/up", "well", 200, True, ""),
        ("/up", "ill", 200, False, "the page does not have the text"),
        ("/along", "well", 200, True, ""),
        ("/down", "", 503, None, "status 503 Busy"),
        ("/away", "", 302, None, "status 302 it redirects elsewhere than to a page"),
        ("/none", "", 404, None, "status 404 Not Found"),
    ],
)
def test_a_page_is_judged_by_its_status_and_its_text(
    path: str, contains: str, status: int, found: bool | None, error: str
) -> None:
    with serving(*ROUTES) as url:
        told = rm_http.fetch(url + path, contains)
    assert (told["status"], told["found"], told["error"]) == (status, found, error)
    assert told["time_us"] > 0


def test_nobody_there_and_nobody_who_answers_are_said() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        assert "refused" in rm_http.fetch(f"http://127.0.0.1:{port}/")["error"]
        free.listen()
        told = rm_http.fetch(f"http://127.0.0.1:{port}/", "", 200_000)
    assert (told["status"], told["error"]) == (None, "no answer within 0.2 s")


@pytest.mark.parametrize(
    "address", ["file://{path}", "file://localhost{path}", "data:,secret", "ftp://127.0.0.1/"]
)
def test_an_address_that_is_no_page_is_not_read(address: str, tmp_path: Path) -> None:
    """The agent is root: whoever may ask whether a text is on a page would read each file so."""
    (tmp_path / "file").write_text("secret")
    for contains in ("secret", "other"):
        told = rm_http.fetch(address.format(path=tmp_path / "file"), contains)
        assert (told["status"], told["found"]) == (None, None)
        assert told["error"].startswith("unknown url type")


@pytest.mark.parametrize("begin", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"])
def test_a_page_that_comes_byte_by_byte_takes_no_longer_than_any(begin: bytes) -> None:
    """Each byte comes in time, and the whole would take days."""
    ended = threading.Event()

    def drip() -> None:
        link, _ = listening.accept()
        with link:
            link.sendall(begin)
            while not ended.wait(0.02):
                try:
                    link.sendall(b"x")
                except OSError:
                    return

    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        dripping = threading.Thread(target=drip, daemon=True)
        dripping.start()
        try:
            told = rm_http.fetch(f"http://127.0.0.1:{listening.getsockname()[1]}/", "text", 300_000)
        finally:
            ended.set()
            dripping.join(10)
    assert (told["status"], told["found"], told["error"]) == (None, None, "no answer within 0.3 s")


def test_the_probe_passes_them_on_and_says_the_state_of_the_clock() -> None:
    with serving(*ROUTES) as url:
        assert rm_probe.probe({"kind": "http", "url": url + "/up"})["status"] == 200
    with pytest.raises(rm_probe.KernelRefused, match="no record"):
        rm_probe.probe({"kind": "dns", "query": "x", "record": "any"})
    assert rm_probe.probe({"kind": "clock"})["synchronized"] in (True, False)
    assert rm_clock.state()["at_us"] > 0


def test_a_histogram_has_ten_microseconds_or_as_many_as_fit() -> None:
    assert rm_probe.histogram([-14, 3, 4, 5, 12, 12]) == [(-10, 1), (0, 2), (10, 3)]
    many = rm_probe.histogram(list(range(0, 50_000, 10)))
    assert len(many) == 501
    assert sum(count for _, count in many) == 5_000
    rows = [(0, 300, 300, 600), (0, 310, 310, 640)]
    full = rm_probe.summarise(rows, 2, 2, 0, 0, True)
    assert (full["forward_histogram"], full["backward_histogram"]) == (
        [(300, 1), (310, 1)],
        [(300, 1), (330, 1)],
    )
    assert "forward_histogram" not in rm_probe.summarise(rows, 2, 2, 0, 0)
