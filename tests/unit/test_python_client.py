"""The Python client: its methods are the API's routes, its answers are types, and its manual runs."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

import rm
from rm.api.hosts import HostRequest
from rm.api.job_requests import JobRequest, JobUpdate
from rm.api.job_rows import JobRow
from rm.api.routes import ROUTES, Route
from rm.api.sharing import Account
from rm.client import Client, batch_job, exit_code, listing
from rm.client.asking import Asking
from rm.client.connection import Connection
from rm.config import Config, JobsConfig
from rm.core.model.asked.array import Array
from rm.errors import (
    Conflict,
    IllegalTransition,
    ImpossibleRequest,
    NotFound,
    Refusal,
    StoreUnavailable,
    TimedOut,
    Unreachable,
    UsageError,
)
from scripts.client_tables import FILE, PLACES, methods, renewed
from tests.fake_service import Daemon, FakeService, serving

SCRIPT = "#!/bin/sh\ntrue\n"
JOB = JobRequest(name="one", script=SCRIPT)
# each route of the API, as a program asks for it
CALLS: dict[str, Callable[[Client], object]] = {
    "starts": lambda c: c.starts(),
    "priorities": lambda c: c.priorities(),
    "priority_weights": lambda c: c.priority_weights(),
    "accounts": lambda c: c.sharing.accounts(),
    "shares": lambda c: c.sharing.shares(),
    "usage": lambda c: c.sharing.usage(
        ["day"], since_us=1, until_us=2, account="a", user="u", qos="q", partition="p", host="h"
    ),
    "add_account": lambda c: c.sharing.add_account("b"),
    "import_accounts": lambda c: c.sharing.import_accounts([Account(name="a")]),
    "set_account": lambda c: c.sharing.set_account("a", shares=2),
    "remove_account": lambda c: c.sharing.remove_account("a"),
    "put_members": lambda c: c.sharing.put_members("a", ["ann"], shares=3),
    "add_qos": lambda c: c.sharing.add_qos("fast", priority=2),
    "set_qos": lambda c: c.sharing.set_qos("fast", limits={"gpus": 2}),
    "remove_qos": lambda c: c.sharing.remove_qos("fast"),
    "partitions": lambda c: c.sharing.partitions(),
    "add_partition": lambda c: c.sharing.add_partition("gpu", tier=2),
    "set_partition": lambda c: c.sharing.set_partition("gpu", state="down"),
    "remove_partition": lambda c: c.sharing.remove_partition("gpu"),
    "remove_member": lambda c: c.sharing.remove_member("a", "ann"),
    "reservations": lambda c: c.reservations.list(),
    "create_reservation": lambda c: c.reservations.create("r", users=["ann"], accounts=["a"], lasts_us=1),
    "change_reservation": lambda c: c.reservations.change("r", users=["ann"]),
    "delete_reservation": lambda c: c.reservations.delete("r"),
    "status": lambda c: c.status(),
    "me": lambda c: c.accounts.me(),
    "submit": lambda c: c.submit(JOB),
    "plan": lambda c: c.plan(JOB),
    "job_rows": lambda c: c.rows(),
    "jobs": lambda c: c.jobs(),
    "job_steps": lambda c: c.job_steps([1]),
    "used_now": lambda c: c.used_now(1),
    "queue": lambda c: c.queue(),
    "cancel_all": lambda c: c.cancel_all(name="one"),
    "job": lambda c: c.job(1),
    "cancel": lambda c: c.cancel(1),
    "hold": lambda c: c.hold(1),
    "release": lambda c: c.release(1),
    "requeue": lambda c: c.requeue("1_[2-3]", failed=True, hold=True),
    "suspend": lambda c: c.suspend(1),
    "resume_job": lambda c: c.resume_job(1),
    "limit_array": lambda c: c.limit_array(1, 5),
    "update": lambda c: c.update(1, JobUpdate(comment="c")),
    "wait": lambda c: c.wait(1),
    "logs": lambda c: list(c.logs(1)),
    "why": lambda c: c.why(1),
    "iterations": lambda c: c.iterations(1),
    "hosts": lambda c: c.hosts(),
    "add_hosts": lambda c: c.add_hosts([HostRequest(name="h9")]),
    "remove_host": lambda c: c.remove_host("h1"),
    "drain": lambda c: c.drain("h1"),
    "resume": lambda c: c.resume("h1"),
    "adopt": lambda c: c.adopt("h1"),
    "present_key": lambda c: c.host_keys("h1"),
    "accept_key": lambda c: c.accept_key("h1", "SHA256:abc"),
    "links": lambda c: c.network.links(),
    "network": lambda c: c.network.pairs(),
    "measure": lambda c: c.network.measure(),
    "history": lambda c: c.network.history("h1", "h2"),
    "meshes": lambda c: c.monitor.meshes(),
    "grid": lambda c: c.monitor.grid("m"),
    "changes": lambda c: c.monitor.changes("m"),
    "run_mesh": lambda c: c.monitor.run("m"),
    "pause_mesh": lambda c: c.monitor.pause("m"),
    "resume_mesh": lambda c: c.monitor.resume("m"),
    "sources": lambda c: c.monitor.sources(),
    "archives": lambda c: c.monitor.archives(),
    "read_source": lambda c: c.monitor.read_source("a"),
    "alerts": lambda c: c.alerts.list(),
    "acknowledge": lambda c: c.alerts.acknowledge(["h1"]),
    "silence": lambda c: c.alerts.silence(60, hosts=["h1"]),
    "end_silence": lambda c: c.alerts.unsilence(1),
    "playbooks": lambda c: c.playbooks.list(),
    "survey": lambda c: c.playbooks.survey("site"),
    "start_playbook": lambda c: c.playbooks.start("site", {"a": 1}, limit="h1", tags=["t"], check=True),
    "playbook_runs": lambda c: c.playbooks.runs(limit=2, before=9, playbook="site"),
    "playbook_run": lambda c: c.playbooks.run(1),
    "outcomes": lambda c: list(c.playbooks.outcomes(1, host="h1", status="failed")),
    "tell_playbook": lambda c: c.playbooks.tell("/srv/site.yml", variables=["a"], tags=["t"]),
    "tell_progress": lambda c: c.playbooks.progress(1, notes=["hello"]),
    "stop_playbook": lambda c: c.playbooks.stop(1),
    "playbook_schedules": lambda c: c.playbooks.schedules(),
    "schedule_playbook": lambda c: c.playbooks.schedule("site", "0 3 * * *", {"a": 1}),
    "unschedule_playbook": lambda c: c.playbooks.unschedule(1),
    "tokens": lambda c: c.accounts.tokens(),
    "create_token": lambda c: c.accounts.create_token("read", 60),
    "revoke_token": lambda c: c.accounts.revoke_token("abc"),
    "audit": lambda c: c.accounts.audit(),
}
# playbook runs ask for the former two over connections of their own; the others are for other programs
NOT_THE_CLIENTS = {"channels", "run_steps", "openapi", "metrics", "session"}


class Asked(Exception):
    """A request, instead of its answer."""

    def __init__(self, kind: Any, method: str, path: tuple[Any, ...], query: Any, body: Any) -> None:
        super().__init__(method, path)
        self.kind, self.method, self.path, self.query, self.body = kind, method, path, set(query), body


class Request(NamedTuple):
    method: str
    path: tuple[Any, ...]
    query: Mapping[str, Any]
    body: bytes | None


class Recording(Connection):
    """Tells what it is asked for."""

    def ask(self, method: str, path: Any, query: Any, body: bytes | None = None, *_: Any, **__: Any) -> Any:
        return Request(method, path, query, body)

    def beside(self) -> Connection:
        return self

    def stream(self, *path: Any, _note: Any = None, **query: Any) -> Iterator[bytes]:
        raise Asked(None, "GET", path, query, None)

    def post(self, *path: Any, body: Any = None, timeout_s: Any = None, key: str = "") -> dict[str, Any]:
        assert key, "a submission that may be heard twice has a key"
        raise Asked(None, "POST", path, {}, msgspec.json.encode(body))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Client], object]], Asked]:
    def read(_: Asking, kind: Any, request: Request) -> None:
        raise Asked(kind, *request)

    def ask(call: Callable[[Client], object]) -> Asked:
        with pytest.raises(Asked) as caught:
            call(Client(Recording("/nowhere")))
        return caught.value

    monkeypatch.setattr(Asking, "_read", read)
    return ask


def test_a_request_with_text_that_is_none_is_refused_by_a_sentence() -> None:
    with pytest.raises(UsageError, match="not UTF-8"):
        Client(Recording("/nowhere")).alerts.silence(60, hosts=["\udcff"])


ROW = JobRow(
    7, "batch", "a", "ann", "RUNNING", "R", 1, 2, None, None, 1, 1, 0, 0, "task", 0, ["h1"], "", "/", "", 0,
    None, None, 0, 1, array_parts=[],
)  # fmt: skip


def test_rows_of_a_newer_daemon_are_read_by_the_names_of_their_columns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = ROW._replace(array_parts=[["1", "PENDING", "PD", "JobHeldUser"]])
    columns, values = ["colour", *reversed(JobRow._fields)], ["red", *reversed(told)]
    page = msgspec.json.encode({"columns": columns, "rows": [values], "more": False})
    monkeypatch.setattr(listing, "read", lambda *_: page)
    assert listing.rows_at_once("/nowhere", {}) == [told]
    read = Asking._read
    monkeypatch.setattr(Asking, "_read", lambda mine, kind, data: read(mine, kind, page))
    assert Client(Recording("/nowhere")).rows() == [told]


def test_rows_of_an_older_daemon_lack_the_columns_that_came_later(monkeypatch: pytest.MonkeyPatch) -> None:
    older = len(JobRow._fields) - len(JobRow._field_defaults)
    page = msgspec.json.encode({"columns": JobRow._fields[:older], "rows": [ROW[:older]], "more": False})
    monkeypatch.setattr(listing, "read", lambda *_: page)
    assert listing.rows_at_once("/nowhere", {}) == [ROW._replace(array_parts=())]


@pytest.mark.parametrize(
    ("columns", "values"),
    [(JobRow._fields[1:], ROW[1:]), (JobRow._fields, ROW[1:]), (JobRow._fields, ("seven", *ROW[1:]))],
    ids=["column", "value", "type"],
)
def test_rows_that_lack_a_column_are_refused(
    columns: Any, values: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = msgspec.json.encode({"columns": columns, "rows": [values], "more": False})
    read = Asking._read
    monkeypatch.setattr(Asking, "_read", lambda mine, kind, data: read(mine, kind, page))
    with pytest.raises(Unreachable, match="another version"):
        Client(Recording("/nowhere")).rows()


@pytest.mark.parametrize(
    "route",
    [r for r in ROUTES if r.name not in NOT_THE_CLIENTS and not r.name.startswith("maddash")],
    ids=lambda route: route.name,
)
def test_each_route_has_a_method_that_asks_for_all_of_it(
    route: Route, asked: Callable[[Callable[[Client], object]], Asked]
) -> None:
    found = asked(CALLS[route.name])
    pattern = re.sub(r"\{\w+\}", "[^/]+", route.path)
    assert found.method == route.method
    assert re.fullmatch(pattern, "/v1/" + "/".join(map(str, found.path)))
    assert found.query == {parameter.name for parameter in route.query}
    # cheap to import; answers with bytes; read by the names of its columns
    if route.name not in ("submit", "logs", "job_rows"):
        assert found.kind is route.answer
    if route.body is not None:
        assert msgspec.json.decode(found.body, type=route.body)  # raises ValidationError


def test_each_method_asks_for_a_route() -> None:
    known = {name for kind in PLACES.values() for name, _ in methods(kind)}
    others = {"close", "host", "submit_many", "wait_each"}  # made of other methods, or the same request
    assert known - others <= {name for call in CALLS.values() for name in call.__code__.co_names}


def test_the_manual_has_all_methods_as_they_are() -> None:
    text = FILE.read_text()
    assert renewed(text) == text, "python -m scripts.client_tables renews them"


class Finishing(FakeService):
    """Jobs end as soon as somebody waits for them, or follows their output."""

    async def wait(self, job_id: int, timeout_s: float, array_tasks: str = "") -> Any:
        return self.finish(job_id) if not (await self.job(job_id)).state.final else await self.job(job_id)

    async def read(self, job_id: int, *given: Any, **more: Any) -> Any:
        await self.wait(job_id, 0)
        async for part in super().read(job_id, *given, **more):
            yield part


@pytest.mark.parametrize(
    "example",
    re.findall(r"```python\n(.*?)```", FILE.read_text(), re.DOTALL),
    ids=lambda _: "",
)
def test_the_examples_of_the_manual_run(
    example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.sh").write_text("#!/bin/sh\n#SBATCH --cpus-per-task=2\necho training $*\n")
    with serving(tmp_path / "rm.sock", kind=Finishing) as daemon:
        environment = {"RM_DAEMON__SOCKET": daemon.socket, "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", example], cwd=tmp_path, env=environment,
            capture_output=True, text=True,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
        assert daemon.service.table or "submit" not in example


@pytest.fixture
def client(daemon: Daemon) -> Iterator[Client]:
    with Client(daemon.socket) as client:
        yield client


def test_it_is_loaded_by_both_its_names_and_not_before() -> None:
    assert rm.Client is Client
    program = (
        "import sys, rm, rm.client; heavy = {'msgspec', 'http.client', 'rm.client.client'}; "
        "print(sorted(heavy & set(sys.modules))); from rm import Client; from rm.client import JobRequest"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")
    with pytest.raises(AttributeError, match=r"rm.client.*Cleint"):
        getattr(rm.client, "Cleint")  # noqa: B009


def test_the_daemon_is_found_as_rmx_finds_it(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert Client().connection.address.path == daemon.socket
    assert Client(f"unix://{daemon.socket}").status().daemon.pid == 7
    monkeypatch.setenv("RM_CA_FILE", "/etc/ca.pem")
    assert Client("ssh://ann@head:22").connection.address.user == "ann"
    file = tmp_path / "rm.toml"
    file.write_text("[daemon]\nurl = 'ssh://ann@head'\n")
    monkeypatch.delenv("RM_DAEMON__SOCKET")
    assert str(Client(config=str(file)).connection.address) == "ssh://ann@head"
    with pytest.raises(UsageError, match=r"The daemon's address is 'ftp://head'"):
        Client("ftp://head")


def test_what_a_request_leaves_out_has_the_default_of_rm_toml(tmp_path: Path) -> None:
    config = Config(jobs=JobsConfig(run_root_as="rmjob", partition="gpu", time_limit="10"))
    with serving(tmp_path / "rm.sock", config) as daemon, Client(daemon.socket) as client:
        client.submit(JOB)
        client.submit(msgspec.structs.replace(JOB, partition="cpu", time_limit_us=None, ntasks=4))
        first, second = (daemon.service.table[job].spec for job in (1, 2))
    assert (first.partition, first.time_limit_us, first.ntasks) == ("gpu", 600_000_000, 1)
    assert (second.partition, second.time_limit_us, second.ntasks) == ("cpu", None, 4)


def test_several_jobs_are_one_request_and_come_back_in_pages(
    client: Client, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rm.client.client.JOBS_PAGE", 2)
    jobs = [JOB, {"name": "two", "script": SCRIPT}, {"name": "three", "script": SCRIPT, "priority": 5}]
    assert client.submit_many(jobs) == [1, 2, 3]
    assert [(job.id, job.spec.name) for job in client.jobs()] == [(1, "one"), (2, "two"), (3, "three")]
    assert [job.id for job in client.jobs(most=1)] == [3]
    assert [job.id for job in client.jobs(name="two")] == [2]
    assert [job.id for job in client.queue()] == [3, 1, 2]
    assert client.job(1).spec.script == SCRIPT
    assert client.plan(JOB).placement is not None
    with pytest.raises(ImpossibleRequest, match="The cluster has 2 hosts"):
        client.submit_many([JOB, {"name": "big", "script": SCRIPT, "ntasks": 101}])
    assert len(daemon.service.table) == 3


def test_jobs_are_waited_for_in_the_order_in_which_they_are_named(client: Client, daemon: Daemon) -> None:
    ids = client.submit_many([JOB, JOB, JOB])
    daemon.service.finish(2, 3)
    with pytest.raises(TimedOut, match=r"Job 3 has not ended within 0\.01 s"):
        client.wait(3, timeout_s=0.01)
    daemon.call(lambda: daemon.service.finish(3, 0, 9), waiting=1)
    ended = list(client.wait_each((ids[2], ids[1])))
    assert [(job.id, job.state, exit_code(job)) for job in ended] == [(3, "FAILED", 137), (2, "FAILED", 3)]
    client.cancel(1)
    assert exit_code(client.wait(1)) == 1


def test_the_client_is_free_while_it_follows_an_output(client: Client, daemon: Daemon) -> None:
    job = client.submit(JOB)
    notes: list[str] = []
    daemon.service.notes[0] = "The first 3 bytes are lost."
    parts = client.logs(job, follow=True, on_note=notes.append)
    assert next(parts) == b"hello\nworld\n"
    assert client.job(job).state == "PENDING"
    daemon.call(lambda: daemon.service.finish(job), waiting=1)
    assert b"".join(parts) == b"more\n"
    assert notes == ["The first 3 bytes are lost."]
    assert b"".join(client.logs(job, stream="err", lines=1)) == b"oops\n"


def test_a_failure_is_the_daemons_own_error(client: Client) -> None:
    with pytest.raises(NotFound) as caught:
        client.job(99)
    assert (caught.value.what, caught.value.exit_code) == ("There is no job 99.", 4)
    assert caught.value.hint == "`rmx queue --all` lists those that you may see."
    with pytest.raises(NotFound, match="There is no host 'h9'"):
        client.host("h9")
    with pytest.raises(UsageError, match="Did you mean 'ntasks'"):
        client.submit({"name": "x", "script": SCRIPT, "ntask": 2})
    job = client.submit(JOB)
    assert client.hold(job).held
    assert not client.release(job).held
    assert client.cancel(job).state == "CANCELLED"
    with pytest.raises(Conflict, match="has already ended"):
        client.cancel(job)


def test_an_answer_of_another_version_is_told_as_such(
    client: Client, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Connection, "ask", lambda *_, **__: b'{"version": 1, "daemon": {"version": "0.0.1"}}')
    with pytest.raises(Unreachable, match=r"does not fit this rm: .*agents.*Use one version on both sides"):
        client.status()
    monkeypatch.setattr(Connection, "ask", lambda *_, **__: b"<html>")
    with pytest.raises(Unreachable, match="does not speak rm's protocol"):
        client.status()


@pytest.mark.parametrize(
    "answer", [b"[" * 100_000, b"{}", b'{"job": null, "jobs": 5}', b'{"job": "x", "jobs": ["x"]}']
)
def test_an_answer_that_is_none_of_rms_is_told_as_such(
    answer: bytes, client: Client, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Connection, "ask", lambda *_, **__: answer)
    for ask in (lambda: client.submit(JOB), lambda: client.submit_many([JOB])):
        with pytest.raises(Unreachable, match="does not speak rm's protocol"):
            ask()


def test_a_batch_script_is_read_as_rmx_submit_reads_it(
    client: Client, daemon: Daemon, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "train.sh").write_text(
        "#!/bin/sh\n#SBATCH --ntasks=2 -p gpu -t 5\n#SBATCH --no-requeue\ntrue\n"
    )
    monkeypatch.setenv("SBATCH_PARTITION", "long")
    monkeypatch.setenv("FROM_HERE", "yes")
    job = client.submit(
        batch_job(tmp_path / "train.sh", "--lr", 0.1, job_name="lr", time="1:00:00", hold=True)
    )
    spec = client.job(job).spec
    assert (spec.name, spec.script_args, spec.ntasks) == ("lr", ["--lr", "0.1"], 2)
    assert (spec.partition, spec.time_limit_us, spec.requeue, spec.hold) == (
        "long",
        3_600_000_000,
        False,
        True,
    )
    assert (spec.chdir, dict(spec.env)["FROM_HERE"]) == (str(tmp_path), "yes")
    with pytest.raises(UsageError) as caught:
        batch_job(tmp_path / "train.sh", ntask=2, hold="yes", mem=True, batch="a", wait=True)
    for said in (
        "--ntask",
        "'--ntasks'",
        "--hold",
        "True or False",
        "--mem",
        "--batch",
        "Client.wait(job)",
    ):
        assert said in str(caught.value)
    with pytest.warns(UserWarning, match="--reboot"):
        batch_job(tmp_path / "train.sh", reboot=True)
    with pytest.raises(UsageError, match="cannot be read"):
        batch_job(tmp_path / "nothing.sh")


@pytest.mark.usefixtures("jobs_of_slurm")
def test_a_cancellation_of_elements_whose_answer_was_lost_has_been_done(
    client: Client, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, tries = daemon.service, []

    async def lost(job_id: int, by: str, signal: int | None, array_tasks: str = "", to: str = "") -> Any:
        tries.append(array_tasks)
        if len(tries) % 2:
            array = Array(waiting="0", completed="5", dropped="2-4")
            service.put(3, array=dataclasses.replace(array, cancelled="1"))
            raise StoreUnavailable("The answer is lost.")
        raise IllegalTransition("They have ended already.", refusal=Refusal.ENDED)

    monkeypatch.setattr(service, "cancel", lost)
    for named in ("3_[2-5]", "3_4", "3_1", "3"):
        done = client.cancel(named)
        assert (done.id, done.array and done.array.dropped) == (3, "2-4")
    with pytest.raises(IllegalTransition):
        client.cancel("3_5")
    assert tries == [part for part in ("2-5", "4", "1", "", "5") for _ in range(2)]
