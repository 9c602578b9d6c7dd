"""The channels against real servers and processes: what arrives, what is retried, what is never shown."""

import hmac
import json
import socket
import socketserver
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from email import message_from_bytes, policy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rm.adapters.channels.command import CommandChannel
from rm.adapters.channels.mail import MailChannel
from rm.adapters.channels.webhook import WebhookChannel
from rm.core.alerts.channel import NotTold
from rm.core.alerts.notices import FEW, Notice, body_of, take
from rm.daemon.alerts.delivery import Delivery
from tests.fakes import PATIENCE_S

SECRET = b"s3cr3t-of-the-hook"
NOTICE = {
    "version": 1, "event": "firing", "id": "r/loss/h1@5", "cluster": "c", "rule": "r", "condition": "loss",
    "subject": "h1\r\nBcc: x@y", "hosts": ["h1"], "message": "loss ä 12 %", "fired_us": 5, "ended_us": None,
    "level": "warn", "at_us": 5,
    "alerts": [{"id": "r/loss/h1@5", "subject": "h1", "message": "loss ä 12 %"}],
}  # fmt: skip


def notice(key: str, event: str = "firing", condition: str = "loss") -> Notice:
    member = {"id": key, "subject": key, "hosts": [key], "message": f"{key} loses", "fired_us": 5}
    body = {**NOTICE, **member, "event": event, "condition": condition, "ended_us": None}
    return Notice(key, event, {**body, "alerts": [{**member, "ended_us": None}]})


class Hook:
    """A web server that answers with `codes` in order, then 200."""

    def __init__(self) -> None:
        self.codes: list[int] = []
        self.got: list[tuple[str, dict[str, str], bytes]] = []
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                hook.got.append((self.path, dict(self.headers), body))
                code = hook.codes.pop(0) if hook.codes else 200
                self.send_response(code)
                if code == 302:
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}/hook/T0K3N"


@contextmanager
def serving(server: socketserver.BaseServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def hook() -> Iterator[Hook]:
    made = Hook()
    with serving(made.server):
        yield made


@pytest.fixture
def secret(tmp_path: Path) -> str:
    file = tmp_path / "secret"
    file.write_bytes(SECRET + b"\n")
    return str(file)


def verified(secret: bytes, headers: Mapping[str, str], body: bytes, now_s: float) -> bool:
    """As docs/alerts.md advises."""
    at = headers["Rm-Timestamp"]
    expected = "sha256=" + hmac.new(secret, at.encode() + b"." + body, "sha256").hexdigest()
    return hmac.compare_digest(expected, headers["Rm-Signature"]) and abs(now_s - int(at)) <= 300


def test_the_webhook_signs_the_body_and_when(hook: Hook, secret: str) -> None:
    began_s = int(time.time())
    WebhookChannel(hook.address, "", secret, PATIENCE_S).tell(NOTICE)
    ((path, headers, body),) = hook.got
    assert path == "/hook/T0K3N"
    assert json.loads(body) == NOTICE
    assert began_s <= int(headers["Rm-Timestamp"]) <= time.time()
    assert verified(SECRET, headers, body, time.time())
    assert not verified(SECRET, headers, body, time.time() + 3_600)  # an old message sent again
    assert not verified(SECRET, {**headers, "Rm-Timestamp": str(began_s + 3_600)}, body, time.time() + 3_600)
    assert not verified(SECRET, headers, body + b" ", time.time())


def test_without_a_secret_nothing_is_signed(hook: Hook, tmp_path: Path) -> None:
    address = tmp_path / "address"
    address.write_text(hook.address + "\n")
    WebhookChannel("", str(address), "", PATIENCE_S).tell(NOTICE)
    assert "Rm-Signature" not in hook.got[0][1]


@pytest.mark.parametrize(
    ("code", "again"), [(500, True), (503, True), (429, True), (404, False), (302, False)]
)
def test_refusals_say_whether_to_try_again_and_nothing_secret(
    hook: Hook, secret: str, code: int, again: bool
) -> None:
    hook.codes = [code]
    with pytest.raises(NotTold) as caught:
        WebhookChannel(hook.address, "", secret, PATIENCE_S).tell(NOTICE)
    assert caught.value.again is again
    assert str(code) in str(caught.value)
    assert "T0K3N" not in str(caught.value)
    assert len(hook.got) == 1  # a redirection is not followed


def test_a_webhook_that_is_not_there(secret: str, tmp_path: Path) -> None:
    with pytest.raises(NotTold, match="cannot be reached") as caught:
        WebhookChannel("http://127.0.0.1:1/T0K3N", "", secret, PATIENCE_S).tell(NOTICE)
    assert caught.value.again
    assert "T0K3N" not in str(caught.value)
    with pytest.raises(NotTold, match=r"missing cannot be read: No such file"):
        WebhookChannel("http://127.0.0.1:1/", "", str(tmp_path / "missing"), PATIENCE_S).tell(NOTICE)
    with pytest.raises(NotTold):
        WebhookChannel("http://[T0K3N", "", "", PATIENCE_S).tell(NOTICE)


@pytest.mark.parametrize("address", ["//T0K3N", "T0K3N", "", "file:///T0K3N", "ftp://T0K3N/"])
def test_what_is_no_address_of_the_web_is_told(address: str, tmp_path: Path) -> None:
    (tmp_path / "address").write_text(address or "\nno first line")
    with pytest.raises(NotTold, match="http") as caught:
        WebhookChannel(address, str(tmp_path / "address"), "", PATIENCE_S).tell(NOTICE)
    assert "T0K3N" not in str(caught.value).replace("webhook at t0k3n", "")


@contextmanager
def dripping() -> Iterator[int]:
    """A server that sends a byte of its answer now and then, for ever; yields its port."""
    ended = threading.Event()

    def drip() -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            connection.send(b"HTTP/1.1 200 OK\r\nX: ")
            while not ended.wait(0.02):
                connection.send(b"x")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=drip)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            ended.set()
            socket.create_connection(listener.getsockname()).close()  # who gave up early has not come at all
            thread.join()


def test_a_webhook_that_answers_for_ever_is_left(secret: str) -> None:
    with dripping() as port, pytest.raises(NotTold, match=r"did not answer within 0.2 s") as caught:
        WebhookChannel(f"http://127.0.0.1:{port}/T0K3N", "", secret, 0.2).tell(NOTICE)
    assert caught.value.again


class Sink(socketserver.ThreadingTCPServer):
    """As little of SMTP (RFC 5321) as a client needs; `refuse` maps a verb to its answer."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self) -> None:
        self.mails: list[bytes] = []
        self.refuse: dict[str, str] = {}
        super().__init__(("127.0.0.1", 0), _Smtp)


class _Smtp(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        server = self.server
        assert isinstance(server, Sink)
        say: Callable[[str], int] = lambda text: self.wfile.write(text.encode() + b"\r\n")  # noqa: E731
        say("220 sink")
        while line := self.rfile.readline():
            verb = line.split()[0].decode().upper()
            if verb in server.refuse:
                say(server.refuse[verb])
            elif verb == "DATA":
                say("354 go on")
                lines = []
                while (line := self.rfile.readline()) != b".\r\n":
                    lines.append(line)
                server.mails.append(b"".join(lines))
                say("250 kept")
            else:
                say("221 bye" if verb == "QUIT" else "250 ok")
            if verb == "QUIT":
                return


@pytest.fixture
def sink() -> Iterator[Sink]:
    made = Sink()
    with serving(made):
        yield made


def mail(sink: Sink) -> MailChannel:
    host, port = sink.server_address[:2]
    return MailChannel(
        ("ops@x.test", "b@x.test"), "rm@x.test", (str(host), int(port)), "none", "", "", PATIENCE_S
    )


def test_mail_arrives_and_its_header_cannot_be_forged(sink: Sink) -> None:
    mail(sink).tell(NOTICE)
    mail(sink).tell({**NOTICE, "event": "resolved", "ended_us": 9})
    first, second = (message_from_bytes(m, policy=policy.default) for m in sink.mails)
    assert first["Subject"] == "[rm] FIRING: loss h1 Bcc: x@y"
    assert first["Bcc"] is None
    assert first["To"] == "ops@x.test, b@x.test"
    assert "loss ä 12 %" in first.get_content()
    assert second["References"] == first["Message-ID"] != second["Message-ID"]


def test_a_mail_says_how_bad_it_has_become_and_each_worsening_is_a_mail_of_its_own(sink: Sink) -> None:
    worse = {**NOTICE, "event": "worsened", "subject": "h1", "level": "critical"}
    for notice in (NOTICE, {**worse, "at_us": 7}, {**worse, "at_us": 7}, {**worse, "at_us": 9}):
        mail(sink).tell(notice)
    first, second, repeated, third = (message_from_bytes(m, policy=policy.default) for m in sink.mails)
    assert second["Subject"] == "[rm] WORSENED: loss h1 is critical"
    assert "level:     critical" in second.get_content()
    assert {m["References"] for m in (second, repeated, third)} == {first["Message-ID"]}
    assert second["Message-ID"] == repeated["Message-ID"]
    assert len({m["Message-ID"] for m in (first, second, third)}) == 3


def test_a_mail_about_many_lists_them(sink: Sink) -> None:
    mail(sink).tell(body_of([notice(f"h{n:02}") for n in range(60)]))
    (got,) = (message_from_bytes(m, policy=policy.default) for m in sink.mails)
    assert got["Subject"] == "[rm] FIRING: loss 60 subjects"
    assert "60 alerts: h00, h01, h02 and 57 more" in got.get_content()
    assert "- h49: h49 loses\n- and 10 more\n" in got.get_content().replace("\r\n", "\n")


def test_a_letter_goes_to_whom_it_names(sink: Sink) -> None:
    for _ in range(2):
        mail(sink).send_letter("ann@x.test", "Job_id=1\nBcc: b@y Ended", "ended ä\n", "c1 7")
    first, second = (message_from_bytes(m, policy=policy.default) for m in sink.mails)
    assert (first["To"], first["From"], first["Bcc"]) == ("ann@x.test", "rm@x.test", None)
    assert first["Subject"] == "Job_id=1 Bcc: b@y Ended"
    assert first.get_content().strip() == "ended ä"
    assert first["Message-ID"] == second["Message-ID"]


@pytest.mark.parametrize(
    "word",
    [
        "=?utf-8?q?a=0ABcc:_b@y=0A=0Ac?=",
        "=?utf-8?b?YQ0KQmNjOiBiQHkNCg0KYw==?=",
        "=\u200butf-8?q?a=0ABcc:_b@y=0A=0Ac?=",
    ],
)
def test_no_name_of_a_job_adds_headers_or_a_text_of_its_own(sink: Sink, word: str) -> None:
    mail(sink).send_letter(
        "ann@x.test", f"Job_id=1 Name=x {word}\x1b[2J Ended", "en\x1b[2J\u202eded\n", "c1 7"
    )
    mail(sink).tell({**NOTICE, "subject": word, "message": "ba\x1b[2J\u202ed\r\n\r\nAll is well."})
    letter, alert = (message_from_bytes(m, policy=policy.default) for m in sink.mails)
    assert (letter["Bcc"], alert["Bcc"]) == (None, None)
    shown = f"Job_id=1 Name=x {word}?[2J Ended".replace("\u200b", "?").replace("=?", "= ?")
    assert letter["Subject"] == shown
    assert letter.get_content().strip() == "en?[2J?ded"
    assert alert.get_content().splitlines()[0] == "ba?[2J?d????All is well."


@pytest.mark.parametrize(
    ("refuse", "again"),
    [({"RCPT": "550 secret"}, False), ({"MAIL": "451 secret"}, True), ({"DATA": "554 secret"}, False)],
)
def test_mail_that_is_refused(sink: Sink, refuse: dict[str, str], again: bool) -> None:
    sink.refuse = refuse
    with pytest.raises(NotTold) as caught:
        mail(sink).tell(NOTICE)
    assert caught.value.again is again
    assert "secret" not in str(caught.value)


def script(folder: Path, text: str) -> str:
    file = folder / "tell"
    file.write_text("#!/bin/sh\n" + text)
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return str(file)


def test_the_command_gets_json_on_standard_input(tmp_path: Path) -> None:
    CommandChannel([script(tmp_path, 'cat > "$1"'), str(tmp_path / "out")], PATIENCE_S).tell(NOTICE)
    assert json.loads((tmp_path / "out").read_text()) == NOTICE


def test_no_shell_reads_what_an_alert_says(tmp_path: Path) -> None:
    """Also where the administrator's command is a shell's: the text is only on its standard input."""
    evil = f"$(touch {tmp_path}/a) `touch {tmp_path}/b`; touch {tmp_path}/c # ' \" \\ \n\x00 --help"
    nasty = {**NOTICE, "subject": evil, "message": evil, "hosts": [evil], "id": evil}
    out = tmp_path / "out"
    CommandChannel(["/bin/sh", "-c", 'cat > "$0"', str(out)], PATIENCE_S).tell(nasty)
    assert json.loads(out.read_text()) == nasty
    CommandChannel([script(tmp_path, 'echo "$#" > "$0.args"')], PATIENCE_S).tell(nasty)
    assert (tmp_path / "tell.args").read_text() == "0\n"
    assert sorted(f.name for f in tmp_path.iterdir()) == ["out", "tell", "tell.args"]


def test_a_command_that_does_not_read_is_no_error(tmp_path: Path) -> None:
    CommandChannel([script(tmp_path, "exit 0")], PATIENCE_S).tell({**NOTICE, "message": "x" * 1_000_000})


def test_commands_that_fail(tmp_path: Path) -> None:
    with pytest.raises(NotTold, match="status 3") as caught:
        CommandChannel([script(tmp_path, "echo T0K3N >&2; exit 3"), "T0K3N"], PATIENCE_S).tell(NOTICE)
    assert "T0K3N" not in str(caught.value)
    with pytest.raises(NotTold, match="cannot be run: No such file"):
        CommandChannel([str(tmp_path / "none")], PATIENCE_S).tell(NOTICE)
    with pytest.raises(NotTold, match="longer than"):
        CommandChannel([script(tmp_path, "sleep 60 & wait")], 0.05).tell(NOTICE)


class Settled:
    """What the daemon hears of deliveries."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, str, str]] = []
        self._changed = threading.Condition()

    def __call__(self, notices: Sequence[Notice], channel: str, failed: str) -> None:
        with self._changed:
            self.heard += [(notice.key, channel, failed) for notice in notices]
            self._changed.notify_all()

    def wait(self, count: int) -> list[tuple[str, str, str]]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.heard) >= count, PATIENCE_S), self.heard
            return self.heard


def test_delivery_retries_in_order_and_gives_up(hook: Hook, secret: str) -> None:
    settled = Settled()
    channel = WebhookChannel(hook.address, "", secret, PATIENCE_S)
    delivery = Delivery({"hook": channel}, settled, attempts=3, backoff_s=0.001)
    try:
        hook.codes = [500, 503, 200, 400, 500, 500, 500]
        delivery.tell("hook", [notice(key) for key in "abcd"])
        heard = settled.wait(4)
    finally:
        delivery.close()
    assert [json.loads(body)["id"] for *_, body in hook.got] == list("aaabcccd")
    assert [(k, bool(f)) for k, _, f in heard] == [("a", False), ("b", True), ("c", True), ("d", False)]
    assert "HTTP status 500" in heard[2][2]
    stamps = [int(headers["Rm-Timestamp"]) for _, headers, _ in hook.got]
    assert stamps == sorted(stamps)  # each attempt is signed anew


def test_a_channel_that_has_gone_and_one_with_a_defect() -> None:
    class Broken:
        repeat_s = 0.0

        def tell(self, notice: object) -> None:
            raise KeyError("T0K3N")

    settled = Settled()
    delivery = Delivery({"broken": Broken()}, settled, 3, 0.001)
    delivery.tell("gone", [notice("a")])
    delivery.tell("broken", [notice("b")])
    try:
        heard = settled.wait(2)
    finally:
        delivery.close()
    assert heard[0] == ("a", "gone", "There is no such channel any more.")
    assert heard[1] == ("b", "broken", "internal error: KeyError")


class Slow:
    """Tells when it is let."""

    repeat_s = 0.0

    def __init__(self) -> None:
        self.begun, self.let = threading.Event(), threading.Event()
        self.bodies: list[Mapping[str, Any]] = []

    def tell(self, body: Mapping[str, Any]) -> None:
        self.begun.set()
        assert self.let.wait(PATIENCE_S)
        self.bodies.append(body)


def test_a_storm_is_a_few_messages_and_a_slow_channel_holds_nobody_up(hook: Hook) -> None:
    settled, slow = Settled(), Slow()
    delivery = Delivery(
        {"slow": slow, "hook": WebhookChannel(hook.address, "", "", PATIENCE_S)}, settled, 3, 0.001
    )
    hosts = [f"h{n:04}" for n in range(1_500)]
    try:
        for channel in ("slow", "hook"):
            delivery.tell(channel, [notice(h) for h in hosts])
        heard = settled.wait(1_500)
        assert {channel for _, channel, _ in heard} == {"hook"}
        delivery.tell("slow", [notice(h, "resolved") for h in hosts])
        slow.let.set()
        settled.wait(4_500)
    finally:
        slow.let.set()
        delivery.close()
    bodies = [json.loads(body) for *_, body in hook.got]
    assert [len(b["alerts"]) for b in bodies] == [1_000, 500]
    assert bodies[0]["message"] == "1000 alerts: h0000, h0001, h0002 and 997 more"
    assert bodies[0]["id"] != bodies[1]["id"]
    assert [a["subject"] for b in bodies for a in b["alerts"]] == hosts
    assert [(b["event"], len(b["alerts"])) for b in slow.bodies] == [
        ("firing", 1_000), ("firing", 500), ("resolved", 1_000), ("resolved", 500),
    ]  # fmt: skip


def test_what_is_being_told_at_the_end_is_noted() -> None:
    """So that the next life does not tell it again; what waits is owed."""
    settled, slow = Settled(), Slow()
    delivery = Delivery({"slow": slow}, settled, 3, 0.001)
    delivery.tell("slow", [notice("a"), notice("b")])
    assert slow.begun.wait(PATIENCE_S)
    closing = threading.Thread(target=delivery.close)
    closing.start()
    assert delivery._stopping.wait(PATIENCE_S)
    slow.let.set()
    closing.join()
    assert settled.heard == [("a", "slow", "")]


notices = st.lists(
    st.builds(
        notice,
        st.sampled_from("abcdefg"),
        st.sampled_from(["firing", "worsened", "resolved"]),
        st.just("loss"),
    )
    | st.builds(notice, st.sampled_from("hi"), st.just("firing"), st.just("disk"))
)


@given(notices)
def test_nothing_is_lost_and_each_alert_keeps_its_order(waiting: list[Notice]) -> None:
    left, told = list(waiting), []
    while left:
        taken, left = take(left)
        assert len({n.kind for n in taken}) == 1
        assert len({n.key for n in taken}) == len(taken) == len(body_of(taken)["alerts"])
        assert len(taken) == 1 or len(taken) > FEW
        told += taken
    for key in "abcdefghi":
        assert [n for n in told if n.key == key] == [n for n in waiting if n.key == key]
