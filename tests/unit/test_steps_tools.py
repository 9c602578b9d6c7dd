"""Modules that drive the host's own tools, with tools of the test's that remember what they were asked."""

import glob
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import until
from tests.ports import Kept
from tests.steps_request import done, kept, one, refused, run, step

sys.path.insert(0, str(Path(__file__).parents[2] / "agents"))
import rm_gpus


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Put a shell script of this name before all others; its calls are in `log`."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("STATE", str(tmp_path))

    class Tools:
        log = tmp_path / "log"

        def add(self, name: str, script: str) -> None:
            text = f'#!/bin/sh\necho "{name} $*" >> {self.log}\ncd {tmp_path}\n{script}\n'
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)

        def called(self, verb: str) -> int:
            return self.log.read_text().count(verb) if self.log.exists() else 0

    return Tools()


SYSTEMCTL = """
case "$1" in
  show) echo "LoadState=$(cat load)"; echo "ActiveState=$(cat active)";;
  is-enabled) cat enabled; [ "$(cat enabled)" = enabled ];;
  start|restart) echo active > active;;
  stop) echo inactive > active;;
  enable) echo enabled > enabled;;
  disable) echo disabled > enabled;;
  mask) echo masked > load;;
  unmask) echo loaded > load;;
esac
"""


def test_systemd(tools: Any, tmp_path: Path) -> None:
    for name, text in (("load", "loaded"), ("active", "inactive"), ("enabled", "disabled")):
        (tmp_path / name).write_text(text + "\n")
    tools.add("systemctl", SYSTEMCTL)
    result = done("systemd", name="x", state="started", enabled=True)
    assert result["status"]["ActiveState"] == "active"
    assert (tools.called("start x"), tools.called("enable x")) == (1, 1)
    assert one("systemd", name="x", state="restarted")["changed"]
    assert one("systemd", name="x", state="reloaded", daemon_reload=True)["changed"]
    assert (tools.called("restart x"), tools.called("reload x"), tools.called("daemon-reload")) == (1, 1, 1)
    done("systemd", name="x", state="stopped")
    done("systemd", name="x", masked=True)
    before = tools.log.read_text()
    assert one("systemd", check=True, name="x", masked=False, enabled=False)["changed"]
    assert "disable x" not in tools.log.read_text()[len(before) :]
    (tmp_path / "load").write_text("not-found\n")
    assert "Could not find the requested service" in refused("systemd", name="x", state="started")
    assert one("systemd", check=True, name="x", state="started")["changed"]


def test_a_missing_package_tool_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("rm_steps_base.TOOL_PATH", str(tmp_path))
    assert "This host has no rpm" in refused("dnf", name="x")
    assert "no apt" in refused("apt", name="x")


DNF = """
case "$*" in *--assumeno*) cat <<END
Installing:
 tool        x86_64        1.2-3        repo        10 k
END
exit 1;; esac
"""


def test_dnf_only_downloads_where_it_is_asked_to(tools: Any) -> None:
    tools.add("rpm", "exit 1")
    tools.add("dnf", DNF)
    result = one("dnf", name=["tool"], state="present", download_only=True, download_dir="/srv")
    assert (result["changed"], result["results"]) == (True, ["Downloaded: tool-1.2-3.x86_64"])
    assert tools.called("--downloadonly --downloaddir=/srv install tool") == 2  # the plan, too
    assert tools.called("sslverify") == 0
    one("dnf", name=["tool"], state="present", validate_certs=False)
    assert tools.called("sslverify") == 0  # repositories are checked all the same, as in Ansible
    one("dnf", name=["https://h/tool.rpm"], state="present", validate_certs=False)
    assert tools.called("--setopt=sslverify=False install https://h/tool.rpm") == 2


PIP = """
case "$1" in
  list) cat list.json;;
  install) echo '[{"name": "My_Pkg", "version": "1.2"}]' > list.json;;
  uninstall) echo '[]' > list.json;;
esac
"""


def test_pip(tools: Any, tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text("[]")
    tools.add("pip", PIP)
    args: dict[str, Any] = {"executable": "pip"}
    assert one("pip", name="my.pkg", **args)["changed"]
    kept("pip", name=["my-pkg"], **args)
    kept("pip", name=["my-pkg"], version="1.2", **args)
    assert one("pip", check=True, name=["my-pkg>=1"], **args)["might_run"]
    assert step(1, "pip", name="a>=1,<2, b", **args)["args"]["name"] == ["a>=1,<2", "b"]
    done("pip", name="my_pkg", state="absent", **args)


CRONTAB = 'case "$1" in -l) cat tab;; -) cat > tab;; esac'


def test_cron(tools: Any, tmp_path: Path) -> None:
    (tmp_path / "tab").write_text("# mine\n0 1 * * * /bin/own\n")
    tools.add("crontab", CRONTAB)
    done("cron", name="t", job="/bin/t", hour="3")
    done("cron", name="t", job="/bin/t", hour="4")
    done("cron", name="PATH", job="/bin", env=True)
    mine = "# mine\n0 1 * * * /bin/own\n"
    assert (tmp_path / "tab").read_text() == f'PATH="/bin"\n{mine}#Ansible: t\n* 4 * * * /bin/t\n'
    done("cron", name="t", state="absent")
    kept("cron", name="nobody", state="absent")
    before = (tmp_path / "tab").read_text()
    copy = Path(done("cron", name="u", job="/bin/u", backup=True)["backup_file"])
    assert (copy.read_text(), copy.stat().st_mode & 0o777) == (before, 0o600)
    copy.unlink()
    assert "backup_file" not in kept("cron", name="u", job="/bin/u", backup=True)
    done("cron", name="u", state="absent")
    file = f"{tmp_path}/f"
    done("cron", name="d", job="/bin/d", special_time="daily", cron_file=file, user="root", disabled=True)
    assert Path(file).read_text() == "#Ansible: d\n#@daily root /bin/d\n"
    done("cron", name="d", cron_file=file, state="absent")
    assert not Path(file).exists()
    two = run(step(1, "cron", name="a", job="x"), step(2, "cron", name="a", job="x"), check=True)["results"]
    assert [r["changed"] for r in two] == [True, False]


def test_sysctl_and_fstab(tmp_path: Path) -> None:
    file = tmp_path / "sysctl.conf"
    file.write_text("# head\nvm.a = 1\nvm.b=2\nvm.b=3\n")
    args: dict[str, Any] = {"sysctl_file": str(file), "reload": False}
    kept("sysctl", name="vm.a", value="1", **args)
    done("sysctl", name="vm.b", value="9", **args)
    done("sysctl", name="net/x", value="a  b", **args)
    assert file.read_text() == "# head\nvm.a = 1\nvm.b=9\nnet/x=a b\n"
    done("sysctl", name="vm.a", state="absent", **args)
    assert "no readable setting" in refused("sysctl", name="no.such", value="1", sysctl_set=True, **args)

    fstab = tmp_path / "fstab"
    fstab.write_text("UUID=1 / ext4 defaults 0 1\n")
    where: dict[str, Any] = {"path": f"{tmp_path}/my data", "fstab": str(fstab)}
    source: dict[str, Any] = {"src": "fs:/data", "fstype": "nfs"}
    done("mount", **where, **source, opts="ro", state="present")
    done("mount", **where, **source, opts="rw", state="present", boot=False)
    coded = str(where["path"]).replace(" ", r"\040")
    assert fstab.read_text() == f"UUID=1 / ext4 defaults 0 1\nfs:/data {coded} nfs rw,noauto 0 0\n"
    done("mount", **where, state="absent_from_fstab")
    assert "not mounted" in refused("mount", **where, state="remounted")
    foretold = one("mount", check=True, **where, **source, state="mounted")
    assert foretold["changed"]
    assert not Path(where["path"]).exists()


def test_a_password_never_shows_in_an_argument_list(tools: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("useradd", "usermod"):
        tools.add(name, "true")
    tools.add("chpasswd", "cat > given")
    result = one("user", name="rm-test-nobody", password="$6$salt$hash", groups=["root"], comment="A B")
    assert result["changed"], result
    assert (tools.log.parent / "given").read_text() == "rm-test-nobody:$6$salt$hash\n"
    assert "hash" not in tools.log.read_text() + json.dumps(result)
    foretold = one("user", check=True, name="rm-test-nobody", groups=["root"])
    assert foretold["changed"]
    assert tools.called("useradd") == 1
    assert "no group 'nosuchgroup'" in refused("user", name="rm-test-nobody", group="nosuchgroup")
    kept("user", name="rm-test-nobody", state="absent")


def commit(repository: Path, text: str) -> str:
    def git(*words: str) -> str:
        argv = ["git", "-c", "user.name=x", "-c", "user.email=x@y", *words]
        return subprocess.run(argv, cwd=repository, check=True, capture_output=True, text=True).stdout.strip()

    if not (repository / ".git").exists():
        repository.mkdir()
        git("init", "-q", "-b", "main")
    (repository / "a").write_text(text)
    git("add", "a")
    git("commit", "-qm", text)
    git("tag", f"v{text}")
    return git("rev-parse", "HEAD")


def test_git_clones_into_no_directory_of_somebody_elses(tmp_path: Path) -> None:
    commit(tmp_path / "source", "one")
    (tmp_path / "theirs").mkdir()
    (tmp_path / ".copy.rm-new").symlink_to(tmp_path / "theirs")
    where = {"repo": f"{tmp_path}/source", "dest": f"{tmp_path}/copy"}
    assert "exists" in refused("git", **where)
    assert os.listdir(tmp_path / "theirs") == []


def test_git(tmp_path: Path) -> None:
    one_, repository = commit(tmp_path / "repo", "1"), tmp_path / "repo"
    where: dict[str, Any] = {"repo": str(repository), "dest": f"{tmp_path}/co"}
    assert done("git", **where)["after"] == one_
    two = commit(repository, "2")
    foretold = one("git", check=True, **where)
    assert (foretold["changed"], foretold["after"]) == (True, two)
    assert (tmp_path / "co/a").read_text() == "1"
    kept("git", **where, update=False)
    assert done("git", **where)["before"] == one_
    assert done("git", **where, version="v1")["after"] == one_
    assert done("git", **where, version=two)["after"] == two
    (tmp_path / "co/a").write_text("dirty")
    assert "Local modifications" in refused("git", **where)
    done("git", **where, force=True)
    assert (tmp_path / "co/a").read_text() == "2"
    assert "no branch, tag or commit" in refused("git", **where, version="nope")
    assert "cannot be read" in refused("git", repo=f"{tmp_path}/none", dest=f"{tmp_path}/x")
    (tmp_path / "full/x").mkdir(parents=True)
    assert "not empty" in refused("git", repo=str(repository), dest=f"{tmp_path}/full")
    assert sorted(os.listdir(tmp_path)) == ["co", "full", "repo"]


class Answers(BaseHTTPRequestHandler):
    def __init__(self, asked: list[Any], *args: Any) -> None:
        self.asked = asked
        super().__init__(*args)

    def do_GET(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        self.asked.append((self.command, self.path, dict(self.headers), self.rfile.read(length).decode()))
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/file.txt")
            self.end_headers()
            return
        found = {"/file.txt": b"hello\n", "/j": b'{"a": [1]}'}.get(self.path)
        self.send_response(200 if found is not None else 404)
        self.send_header("Content-Type", "application/json" if self.path == "/j" else "text/plain")
        self.send_header("Content-Length", str(len(found or b"")))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(found or b"")

    do_HEAD = do_POST = do_GET

    def log_message(self, *args: Any) -> None: ...


@pytest.fixture
def web() -> Iterator[Any]:
    asked: list[Any] = []
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Answers, asked)) as server:
        thread = threading.Thread(target=partial(server.serve_forever, 0.01))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()
        thread.join()


SUM = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"


def test_get_url(web: Any, tmp_path: Path) -> None:
    base, asked = web
    path = tmp_path / "f"
    done("get_url", url=f"{base}/file.txt", dest=str(path), mode="0600", checksum=f"sha256:{SUM}")
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("hello\n", 0o600)
    path.write_text("old\n")
    kept("get_url", url=f"{base}/file.txt", dest=str(path))
    done("get_url", url=f"{base}/file.txt", dest=f"{tmp_path}/usual")
    (tmp_path / "like").touch()
    assert (tmp_path / "usual").stat().st_mode == (tmp_path / "like").stat().st_mode
    foretold = one("get_url", check=True, url=f"{base}/file.txt", dest=str(path), force=True)
    assert (foretold["changed"], path.read_text()) == (True, "old\n")
    done("get_url", url=f"{base}/file.txt", dest=str(path), force=True)
    wrong = refused("get_url", url=f"{base}/file.txt", dest=f"{tmp_path}/g", checksum="sha256:" + "0" * 64)
    assert "checksum" in wrong
    assert "Request failed" in refused("get_url", url=f"{base}/none", dest=f"{tmp_path}/g")
    assert "Request failed" in refused("get_url", check=True, url=f"{base}/none", dest=f"{tmp_path}/g")
    assert sorted(os.listdir(tmp_path)) == ["f", "like", "usual"]
    one("get_url", url=f"{base}/file.txt", dest=f"{tmp_path}/h", url_username="u", url_password="p",
        force_basic_auth=True, headers={"X-Own": "1"})  # fmt: skip
    assert (asked[-1][2]["Authorization"], asked[-1][2]["X-Own"]) == ("Basic dTpw", "1")


def test_apt_installs_a_package_from_the_web(web: Any, tools: Any) -> None:
    tools.add("dpkg-deb", "printf 'Package: lamp\\nVersion: 1\\nArchitecture: all\\n'; cat $2 >&2")
    tools.add("dpkg-query", "exit 1")
    tools.add("apt-cache", "")
    # as apt-get does: a file's name says what it is
    tools.add(
        "apt-get", 'for last; do :; done; case $last in *.deb) grep -q hello "$last";; *) exit 100;; esac'
    )
    result = one("apt", deb=f"{web[0]}/file.txt")
    assert result["changed"], result
    (path,) = re.findall(r"install (\S+)", tools.log.read_text())
    assert not os.path.exists(path)
    assert "Request failed" in refused("apt", deb=f"{web[0]}/none")


STATUS = """Package: lamp
Status: install ok installed
Architecture: all
Version: 1:2-3
Description: light
 Package: bulb

Package: bulb
Status: hold ok config-files
Architecture: amd64
Version: 4
"""


def test_apt_finds_in_dpkgs_own_file_what_is_installed(
    tools: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "status").write_text(STATUS)
    (tmp_path / "updates").mkdir()
    monkeypatch.setattr("rm_steps_dpkg.STATUS", str(tmp_path / "status"))
    monkeypatch.setattr("rm_steps_dpkg.UPDATES", str(tmp_path / "updates"))
    tools.add("dpkg-query", "printf 'installed\\t9\\tbulb\\tbulb\\tamd64\\n'")
    for name in ("apt-get", "apt-cache"):
        tools.add(name, "exit 1")
    kept("apt", name=["lamp"])
    kept("apt", name=["lamp=1:2-3"])
    assert tools.called("dpkg-query") == 0
    kept("apt", name=["bulb"])  # which the file does not call installed
    kept("apt", name=["bulb=9"])
    asked = tools.called("dpkg-query")
    assert asked >= 2
    (tmp_path / "status").write_text(STATUS.replace("hold ok config-files", "hold ok installed"))
    kept("apt", name=["lamp", "bulb=4"])
    assert tools.called("dpkg-query") == asked
    (tmp_path / "updates" / "0001").touch()  # as dpkg leaves it when it is broken off
    kept("apt", name=["bulb=9"])
    assert tools.called("dpkg-query") > asked


def test_facts_ask_ip_once_for_both_or_twice_where_it_knows_no_batches(tools: Any) -> None:
    both = """case "$*" in
  "-json -batch -") read a; read b; echo "[{\\"$a\\":4}]"; echo "[{\\"$b\\":5}]"; exit $(cat code);;
  *) echo "[{\\"$2\\":6}]";;
esac"""
    tools.add("ip", both)
    (tools.log.parent / "code").write_text("0")
    facts = one("setup")["raw_facts"]
    assert [json.loads(facts[name]) for name in ("addresses", "routes")] == [[{"address": 4}], [{"route": 5}]]
    (tools.log.parent / "code").write_text("1")
    facts = one("setup")["raw_facts"]
    assert [json.loads(facts[name]) for name in ("addresses", "routes")] == [[{"address": 6}], [{"route": 6}]]


def test_uri(web: Any, tmp_path: Path) -> None:
    base, asked = web
    assert kept("uri", url=f"{base}/j")["json"] == {"a": [1]}
    assert kept("uri", url=f"{base}/moved", return_content=True)["content"] == "hello\n"
    assert "404 and not [200]" in refused("uri", url=f"{base}/none")
    kept("uri", url=f"{base}/none", status_code=[200, 404])
    port = Kept()  # where nobody listens
    assert "Request failed" in refused("uri", url=f"http://127.0.0.1:{port.number}/")
    assert kept("uri", url=f"http://127.0.0.1:{port.number}/", status_code=[200, -1])["status"] == -1
    port.close()
    kept("uri", url=f"{base}/j", method="post", body={"x": 1}, body_format="json")
    assert (asked[-1][0], asked[-1][3]) == ("POST", '{"x": 1}')
    kept("uri", url=f"{base}/j", method="POST", body={"a": "b c"}, body_format="form-urlencoded")
    assert asked[-1][3] == "a=b+c"
    assert one("uri", url=f"{base}/j", dest=f"{tmp_path}/j")["changed"]
    assert one("uri", url=f"{base}/j", dest=f"{tmp_path}/j")["changed"]  # Ansible says so of what came again
    (tmp_path / "body").write_text("of the host")
    kept("uri", url=f"{base}/j", method="POST", src=f"{tmp_path}/body", remote_src=True)
    assert asked[-1][3] == "of the host"
    kept(
        "uri",
        url=f"{base}/j",
        method="POST",
        body={"a": None, "b": ["c", "d"]},
        body_format="form-urlencoded",
    )
    assert asked[-1][3] == "b=c&b=d"
    kept("uri", url=f"{base}/j", method="POST", body_format="json")
    assert asked[-1][3] == "null"
    assert one("uri", check=True, url=f"{base}/j")["might_run"]
    assert one("uri", url="http://127.0.0.1:1/")["failed"]


def test_wait_for_text_and_ports(web: Any, tmp_path: Path) -> None:
    port = int(web[0].rpartition(":")[2])
    kept("wait_for", port=port, timeout=60)
    assert "Timeout" in refused("wait_for", port=port, state="stopped", timeout=0)
    (tmp_path / "log").write_text("started pid=42\n")
    found = kept("wait_for", path=f"{tmp_path}/log", search_regex=r"pid=(\d+)", timeout=0)
    assert found["match_groups"] == ["42"]
    assert refused("wait_for", path=f"{tmp_path}/log", search_regex="never", timeout=0, msg="mine") == "mine"
    assert one("wait_for", check=True, port=1)["might_run"]
    kept("wait_for", port=1, state="drained", timeout=0)


def test_facts_of_packages_services_and_accounts() -> None:
    assert kept("getent", database="passwd", key="root")["ansible_facts"]["getent_passwd"]["root"][1] == "0"
    missing = kept("getent", database="group", key="no-such-group", fail_key=False)["ansible_facts"]
    assert missing == {"getent_group": {"no-such-group": None}}
    assert "no-such-user" in refused("getent", database="passwd", key="no-such-user")
    assert isinstance(kept("service_facts")["ansible_facts"]["services"], dict)


def test_burn_in_measures_and_leaves_nothing(tmp_path: Path) -> None:
    args: dict[str, Any] = {"seconds": 1, "memory_mb": 64, "disk_mb": 8, "disk_path": str(tmp_path)}
    assert one("rm_burn_in", check=True, **args)["might_run"]
    found = one("rm_burn_in", tests=["memory", "disk"], **args)
    assert not found["failed"], found["msg"]
    assert found["memory"]["passes"] >= 1
    assert found["disk"]["bytes"] == 8 << 20
    assert os.listdir(tmp_path) == []
    slow = one("rm_burn_in", tests=["disk"], **args, min_disk_write_mbps=10_000_000)
    assert slow["failed"]
    assert "less than 10000000" in slow["msg"]


def test_the_memory_test_of_burn_in_ends_before_others_when_memory_runs_out() -> None:
    with ThreadPoolExecutor(1) as pool:
        before = set(children())
        running = pool.submit(one, "rm_burn_in", tests=["memory"], seconds=1, memory_mb=64)
        until(lambda: running.done() or any(map(ends_first, set(children()) - before)), "the test began")
        assert not running.done()
        assert not running.result()["failed"]


def children() -> list[str]:
    """Of all threads of this process."""
    found = glob.glob("/proc/self/task/*/children")
    return [pid for path in found for pid in Path(path).read_text().split()]


def ends_first(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/oom_score_adj").read_text() == "1000\n"
    except OSError:  # it has ended
        return False


def nvidia_smi(**told: object) -> str:
    """A driver with one GPU, whose columns are those that rm_gpus.py asks for."""
    gpu = {"index": 0, "uuid": "GPU-1", "model": "H100", "mem_bytes": 81559, "bus": "00000000:3B:00.0"}
    gpu |= {"link_width_max": 16, **told}
    return f"echo '{', '.join(str(gpu.get(name, '[N/A]')) for name in rm_gpus.FIELDS)}'"


def test_burn_in_looks_at_gpus(tools: Any) -> None:
    tools.add("nvidia-smi", nvidia_smi(ecc_uncorrected=0, link_width=16))
    found = one("rm_burn_in", tests=["gpu"], expect_gpus=1)
    assert (found["failed"], found["gpu"]["gpus"][0]["uuid"]) == (False, "GPU-1")
    assert "1 GPUs answer, 8 should" in one("rm_burn_in", tests=["gpu"], expect_gpus=8)["msg"]
    tools.add("nvidia-smi", nvidia_smi(ecc_uncorrected=3, link_width=8))
    said = one("rm_burn_in", tests=["gpu"])["msg"]
    assert "3 uncorrected memory errors" in said
    assert "x8 of x16" in said
