"""A real daemon with real hosts hears what no client says, on every route, from users, nobody and admins.

None of it is answered with 500 or ends the daemon. What is stored breaks no list and no restart, and nobody
who is no administrator changes anything of another user. RM_TEST_HOSTILE says how many requests are made:
5,000 take some minutes. RM_TEST_HOSTILE_SEED makes others.
"""

from __future__ import annotations

import http.client
import json
import os
import pwd
import random
import socket
import ssl
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rm.api.routes import ROUTES, Route, Who
from rm.errors import Conflict
from tests.certificates import Authority
from tests.cluster import Cluster, until
from tests.e2e.conftest import MakeCluster
from tests.hostile import Hostile, Requests
from tests.ports import Kept

pytestmark = pytest.mark.lab
REQUESTS = int(os.environ.get("RM_TEST_HOSTILE") or 600)
SEED = int(os.environ.get("RM_TEST_HOSTILE_SEED", "1"))
BLOCK = 60  # requests between two looks at everything
MILD = 0.4  # of the requests are as the types say: what was accepted meets what follows
PATIENCE_S = 90
LASTS_S = 86_400.0
ATTACKER, VICTIM, OPERATOR = "games", "bin", "backup"  # accounts of every Debian
PLAYBOOK = "- hosts: all\n  vars_prompt: [{name: a, private: false}]\n  tasks:\n    - ping:\n"
LONG = ("/v1/playbooks/{name}/start", "/v1/monitor/{mesh}/run", "/v1/network/measure")  # take seconds
NOT_ASKED = (
    ("POST", "/v1/channels/{host}/steps"),  # an administrator may do anything on hosts: on this machine
    ("DELETE", "/v1/jobs"),  # ends what the others need
)
ASKED = tuple(route for route in ROUTES if (route.method, route.path) not in NOT_ASKED)
CHANGING = tuple(route for route in ASKED if route.method != "GET")
WEIGHTS = tuple(8 if route.body else 3 if route.method != "GET" else 1 for route in ASKED)
LISTS = (
    "/v1/status", "/v1/jobs?all=1", "/v1/jobs/rows?all=1", "/v1/jobs/starts", "/v1/jobs/priorities",
    "/v1/queue", "/v1/jobs/priority-weights", "/v1/hosts?variables=1", "/v1/links", "/v1/network",
    "/v1/monitor", "/v1/monitor/latency", "/v1/sources", "/v1/archives", "/v1/accounts", "/v1/shares",
    "/v1/partitions", "/v1/usage?by=account,user,day", "/v1/usage?by=qos,partition", "/v1/reservations",
    "/v1/alerts", "/v1/playbooks", "/v1/playbook-runs", "/v1/playbook-schedules", "/v1/channels",
    "/v1/tokens?user=*", "/v1/audit?limit=10000", "/metrics", "/maddash/grids",
)  # fmt: skip
KEPT_OF_HOSTS = (
    "name", "zone", "address", "port", "login", "partitions", "features", "drained_by", "variables",
)  # fmt: skip


class Caller(NamedTuple):
    """`scope` "": by the socket. `user` "": nobody, over HTTPS."""

    user: str
    scope: str = ""


class Asked(NamedTuple):
    status: int
    body: bytes


class World:
    """A cluster with an HTTPS door, things of a user, and what all may be called."""

    def __init__(self, cluster: Cluster, port: int, authority: Path) -> None:
        self.cluster, self._port = cluster, port
        self._trusted = ssl.create_default_context(cafile=str(authority))
        self.hosts = sorted(cluster.hosts())
        self.renew()
        spec = {"name": "mine", "script": "#!/bin/sh\ntrue\n", "hold": True}
        victim = cluster.client_of(VICTIM)
        self.jobs = [
            victim.post("jobs", body={"spec": spec | more})["job"] for more in ({}, {"array": "0-9"})
        ]
        made = victim.post("tokens", body={"scope": "read", "expires_s": LASTS_S})
        self._tokens = {
            (user, scope): self._token(user, scope)
            for user in (ATTACKER, OPERATOR, "root")
            for scope in ("read", "submit", "operate", "admin")
        }
        self.requests = Requests(SEED, self._known(made["token"]["id"]))

    def _token(self, user: str, scope: str) -> str:
        body = {"scope": scope, "expires_s": LASTS_S}
        return str(self.cluster.client_of(user).post("tokens", body=body)["text"])

    def renew(self) -> None:
        """What administrators' requests took away, so that the next ones meet it again."""
        soon_us = int((time.time() + 86_400) * 1e6)
        made: tuple[tuple[str, dict[str, Any]], ...] = (
            ("accounts", {"name": "phys"}),
            ("accounts", {"name": "chem", "parent": "phys"}),
            ("accounts/phys/members", {"users": [ATTACKER, VICTIM]}),
            ("qos", {"name": "high"}),
            ("partitions", {"name": "batch"}),
            ("reservations", {"name": "later", "hosts": self.hosts[:1], "users": [VICTIM],
                              "start_us": soon_us, "lasts_us": 3_600_000_000}),
            ("alerts/silences", {"hosts": ["*"], "for_s": 1e6}),
            *((f"hosts/{host}/resume", {}) for host in self.hosts),
        )  # fmt: skip
        for path, body in made:
            with suppress(Conflict):  # it is there
                self.cluster.client.post(*path.split("/"), body=body)

    def _known(self, token: str) -> dict[str, list[Any]]:
        soon_us = int((time.time() + 900_000) * 1e6)
        return {
            "host": [*self.hosts, "other"], "hosts": self.hosts, "hosts_only": self.hosts,
            "account": ["phys", "chem", "root", "no"], "parent": ["root", "phys", "chem"],
            "qos": ["high", "normal", "no"], "partition": ["batch", "no"], "reservation": ["later", "no"],
            "user": [ATTACKER, VICTIM, "root"], "mesh": ["latency", "no"], "playbook": ["ping"],
            "number": [*self.jobs, *range(1, 9)], "token": [token, "no"], "zone": ["z1"],
            "source": self.hosts, "destination": self.hosts, "check": ["loss", "delay"],
            "address": ["127.0.0.1"],
            "script": ["#!/bin/sh\ntrue\n", "#!/bin/sh\nexit 3\n", "#!/bin/bash\nsleep 0.2\n"],
            "array": ["", "0-5", "1-9%2"], "cron": ["0 0 1 1 *"],
            "dependency": ["", "singleton", f"afterok:{self.jobs[0]}"], "constraint": ["", "a|b"],
            "licenses": ["", "x:1"], "container_image": [""], "container_mounts": ["", "/tmp:/tmp"],
            "container_name": [""], "container_workdir": [""], "distribution": ["block", "cyclic"],
            "chdir": ["", "/tmp"], "output": ["", "/dev/null"], "error": [""], "input": [""],
            "mail_events": ["", "END"], "conditions": ["loss"], "start_us": [soon_us],
            "end_us": [soon_us + 10**9], "begin_us": [soon_us], "deadline_us": [soon_us],
            "lasts_us": [3_600_000_000], "count": [0, 1], "for_s": [1e6], "expires_s": [1e6], "port": [22],
            "ntasks": [1, 2], "cpus_per_task": [1], "hosts_min": [0, 1, 2], "hosts_max": [0, 2],
            "gpus_per_task": [0, 1], "priority": [0, 1], "mem_bytes_per_task": [0, 1 << 20],
            "period_us": [100_000], "offset_us": [0, 1_000], "duration_us": [1_000, 50_000],
            "rate_bps": [10**8], "usage_factor": [0.0, 1.0, 1e300], "grace_s": [0, 1, 1e300],
            "exempt_s": [0, 1e300], "version": [1], "gpu_type": [""], "prefer": ["", "a"], "features": ["a"],
        }  # fmt: skip

    def ask(self, caller: Caller, request: Hostile) -> Asked:
        """The answer. No request has a body over the limit: a daemon that hangs up instead is wrong."""
        connection = self._connection(caller)
        token = self._tokens.get((caller.user, caller.scope), "")
        headers = {
            "Connection": "close",
            **({"Authorization": f"Bearer {token}"} if token else {}),
            **request.headers,
        }
        try:
            connection.putrequest(request.method, request.path, skip_accept_encoding=True)
            for name, value in {**headers, "Content-Length": str(len(request.body))}.items():
                connection.putheader(name, value.encode())
            connection.endheaders(request.body)
            answer = connection.getresponse()
            return Asked(answer.status, answer.read())
        finally:
            connection.close()

    def _connection(self, caller: Caller) -> http.client.HTTPConnection:
        if caller.scope or not caller.user:
            return http.client.HTTPSConnection(
                "127.0.0.1", self._port, context=self._trusted, timeout=PATIENCE_S
            )
        made = http.client.HTTPConnection("rm", timeout=PATIENCE_S)
        made.sock = socket.socket(socket.AF_UNIX)
        made.sock.settimeout(PATIENCE_S)
        os.seteuid(pwd.getpwnam(caller.user).pw_uid)
        try:
            made.sock.connect(self.cluster.socket)
        finally:
            os.seteuid(0)
        return made

    def get(self, path: str) -> Any:
        """What root reads there; None where this daemon has no such thing."""
        found = self.ask(Caller("root"), Hostile("GET", path, {}, b""))
        assert found.status in (200, 409), (path, found)
        return json.loads(found.body) if found.status == 200 and path != "/metrics" else None

    def looks(self, chance: random.Random) -> list[int]:
        """Everything can be listed, and some jobs be shown; the ids of all."""
        for path in LISTS:
            self.get(path)
        ids = [job["id"] for job in self.get("/v1/jobs?all=1")["jobs"]]
        for job in chance.sample(ids, min(len(ids), 10)):
            for more in ("", "/why", "/iterations"):
                self.get(f"/v1/jobs/{job}{more}")
        return ids

    def of_others(self) -> dict[str, Any]:
        """What no ordinary user changes: other users' things, and those of administrators. What changes by
        itself meanwhile, since it begins or ends soon, is left out."""
        later_us = int((time.time() + 3_600) * 1e6)
        found = {path: self.get(f"/v1/{path}") for path in ("accounts", "partitions")}
        for job in self.jobs:
            found[str(job)] = self.get(f"/v1/jobs/{job}")["job"]["spec"]
        found["hosts"] = _only(KEPT_OF_HOSTS, self.get("/v1/hosts?variables=1")["hosts"])
        found["silences"] = [one for one in self.get("/v1/alerts")["silences"] if one["until_us"] > later_us]
        found["reservations"] = [
            (one["name"], one["hosts"], one["users"], one["comment"])
            for one in self.get("/v1/reservations")["reservations"]
            if any(begins > later_us for begins, _ in one["windows"])
        ]
        schedules = self.get("/v1/playbook-schedules")["schedules"]
        found["schedules"] = _only(("id", "playbook", "cron", "by"), schedules)
        found["tokens"] = _only(("id", "revoked_us"), self.get(f"/v1/tokens?user={VICTIM}")["tokens"])
        found["meshes"] = _only(("name", "paused_by"), self.get("/v1/monitor")["meshes"])
        return found

    def done_by(self, user: str) -> set[str]:
        """What the audit log says that this user has changed."""
        acts = self.get(f"/v1/audit?user={user}&limit=10000")["acts"]
        return {act["target"] for act in acts if act["outcome"] == "done"}


def _only(names: Sequence[str], things: list[dict[str, Any]]) -> list[list[Any]]:
    return [[one[name] for name in names] for one in things]


@pytest.fixture(scope="module")
def world(make_cluster: MakeCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("hostile")
    authority, kept = Authority(folder), Kept()
    authority.issue(folder / "certificate.pem", folder / "key.pem")
    (folder / "playbooks").mkdir()
    (folder / "playbooks" / "ping.yml").write_text(PLAYBOOK)
    settings: dict[str, dict[str, Any]] = {
        "https": {"listen": f"127.0.0.1:{kept.number}", "certificate": str(folder / "certificate.pem"),
                  "key": str(folder / "key.pem")},
        "limits": {"requests_per_s": 1e6, "request_burst": 1_000_000},
        "roles": {"operators": [OPERATOR]},
        "playbooks": {"directory": str(folder / "playbooks")},
        "policies": {"queue": "multifactor"},
        "monitor": {"enabled": True, "mesh": [{"name": "latency", "schedule": "0 0 1 1 *"}]},
    }  # fmt: skip
    yield World(make_cluster(settings, zones=1, hosts=2, gpus_per_host=2), kept.number, authority.file)
    kept.close()


def test_nothing_that_is_sent_breaks_a_daemon_or_touches_another_user(world: World) -> None:
    chance, cluster, done = random.Random(SEED), world.cluster, Counter[int]()
    users = [Caller(ATTACKER)] * 4 + [
        Caller(ATTACKER, scope) for scope in ("read", "submit", "operate", "admin")
    ]
    users += [Caller(""), Caller("daemon"), Caller("root", "read"), Caller(OPERATOR, "read")]
    admins = [
        Caller("root"),
        Caller("root"),
        Caller("root", "admin"),
        Caller("root", "operate"),
        Caller(OPERATOR),
    ]
    sent: set[Route] = set()
    drawn: Sequence[Route] = CHANGING  # each of them once; then by chance
    while done.total() < REQUESTS:
        before = world.of_others()
        sent |= _send(world, users, drawn, chance, done)
        assert sent >= set(CHANGING)
        assert world.of_others() == before
        drawn = _drawn(chance)
        _send(world, admins, _drawn(chance), chance, done)
        world.renew()
        world.looks(chance)
        assert "Traceback" not in cluster.log_file.read_text(errors="replace"), cluster.last_words()
    assert min(done[status] for status in (200, 201, 400, 403)) > 0  # it was no mere noise
    changed = world.done_by(ATTACKER) | world.done_by("daemon")
    assert not changed & {f"job {job}" for job in world.jobs}
    before, ids = world.of_others(), world.looks(chance)
    cluster.restart()
    until(lambda: {host["state"] for host in cluster.hosts().values()} & {"UP", "DRAINED"}, "a host is up")
    assert (world.looks(chance), world.of_others()) == (ids, before)
    assert "Traceback" not in cluster.log_file.read_text(errors="replace"), cluster.last_words()


def _drawn(chance: random.Random) -> list[Route]:
    drawn = chance.choices(ASKED, WEIGHTS, k=BLOCK)
    return [route for route in drawn if route.path not in LONG or chance.random() < 0.1]


def _send(
    world: World, callers: list[Caller], routes: Sequence[Route], chance: random.Random, done: Counter[int]
) -> set[Route]:
    """A request to each of the routes, of any of the callers; those that were answered."""
    answered = set()
    for route in routes:
        request = _bounded(route, world.requests.some(route, chance.random() < MILD))
        while _takes_away(world, route, request):
            request = world.requests.some(route)
        caller = chance.choice(callers)
        answer = world.ask(caller, request)
        answered.add(route)
        done[answer.status] += 1
        assert answer.status < 500 or answer.status in (502, 503), (caller, request, answer)
    return answered


def _bounded(route: Route, request: Hostile) -> Hostile:
    """Without what lasts: the end of a job, and of a log."""
    if route.path.endswith(("/wait", "/logs")):
        return request._replace(path=request.path.partition("?")[0] + "?timeout_s=0")
    return request


def _takes_away(world: World, route: Route, request: Hostile) -> bool:
    """The hosts are needed for what follows."""
    removes = (route.method, route.path) == ("DELETE", "/v1/hosts/{name}")
    return removes and any(request.path.endswith(f"/{host}") for host in world.hosts)


def test_what_changes_something_is_left_out_by_name_only() -> None:
    changing = {(route.method, route.path) for route in ROUTES if route.method != "GET"}
    assert {(route.method, route.path) for route in CHANGING} == changing - set(NOT_ASKED)
    assert set(NOT_ASKED) <= changing
    assert all(route.who is not Who.ANYBODY for route in ROUTES if route.method != "GET")
