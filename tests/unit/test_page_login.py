"""Who is let in to the page, who is not, and that forms are the page's own."""

from __future__ import annotations

import asyncio
import dataclasses
import gzip
import ipaddress
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from rm.config import WebConfig
from rm.errors import ConfigError, LimitReached, RmError, StoreUnavailable
from rm.web.pages.frame import Frame
from rm.web.pages.login import Login
from rm.web.pages.people import OF_ONE_MOST, Door, Sessions
from rm.web.pages.settings import PROXY_SECRET, PageSettings, Proxy, settings_of
from rm.web.pages.source import Source
from tests.fake_page import PageService
from tests.fake_service import Daemon, serving
from tests.fakes import PATIENCE_S
from tests.page_visitor import Tokens, Visit, visiting

LOCAL = (ipaddress.ip_network("127.0.0.0/8"),)
SECRET = "a secret of the proxy's"


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with serving(tmp_path / "rm.sock", kind=PageService) as daemon:
        busy = daemon.service.busy("high", "low", "wide")  # type: ignore[attr-defined]
        asyncio.run_coroutine_threadsafe(busy, daemon.loop).result(PATIENCE_S)
        for job, user in ((1, "ann"), (2, "bob"), (3, "ann")):
            spec = dataclasses.replace(
                daemon.service.table[job].spec, user=user, script="#!/bin/sh\nhunter2\n"
            )
            daemon.service.put(job, spec=spec)
        yield daemon


@pytest.fixture
def tokens(monkeypatch: pytest.MonkeyPatch) -> Tokens:
    found = Tokens({"t-ann": "ann", "t-bob": "bob", "t-boss": "boss"}, ("boss",))
    monkeypatch.setattr("rm.web.callers.access.caller_of", found.caller_of)
    return found


def test_nothing_is_shown_to_who_is_not_logged_in(daemon: Daemon) -> None:
    async def story(visit: Visit) -> None:
        visitor = visit()
        assert [(await visitor.get(path)).where for path in ("/", "/job/1?task=1", "/submit")] == [
            "/login", "/login?next=%2Fjob%2F1%3Ftask%3D1", "/login?next=%2Fsubmit",
        ]  # fmt: skip
        for path in ("/part/jobs", "/part/status", "/job/1/log", "/metrics", "/maddash/grids"):
            told = await visitor.get(path)
            assert (told.status, told.text) == (401, "Log in first.\n"), path
        for path in ("/do/cancel", "/submit", "/logout"):
            assert (await visitor.post(path, {"job": "1"})).status == 401
        assert (await visitor.get("/login")).status == (await visitor.get("/static/page.css")).status == 200

    visiting(daemon.socket, story)
    assert daemon.service.log == []


def test_nobody_in_particular_looks_where_that_is_allowed_and_does_nothing(daemon: Daemon) -> None:
    async def story(visit: Visit) -> None:
        visitor = visit()
        text = (await visitor.get("/?job=1")).text
        assert "Why job 1" in text
        for word in (
            "hunter2",
            "Submit a job",
            "Script and log",
            "Drain",
            "Acknowledge",
            "Your jobs",
            "Run…",
        ):
            assert word not in text
        assert "hunter2" not in (await visitor.get("/job/1")).text
        assert (await visitor.get("/job/1/log")).status == 403
        assert (await visitor.get("/do/cancel?job=1")).where == "/login"
        assert (await visitor.post("/do/cancel", {"job": "1", "secret": ""})).status == 403
        assert (await visitor.get("/metrics")).status == 200

    visiting(daemon.socket, story, anonymous=True)
    assert not [entry for entry in daemon.service.log if entry[0] == "cancel"]


def test_a_token_logs_in_and_the_session_ends_with_it(daemon: Daemon, tokens: Tokens) -> None:
    async def story(visit: Visit) -> None:
        ann, copy = visit(), visit()
        assert "This token is not known." in (await ann.log_in("wrong")).text
        assert (await ann.log_in("t-\nann")).status == 403
        assert not ann.session.cookie_jar
        told = await ann.log_in("t-ann")
        assert (told.status, told.where) == (303, "/")
        cookie = told.headers["Set-Cookie"]
        assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(re.split("; ", cookie))
        assert "t-ann" not in cookie
        text = (await ann.get("/")).text
        assert "<bdi>ann</bdi>" in text
        assert (await ann.get("/login")).where == "/"
        headers = {"Cookie": cookie.partition(";")[0]}
        assert "<bdi>ann</bdi>" in (await copy.get("/", **headers)).text
        # revoked: nothing is shown any more, and the session does not come back with a token of that name
        del tokens.users["t-ann"]
        while (await ann.get("/")).where != "/login":  # who somebody is, is known for a second
            pass
        tokens.users["t-ann"] = "ann"
        assert (await copy.get("/part/jobs", **headers)).status == 401

    visiting(daemon.socket, story)


def test_a_daemon_that_is_busy_or_away_logs_nobody_out(
    daemon: Daemon, tokens: Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(visit: Visit) -> None:
        ann = visit()
        await ann.log_in("t-ann")
        for trouble in (LimitReached("Too many requests."), StoreUnavailable("The database is away.")):

            async def refuse(*_: object, error: RmError = trouble) -> None:
                raise error

            monkeypatch.setattr("rm.web.callers.access.caller_of", refuse)
            while "<bdi>?</bdi>" not in (text := (await ann.get("/")).text):
                assert "Log out" in text
        monkeypatch.setattr("rm.web.callers.access.caller_of", tokens.caller_of)
        while "<bdi>ann</bdi>" not in (await ann.get("/")).text:
            pass

    visiting(daemon.socket, story)


def test_logging_out_ends_the_session(daemon: Daemon, tokens: Tokens) -> None:
    async def story(visit: Visit) -> None:
        ann, thief = visit(), visit()
        stolen = {"Cookie": (await ann.log_in("t-ann")).headers["Set-Cookie"].partition(";")[0]}
        assert (await thief.get("/", **stolen)).status == 200
        assert (await ann.post("/logout", {"secret": await ann.secret()})).where == "/login"
        assert (await ann.get("/")).where == "/login"
        assert (await thief.get("/", **stolen)).where == "/login"

    visiting(daemon.socket, story)


def test_forms_that_no_browser_sends_are_refused_without_much_work(
    daemon: Daemon, tokens: Tokens, caplog: pytest.LogCaptureFixture
) -> None:
    part = '--b\r\nContent-Disposition: form-data; name="a"\r\n\r\nx\r\n'
    several = ("multipart/form-data; boundary=b", part * 100 + "--b--\r\n")
    nameless = ("multipart/form-data; boundary=b", "--b\r\n\r\nx\r\n--b--\r\n")
    many = ("application/x-www-form-urlencoded", "&".join(["a=1"] * 100))
    odd = ("application/x-www-form-urlencoded; charset=zip", "a=1")

    async def story(visit: Visit) -> None:
        ann = visit()

        async def post(path: str, kind: str, body: str, chunked: bool = False) -> int:
            async def pieces() -> AsyncIterator[bytes]:
                yield body.encode()

            headers = {"Origin": ann.url, "Content-Type": kind}
            data = pieces() if chunked else body
            async with ann.session.post(ann.url + path, data=data, headers=headers) as told:
                return told.status

        # whoever reaches the page
        assert [await post("/login", *form) for form in (several, nameless, many, odd)] == [
            415,
            415,
            413,
            400,
        ]
        assert await post("/login", *many, chunked=True) == 411
        assert await post("/login", many[0], "a=1&" * 10_000) == 413
        packed = {"Origin": ann.url, "Content-Type": many[0], "Content-Encoding": "gzip"}
        token = gzip.compress(b"token=t-ann")
        async with ann.session.post(
            ann.url + "/login", data=token, headers=packed, allow_redirects=False
        ) as told:
            assert told.status == 400  # nothing grows here
        # who is logged in
        assert (await ann.log_in("t-ann")).status == 303
        assert [await post("/submit", *form) for form in (several, nameless, many, odd)] == [
            413,
            400,
            413,
            400,
        ]

    visiting(daemon.socket, story)
    assert not [record for record in caplog.records if record.exc_info]


def test_sessions_end_in_time_and_do_not_fill_the_memory() -> None:
    now = [0.0]
    sessions = Sessions(60, lambda: now[0])
    first = sessions.open(Door("", {"Authorization": "Bearer x"}), "ann")
    now[0] = 59.9
    door = sessions.find(first)
    assert door is not None
    assert door.headers == {"Authorization": "Bearer x"}
    assert first not in repr(vars(sessions))
    assert "Bearer" not in repr(vars(sessions))
    now[0] = 60.0
    assert sessions.find(first) is None
    for number in range(10_010):
        newest = sessions.open(Door(""), f"user{number}")
    assert sessions.find(newest) is not None
    assert len(sessions._doors) == 10_000
    assert sessions.secret(Door("session a")) != sessions.secret(Door("session b"))


def test_who_logs_in_again_and_again_ends_their_own_oldest_sessions_only() -> None:
    sessions = Sessions(60)
    ann = sessions.open(Door(""), "ann")
    mine = [sessions.open(Door(""), "eve") for _ in range(3 * OF_ONE_MOST)]
    assert sessions.find(ann) is not None
    alive = [cookie for cookie in mine if sessions.find(cookie) is not None]
    assert alive == mine[-OF_ONE_MOST:]


def test_a_form_that_another_page_sends_does_nothing(daemon: Daemon, tokens: Tokens) -> None:
    async def story(visit: Visit) -> None:
        ann, bob = visit(), visit()
        await ann.log_in("t-ann")
        await bob.log_in("t-bob")
        own, form = await ann.secret(), {"job": "1"}
        port = ann.url.rpartition(":")[2]
        for headers in (
            {"Origin": "https://evil.test"}, {"Origin": "null"}, {"Origin": ""},
            {"Origin": f"http://127.0.0.1:{int(port) - 1}"}, {"Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "same-site"}, {"Origin": "", "Sec-Fetch-Site": "none"},
        ):  # fmt: skip
            told = await ann.post("/do/cancel", {**form, "secret": own}, **headers)
            assert told.status == 403
            assert told.text == "This form was not sent by this page, and nothing was done.\n"
        for secret in ("", "0" * 64, await bob.secret()):
            told = await ann.post("/do/cancel", {**form, "secret": secret})
            assert told.status == 403
            assert "another session" in told.text
        # nobody can be logged in as somebody else, either
        assert (await visit().log_in("t-bob", Origin="https://evil.test")).status == 403
        assert (await ann.get("/do/cancel?job=1")).status == 200  # to look is to do nothing
        assert not [entry for entry in daemon.service.log if entry[0] == "cancel"]
        assert (await ann.post("/do/cancel", {**form, "secret": own})).where == "/job/1"
        assert daemon.service.log[-1] == ("cancel", 1, "ann", None, "steps")

    visiting(daemon.socket, story)


@pytest.mark.parametrize(
    ("asked", "gone"),
    [
        ("/job/1?task=2", "/job/1?task=2"), ("//evil.test", "/"), ("https://evil.test", "/"),
        ("/\\evil.test", "/"), ("evil", "/"), ("/a\r\nSet-Cookie: x=1", "/"), ("javascript:alert(1)", "/"),
        ("", "/"),
    ],
)  # fmt: skip
def test_a_login_leads_to_a_page_of_ours(daemon: Daemon, tokens: Tokens, asked: str, gone: str) -> None:
    async def story(visit: Visit) -> None:
        assert (await visit().post("/login", {"token": "t-ann", "next": asked})).where == gone

    visiting(daemon.socket, story)


def test_what_one_sees_is_shown_to_no_other(daemon: Daemon, tokens: Tokens) -> None:
    async def story(visit: Visit) -> None:
        ann, bob, boss = visit(), visit(), visit()
        for visitor, token in ((ann, "t-ann"), (bob, "t-bob"), (boss, "t-boss")):
            await visitor.log_in(token)
        mine = {}
        for name, visitor in (("ann", ann), ("bob", bob), ("boss", boss)):
            text = (await visitor.get("/part/jobs")).text
            mine[name] = re.findall(r'id="own-job-(\d+)"', text)
            network = (await visitor.get("/part/network")).text
            assert ("Drain…" in network, "Run…" in network) == (name == "boss",) * 2
        assert mine == {"ann": ["1", "3"], "bob": ["2"], "boss": []}
        assert "hunter2" in (await ann.get("/job/1")).text
        assert "hunter2" not in (await bob.get("/job/1")).text
        assert (await bob.get("/job/1/log")).status == 403
        assert (await ann.get("/job/1/log?stream=err")).text == "oops\n"
        told = await bob.post("/do/cancel", {"job": "1", "secret": await bob.secret()})
        assert told.status == 403
        assert "Job 1 belongs to ann, and you are bob." in told.text

    visiting(daemon.socket, story)


def test_the_link_of_rmx_web_is_its_users_and_no_other_works(daemon: Daemon) -> None:
    async def story(visit: Visit) -> None:
        for key in ("", "wrong", "own-key-"):
            told = await visit().get(f"/enter?key={key}")
            assert (told.status, "Set-Cookie" in told.headers) == (403, False)
        own = visit()
        assert (await own.get("/enter?key=own-key")).where == "/"
        assert "Log out" in (await own.get("/")).text

    visiting(daemon.socket, story, own_key="own-key")

    async def none(visit: Visit) -> None:
        assert (await visit().get("/enter?key=")).status == 403

    visiting(daemon.socket, none)


def test_programs_bring_their_token(daemon: Daemon, tokens: Tokens) -> None:
    async def story(visit: Visit) -> None:
        prometheus = visit()
        assert (await prometheus.get("/metrics", Authorization="Bearer t-bob")).status == 200
        assert (await prometheus.get("/metrics", Authorization="Bearer wrong")).status == 401
        assert (await prometheus.get("/part/jobs", Authorization="Bearer t-bob")).status == 401

    visiting(daemon.socket, story)


def test_a_program_whose_token_nobody_has_looked_at_gets_nothing(
    daemon: Daemon, tokens: Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(visit: Visit) -> None:
        for trouble, status in (
            (LimitReached("Too many requests."), 429), (StoreUnavailable("The database is away."), 503),
        ):  # fmt: skip

            def refuse(*_: object, error: RmError = trouble) -> None:
                raise error

            monkeypatch.setattr("rm.web.callers.access.caller_of", refuse)
            for path in ("/metrics", "/maddash/grids"):
                assert (await visit().get(path, Authorization=f"Bearer {status}")).status == status

    visiting(daemon.socket, story)


# -- a reverse proxy


def test_a_proxys_word_counts_from_its_address_with_its_secret_only(daemon: Daemon) -> None:
    async def story(visit: Visit) -> None:
        named = {"X-Forwarded-User": "daemon"}
        visitor = visit()
        assert (await visitor.get("/", **named)).where == "/login"
        assert (await visitor.get("/", **named, **{PROXY_SECRET: "guessed"})).where == "/login"
        right = {**named, PROXY_SECRET: SECRET}
        text = (await visitor.get("/", **right)).text
        assert "<bdi>daemon</bdi>" in text
        assert "Log out" not in text
        no_account = {"X-Forwarded-User": "no such account", PROXY_SECRET: SECRET}
        assert (await visitor.get("/", **no_account)).where == "/login"

    visiting(daemon.socket, story, proxy=Proxy("X-Forwarded-User", LOCAL, SECRET))
    elsewhere = (ipaddress.ip_network("10.9.8.7"),)

    async def not_there(visit: Visit) -> None:
        told = await visit().get("/", **{"X-Forwarded-User": "root", PROXY_SECRET: SECRET})
        assert told.where == "/login"

    visiting(daemon.socket, not_there, proxy=Proxy("X-Forwarded-User", elsewhere, SECRET))


def test_a_proxys_secret_that_is_no_text_is_a_wrong_one() -> None:
    """Anybody who reached the page wrote a traceback into the daemon's log with each request."""
    assert not Proxy("X-Forwarded-User", LOCAL, SECRET).trusts("127.0.0.1", "\udcff")


def test_forms_behind_a_proxy_need_their_secret_too(daemon: Daemon) -> None:
    async def story(visit: Visit) -> None:
        visitor = visit()
        right = {"X-Forwarded-User": "daemon", PROXY_SECRET: SECRET}
        page = (await visitor.get("/do/drain?host=h1", **right)).text
        secret = re.search(r'name="secret" value="(\w+)"', page)
        assert secret
        assert (await visitor.post("/do/drain", {"host": "h1"}, **right)).status == 403
        told = await visitor.post("/do/drain", {"host": "h1", "secret": secret[1]}, **right)
        assert "Only an operator may drain" in told.text  # that is for the daemon to say

    visiting(daemon.socket, story, proxy=Proxy("X-Forwarded-User", LOCAL, SECRET))


def test_a_proxy_that_anybody_could_be_is_refused(tmp_path: Path) -> None:
    secret, short = tmp_path / "secret", tmp_path / "short"
    secret.write_text(SECRET + "\n")
    short.write_text("x\n")

    def made(*addresses: str, secret_file: str = "") -> Proxy | None:
        config = WebConfig(proxy_header="X-User", proxy_addresses=addresses, proxy_secret_file=secret_file)
        return settings_of(config).proxy

    found = made("192.0.2.7", "fd00::/64")
    assert found is not None
    assert [found.trusts(a, "") for a in ("192.0.2.7", "fd00::9", "192.0.2.8", "nonsense")] == [
        True, True, False, False,
    ]  # fmt: skip
    anywhere = Proxy("X-User", (ipaddress.ip_network("0.0.0.0/0"),))
    assert anywhere.trusts("192.0.2.7", "")
    assert not anywhere.trusts("127.0.0.1", "")  # any user of this machine, whatever the networks say
    assert not anywhere.trusts("127.9.8.7", "")
    with_secret = made("127.0.0.1", secret_file=str(secret))
    assert with_secret is not None
    assert [with_secret.trusts("127.0.0.1", s) for s in (SECRET, "", "Ω")] == [True, False, False]
    for arguments, problem in (
        ((), "is empty"), (("proxy.test",), "not an address"), (("127.0.0.1",), "every user of this machine"),
        (("0.0.0.0/0",), "every user of this machine"), (("::1",), "every user of this machine"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=problem):
            made(*arguments)
    for file, problem in ((str(short), "fewer than 16"), (str(tmp_path / "none"), "cannot be read")):
        with pytest.raises(ConfigError, match=problem):
            made("10.0.0.7", secret_file=file)
    assert settings_of(WebConfig(proxy_addresses=("127.0.0.1",))).proxy is None


# -- the connection


def coming_from(address: str, **headers: str) -> web.Request:
    class Transport:
        def get_extra_info(self, name: str, default: object = None) -> object:
            return (address, 1234) if name == "peername" else default

    return make_mocked_request("POST", "/login", headers=headers, transport=Transport())


def test_a_token_travels_only_where_nobody_can_listen(tmp_path: Path) -> None:
    sessions = Sessions(60)
    proxy = Proxy("X-User", (ipaddress.ip_network("10.0.0.7"),))
    login = Login(Source(str(tmp_path / "no.sock")), PageSettings(proxy=proxy), sessions, Frame(sessions))
    https = {"X-Forwarded-Proto": "https"}
    assert login._is_private(coming_from("127.0.0.1"))
    assert login._is_private(coming_from("::1"))
    assert not login._is_private(coming_from("10.0.0.9"))
    assert not login._is_private(coming_from("10.0.0.9", **https))
    assert login._is_private(coming_from("10.0.0.7", **https))
    assert login._name(coming_from("10.0.0.7", **https)) == "__Host-rm"
    refused = asyncio.run(login.enter_with_token(_as_nobody(coming_from("10.0.0.9"))))
    assert refused.status == 403
    assert "This connection is not encrypted." in (refused.text or "")


def _as_nobody(request: web.Request) -> web.Request:
    from rm.web.pages.login import PERSON
    from rm.web.pages.people import NOBODY, Person

    request[PERSON] = Person(NOBODY)
    return request


def test_the_cookie_is_secure_where_the_browser_came_by_https(daemon: Daemon, tokens: Tokens) -> None:
    async def story(visit: Visit) -> None:
        told = await visit().log_in("t-ann", **{"X-Forwarded-Proto": "https", PROXY_SECRET: SECRET})
        assert told.headers["Set-Cookie"].startswith("__Host-rm=")
        assert "Secure" in told.headers["Set-Cookie"].split("; ")

    visiting(daemon.socket, story, proxy=Proxy("X-Forwarded-User", LOCAL, SECRET))
