"""Who may do what, what users' strings can reach, and where secrets must never be seen."""

from __future__ import annotations

import os
import pwd
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rm.client.connection import Connection
from rm.errors import Forbidden, UsageError
from tests.cluster import ClientOf, Cluster, until
from tests.e2e.conftest import MakeCluster

pytestmark = pytest.mark.lab

OWNER, STRANGER = "nobody", "daemon"  # accounts of this machine and of its lab hosts
SECRET = "hunter2-wLqzA"
EVIL = """x'"; touch /tmp/pwned; $(touch /tmp/pwned) `touch /tmp/pwned` & touch /tmp/pwned | ${IFS}%s"""


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster) -> Cluster:
    settings = {"jobs": {"deliver": "rm-%j.out"}, "daemon": {"log_level": "debug"}}
    return make_cluster(settings, zones=1, hosts=2, gpus_per_host=1)


@pytest.fixture(autouse=True)
def tidy(cluster: Cluster) -> Iterator[None]:
    yield
    cluster.tidy()
    for host in cluster.lab.hosts:
        assert not cluster.read(host.name, "/tmp/pwned")
        assert cluster.lab.exec(host.name, ["test", "-e", "/tmp/pwned"]).returncode == 1
    assert not os.path.exists("/tmp/pwned")


@pytest.fixture
def home() -> Iterator[Path]:
    """A directory of OWNER's that nobody else may write to."""
    with tempfile.TemporaryDirectory(prefix="rm-submit-") as name:
        account = pwd.getpwnam(OWNER)
        os.chown(name, account.pw_uid, account.pw_gid)
        yield Path(name)


@pytest.fixture
def owner(cluster: Cluster) -> Connection:
    return cluster.client_of(OWNER)


@pytest.fixture
def stranger(cluster: Cluster) -> Connection:
    return cluster.client_of(STRANGER)


def test_the_caller_is_who_the_kernel_says(cluster: Cluster, owner: Connection) -> None:
    job_id = cluster.post_job("id -un; id -Gn", user=OWNER)
    job = cluster.wait(job_id)
    assert job["spec"]["user"] == OWNER
    account = pwd.getpwnam(OWNER)
    assert cluster.log(job_id).splitlines()[0] == OWNER
    assert "root" not in cluster.log(job_id)
    with pytest.raises(Forbidden, match="administrator"):
        owner.post("jobs", body={"spec": {"name": "x", "script": "#!/bin/sh\nid\n", "user": "root"}})
    assert account.pw_uid != 0


def test_a_user_id_without_a_name_may_nothing(cluster: Cluster) -> None:
    nameless = ClientOf(cluster.socket, 54321)
    with pytest.raises(Forbidden, match="54321 has no name"):
        nameless.post("jobs", body={"spec": {"name": "x", "script": "#!/bin/sh\ntrue\n"}})
    with pytest.raises(Forbidden, match="54321 has no name"):
        nameless.get("jobs", 1)


def test_a_stranger_may_look_but_not_touch(cluster: Cluster, owner: Connection, stranger: Connection) -> None:
    script = f"echo said {SECRET}; sleep 600"
    job_id = cluster.post_job(script, user=OWNER, env=[["TOKEN", SECRET]], script_args=[SECRET])
    cluster.wait(job_id, "RUNNING")
    until(lambda: SECRET in cluster.said(job_id), "it has spoken")
    denied = [
        lambda: stranger.delete("jobs", job_id),
        lambda: stranger.delete("jobs", job_id, signal=9),
        lambda: stranger.post("jobs", job_id, "hold"),
        lambda: stranger.post("jobs", job_id, "release"),
        lambda: stranger.post("jobs", job_id, "requeue"),
        lambda: b"".join(stranger.stream("jobs", job_id, "logs")),
        lambda: b"".join(stranger.stream("jobs", job_id, "logs", follow=True)),
    ]
    for deed in denied:
        with pytest.raises(Forbidden, match=f"belongs to {OWNER}, and you are {STRANGER}"):
            deed()
    host = next(iter(cluster.hosts()))
    for path, body in (
        (("hosts", host, "drain"), {"reason": ""}),
        (("hosts", host, "resume"), {}),
        (("hosts", host, "key"), {"fingerprint": "SHA256:x"}),
        (("hosts",), {"hosts": [{"name": "evil", "zone": "z"}]}),
        (("network", "measure"), {}),
    ):
        with pytest.raises(Forbidden, match=r"Only an (administrator|operator)"):
            stranger.post(*path, body=body)
    with pytest.raises(Forbidden, match=r"Only an (administrator|operator)"):
        stranger.delete("hosts", host)
    # what everybody sees holds no secret, wherever it is shown
    views = [
        stranger.get("jobs", job_id),
        stranger.get("jobs", all=True),
        stranger.get("jobs", job_id, "why"),
        stranger.get("jobs", job_id, "wait", timeout_s=0.01),
        stranger.get("hosts"),
        stranger.get("status"),
    ]
    for view in views:
        assert SECRET not in str(view)
    assert cluster.job(job_id)["state"] == "RUNNING"
    mine = owner.get("jobs", job_id)["job"]
    assert mine["spec"]["env"] == {"TOKEN": SECRET}
    assert owner.delete("jobs", job_id)["job"]["id"] == job_id
    assert cluster.wait(job_id)["state"] == "CANCELLED"
    log = cluster.log_file.read_text()  # at its most talkative
    assert log
    assert SECRET not in log


def test_the_daemons_files_are_its_own(cluster: Cluster) -> None:
    job_id = cluster.post_job(f"echo {SECRET}", user=OWNER, env=[["TOKEN", SECRET]])
    cluster.wait(job_id)
    until(lambda: not cluster.lab.exec(cluster.job(job_id)["hosts"][0], ["ls", "/var/lib/rm/jobs"]).stdout,
          "its log is collected")  # fmt: skip
    uid = pwd.getpwnam(STRANGER).pw_uid
    readable = []
    os.seteuid(uid)
    try:
        for folder, _, files in os.walk(cluster.directory / "state"):
            for name in files:
                path = Path(folder, name)
                if os.access(path, os.R_OK, effective_ids=True):
                    readable.append(path)
    finally:
        os.seteuid(0)
    assert not [path for path in readable if SECRET.encode() in path.read_bytes()]
    files = [path for path in (cluster.directory / "state").rglob("*") if path.is_file()]
    # the walk above would have found something
    assert any(SECRET.encode() in path.read_bytes() for path in files)
    assert stat.S_ISSOCK(os.stat(cluster.socket).st_mode)


def test_on_the_host_a_job_is_its_users_own(cluster: Cluster) -> None:
    """Neither the environment nor the log of a running job can be read by another job's user."""
    spec = {"hosts_only": sorted(cluster.hosts())[:1]}
    job_id = cluster.post_job(f"echo {SECRET}; sleep 600", user=OWNER, env=[["TOKEN", SECRET]], **spec)
    cluster.all_started(job_id)
    until(lambda: SECRET in cluster.said(job_id), "it has spoken")
    places = "/var/lib/rm /proc/[0-9]*/environ /opt/rm/agents /tmp /run"
    found = cluster.post_job(f"grep -rls hunter2-wLq {places} 2>/dev/null; echo done", user=STRANGER, **spec)
    assert cluster.wait(found)["state"] == "COMPLETED"
    assert cluster.log(found) == "done\n"


def test_no_string_of_a_user_reaches_a_shell(cluster: Cluster) -> None:
    script = 'for word in "$@" "$EVIL" "$SLURM_JOB_NAME"; do printf "%s\\n" "$word"; done; pwd'
    name = EVIL.replace("/", "_")
    job_id = cluster.post_job(
        script,
        user=OWNER,
        name=name,
        script_args=[EVIL, "-rf", "two\nlines", "", "$HOME *"],
        env=[["EVIL", EVIL], ["A B;C", EVIL]],
        chdir="/" + EVIL,
        comment=EVIL,
        submit_host=EVIL,
        partition="",
    )
    job = cluster.wait(job_id)
    assert job["state"] == "COMPLETED"
    said = cluster.log(job_id).splitlines()
    assert said == [EVIL, "-rf", "two", "lines", "", "$HOME *", EVIL, name, "/"]
    for view in ("show", "why", "queue"):
        assert cluster.run(view, *([job_id] if view != "queue" else [])).returncode == 0
    (host,) = job["hosts"]
    cluster.lab.exec(host, ["mkdir", "-p", "-m", "777", "/var/tmp/" + EVIL.replace("/", "_")])
    pattern = f"/var/tmp/{name.replace('%', '%%')}/%j %x.out"
    with_output = cluster.post_job("echo hi", user=OWNER, name="y", output=pattern, hosts_only=[host])
    assert cluster.wait(with_output)["state"] == "COMPLETED"
    assert cluster.read(host, f"/var/tmp/{name}/{with_output} y.out") == "hi\n"
    assert cluster.log(with_output) == "hi\n"


def test_through_the_command_line_too(cluster: Cluster, tmp_path: Path) -> None:
    directory = tmp_path / "a b; touch $(pwned)"
    directory.mkdir()
    script = directory / "it's; touch pwned.sh"
    script.write_text('#!/bin/sh\necho "$1"; echo "$SLURM_JOB_NAME"\n')
    job_id = cluster.submit(script, "$(touch /tmp/pwned)'", cwd=directory)
    cluster.wait(job_id)
    assert cluster.log(job_id) == f"$(touch /tmp/pwned)'\n{script.name}\n"
    assert sorted(p.name for p in directory.iterdir() if "rm-" not in p.name) == [script.name]


def test_what_no_job_may_be_is_refused(cluster: Cluster, owner: Connection) -> None:
    base = {"name": "x", "script": "#!/bin/sh\ntrue\n"}
    for wrong in (
        {"name": "a\nb"},
        {"script_args": ["a\0b"]},
        {"env": [["A=B", "x"]]},
        {"env": [["A", "x\0y"]]},
        {"chdir": "relative"},
        {"script": "#!/bin/sh\n\0"},
        {"usr": "root"},
        {"ntasks": -1},
    ):
        with pytest.raises(UsageError):
            owner.post("jobs", body={"spec": {**base, **wrong}})
    with pytest.raises(UsageError):
        owner.post("jobs", body={"spec": []})


def test_an_output_cannot_be_laid_over_anothers_file(cluster: Cluster) -> None:
    host = sorted(cluster.hosts())[0]
    cluster.lab.exec(host, ["sh", "-c", "echo precious >/var/tmp/precious; chmod 644 /var/tmp/precious"])
    for output in ("/var/tmp/precious", "/var/lib/rm/epoch", "/opt/rm/agents/rm_agent.py", "/etc/passwd"):
        job = cluster.wait(cluster.post_job("echo gone", user=OWNER, output=output, hosts_only=[host]))
        assert job["state"] == "FAILED"
        assert "cannot be written" in job["reason"]["message"]
    assert cluster.read(host, "/var/tmp/precious") == "precious\n"
    # nor can another's file be read through `rmx logs`
    script = "rm -f $HOME/mine; ln -s /etc/shadow /var/tmp/mine.$RM_JOB_ID.swap; exec sleep 600"
    job_id = cluster.post_job(script, user=OWNER, output="/var/tmp/mine.%j", hosts_only=[host])
    cluster.all_started(job_id)
    swap = f"/var/tmp/mine.{job_id}"
    until(lambda: cluster.lab.exec(host, ["test", "-L", swap + ".swap"]).returncode == 0, "the trap is laid")
    cluster.lab.exec(host, ["mv", swap + ".swap", swap])
    with pytest.raises(Exception, match="cannot be read"):
        cluster.log(job_id)


def test_root_runs_only_where_rm_toml_allows_it(make_cluster: MakeCluster) -> None:
    cluster = make_cluster({"jobs": {"run_root_as": ""}}, zones=1, hosts=1)
    assert "Jobs of root are not run" in cluster.refused(5, "submit", "--wrap", "id -un")
    mine = cluster.post_job("id -un", user=OWNER)
    assert cluster.wait(mine)["state"] == "COMPLETED"
    cluster.stop()
    cluster.config.write_text(cluster.config.read_text().replace("[jobs]\n", "[jobs]\nallow_root = true\n"))
    cluster.start()
    cluster.all_up()
    allowed = cluster.submit("--wrap", "id -un")
    assert cluster.wait(allowed)["state"] == "COMPLETED"
    assert cluster.log(allowed) == "root\n"


# delivery into the submit directory


def settled(cluster: Cluster, job: int) -> None:
    """The job's hosts have forgotten it: its logs are at home and delivered."""
    cluster.wait(job)
    cluster.tidy()


def delivered(cluster: Cluster, home: Path, script: str, **spec: object) -> int:
    given = {"chdir": str(home), "submit_host": os.uname().nodename, **spec}
    job_id = cluster.post_job(script, user=OWNER, **given)
    cluster.wait(job_id)
    return job_id


def test_the_log_is_delivered_as_the_user(cluster: Cluster, home: Path) -> None:
    one = delivered(cluster, home, "echo one; echo err >&2")
    file = home / f"rm-{one}.out"
    until(file.exists, "it is delivered")
    assert file.read_text() == "one\nerr\n"
    assert (file.stat().st_uid, stat.S_IMODE(file.stat().st_mode)) == (pwd.getpwnam(OWNER).pw_uid, 0o644)
    gang = delivered(cluster, home, "echo $RANK", ntasks=2, hosts_min=2)
    for rank in range(2):
        file = home / f"rm-{gang}.{rank}.out"
        until(file.exists, "each task's log is delivered")
        assert file.read_text() == f"{rank}\n"
    silent = [
        delivered(cluster, home, "echo x", output="/var/tmp/%j.out"),
        delivered(cluster, home, "echo x", output=""),  # asked for by name: none
        delivered(cluster, home, "echo x", submit_host="elsewhere"),
    ]
    last = delivered(cluster, home, "echo last")
    until((home / f"rm-{last}.out").exists, "the last one is delivered")
    for job_id in silent:
        until(lambda j=job_id: not any(cluster.read(h.name, f"/var/lib/rm/jobs/{j}.1/meta.json")
                                       for h in cluster.lab.hosts), "it is collected")  # fmt: skip
    assert {p.name for p in home.iterdir()} == {
        f"rm-{one}.out", f"rm-{gang}.0.out", f"rm-{gang}.1.out", f"rm-{last}.out"
    }  # fmt: skip


def test_delivery_never_follows_a_link_nor_borrows_roots_rights(cluster: Cluster, home: Path) -> None:
    held = cluster.post_job("echo x", user=OWNER, chdir=str(home), hold=True, submit_host=os.uname().nodename)
    target = cluster.directory / "precious"
    target.write_text("precious")
    (home / f"rm-{held}.out").symlink_to(target)
    cluster.client.post("jobs", held, "release")
    cluster.wait(held)
    until(lambda: not (home / f"rm-{held}.out").is_symlink(), "it is delivered over the link")
    assert (home / f"rm-{held}.out").read_text() == "x\n"
    assert target.read_text() == "precious"

    home.chmod(0o755)
    os.chown(home, 0, 0)
    refused = delivered(cluster, home, "echo x")
    told = until(
        lambda: [what for _, what in cluster.job(refused)["history"] if "not delivered" in what], "it is told"
    )
    assert f"not delivered to {home}: Permission denied" in told[0]
    assert cluster.log(refused) == "x\n"
    assert cluster.job(refused)["state"] == "COMPLETED"


def test_no_administrator_has_playbooks_do_on_the_daemons_machine_what_he_wrote(
    cluster: Cluster, home: Path
) -> None:
    """Neither as a maintenance nor by the variables of hosts, also of those playbooks that come with rm."""
    cluster.configure({"daemon": {"admins": [OWNER]}})
    cluster.restart()
    admin, tasks = cluster.client_of(OWNER), home / "tasks.yml"
    tasks.write_text("- command: touch /\n  delegate_to: localhost\n")
    (kept,) = (
        h for h in cluster.client.get("hosts", variables=1)["hosts"] if h["name"] == cluster.lab.hosts[0].name
    )
    fields = ("name", "zone", "address", "port", "login", "interface", "nic_bps", "partitions", "features")
    asked = {name: kept[name] for name in fields}
    for steers in ({"rm_act": str(tasks)}, {"ansible_connection": "local"}):
        with pytest.raises(Forbidden, match="steer logins and playbooks"):
            admin.post("hosts", body={"hosts": [{**asked, "variables": {**kept["variables"], **steers}}]})
    maintenance = {"name": "m", "hosts": [kept["name"]], "maint": True, "lasts_us": 1_000_000}
    with pytest.raises(Forbidden, match="no playbook of its folder"):
        admin.post("reservations", body={**maintenance, "playbook": str(tasks)})
    admin.post("hosts", body={"hosts": [{**asked, "variables": kept["variables"]}]})
    (now,) = (h for h in cluster.client.get("hosts", variables=1)["hosts"] if h["name"] == kept["name"])
    assert now["variables"] == kept["variables"]
    assert cluster.client.get("reservations")["reservations"] == []


def test_no_administrator_writes_files_of_others(cluster: Cluster, home: Path) -> None:
    """Neither for root nor for a user, whatever the directory."""
    here = os.uname().nodename
    for user, place in (("root", "/etc/cron.d"), (OWNER, str(home)), ("root", str(home))):
        spec = {"name": "evil", "script": "#!/bin/sh\necho '* * * * * root id'\n", "user": user}
        with pytest.raises(UsageError, match="Unknown field 'deliver'"):
            cluster.client.post("jobs", body={"spec": {**spec, "deliver": "evil-cron"}})
        job_id = int(
            cluster.client.post("jobs", body={"spec": {**spec, "chdir": place, "submit_host": here}})["job"]
        )
        settled(cluster, job_id)
    last = delivered(cluster, home, "echo last")
    until((home / f"rm-{last}.out").exists, "the owner's own job is delivered")
    assert [path.name for path in home.iterdir()] == [f"rm-{last}.out"]
    assert not [path for path in Path("/etc/cron.d").iterdir() if path.name.startswith(("rm-", "evil"))]
