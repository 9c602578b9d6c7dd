"""Where packages come from, files of sections, and kernel modules, with tools of the test's."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rm.playbook.model.problems import BadArgument
from tests.steps_request import done, kept, one, refused, run, step

Tool = Callable[[str, str], Path]


# -- files of sections --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "given", "after", "says"),
    [
        ("[a]\nx = 1\n", {"section": "a", "option": "x", "value": "2"}, "[a]\nx = 2\n", "option changed"),
        ("[a]\n#x = 1\n", {"section": "a", "option": "x", "value": "2"}, "[a]\nx = 2\n", "option changed"),
        ("[a]\n\n# end\n", {"section": "a", "option": "x", "value": "2"}, "[a]\nx = 2\n\n# end\n",
         "option added"),
        ("[a]\n", {"section": "b", "option": "x", "value": "1", "no_extra_spaces": True}, "[a]\n[b]\nx=1\n",
         "section and option added"),
        (None, {"section": "b", "option": "x", "value": "1"}, "\n[b]\nx = 1\n", "section and option added"),
        ("top=1\n[a]\n", {"option": "top", "value": "2"}, "top = 2\n[a]\n", "option changed"),
        ("[a]\nx = 1\nx = 2\n", {"section": "a", "option": "x", "values": ["2", "3"]}, "[a]\nx = 3\nx = 2\n",
         "option changed"),
        ("[a]\nx = 1\n", {"section": "a", "option": "x", "values": ["2"], "exclusive": False},
         "[a]\nx = 1\nx = 2\n", "option added"),
        ("[a]\nx = 1\n[b]\n", {"section": "a", "state": "absent"}, "[b]\n", "section removed"),
        ("[a]\nx = 1\n#x = 2\n", {"section": "a", "option": "x", "state": "absent"}, "[a]\n#x = 2\n",
         "option changed"),
        ("[a]\nn = 1\n[a]\nn = 2\n",
         {"section": "a", "section_has_values": [{"option": "n", "value": "2"}], "option": "x", "value": "y"},
         "[a]\nn = 1\n[a]\nn = 2\nx = y\n", "option added"),
        ("[a]\n", {"section": "a", "option": "flag", "allow_no_value": True}, "[a]\nflag\n", "option added"),
    ],
)  # fmt: skip
def test_ini_file(tmp_path: Path, before: str | None, given: dict[str, Any], after: str, says: str) -> None:
    path = tmp_path / "f.ini"
    if before is not None:
        path.write_text(before)
    assert done("ini_file", path=str(path), **given)["msg"] == says
    assert path.read_text() == after


def test_ini_file_keeps_what_says_the_same(tmp_path: Path) -> None:
    path = tmp_path / "f.ini"
    path.write_text("[a]\nx=1\n")
    kept("ini_file", path=str(path), section="a", option="x", value="1", ignore_spaces=True)
    missing = {"path": f"{tmp_path}/no", "section": "a", "option": "x", "value": "1", "create": False}
    assert "does not exist" in refused("ini_file", **missing)
    with pytest.raises(BadArgument, match="'value' or 'values'"):
        step(1, "ini_file", path="/x", section="a", option="b")


def test_yum_repository(tmp_path: Path) -> None:
    given = {"name": "epel", "description": "Extra", "reposdir": str(tmp_path), "gpgcheck": True,
             "baseurl": ["http://a", "http://b"], "exclude": "x*,y", "mode": "0600"}  # fmt: skip
    assert done("yum_repository", **given)["repo"] == "epel"
    path = tmp_path / "epel.repo"
    text = "[epel]\nbaseurl = http://a\n\thttp://b\nexclude = x* y\ngpgcheck = 1\nname = Extra\n\n"
    assert (path.read_text(), path.stat().st_mode & 0o777) == (text, 0o600)
    done("yum_repository", **{**given, "file": "epel", "name": "other"})
    done("yum_repository", name="epel", file="epel", state="absent", reposdir=str(tmp_path))
    assert path.read_text().startswith("[other]")
    done("yum_repository", name="other", file="epel", state="absent", reposdir=str(tmp_path))
    assert not path.exists()
    with pytest.raises(BadArgument, match="baseurl"):
        step(1, "yum_repository", name="x", description="y")


# -- apt ----------------------------------------------------------------------------------------


@pytest.fixture
def apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that stands for /etc/apt."""
    import rm_steps_apt_sources

    folder = tmp_path / "apt"
    (folder / "sources.list.d").mkdir(parents=True)
    for name, path in (("SOURCES", "sources.list"), ("PARTS", "sources.list.d"), ("KEYRINGS", "keyrings")):
        monkeypatch.setattr(rm_steps_apt_sources, name, str(folder / path))
    return folder


def test_apt_repository(apt: Path, tool: Tool) -> None:
    asked = tool("apt-get", "true")
    (apt / "sources.list").write_text("# deb http://x y main # mine\ndeb  http://z   y main\n")
    kept("apt_repository", repo="deb http://z y main")
    line = "deb [signed-by=/k] https://user:pw@deb.example.com/debian stable main"
    result = done("apt_repository", repo=line, mode="0600")
    path = apt / "sources.list.d/deb_example_com_debian.list"
    assert result["sources_added"] == [str(path)]
    assert (path.read_text(), path.stat().st_mode & 0o777) == (line + "\n", 0o600)
    assert len(asked.read_text().splitlines()) == 1
    done("apt_repository", repo="deb http://x y main", update_cache=False)
    assert (apt / "sources.list").read_text() == "deb http://x y main # mine\ndeb http://z y main\n"
    done("apt_repository", repo="deb http://new y", filename="mine", update_cache=False)
    assert (apt / "sources.list.d/mine.list").exists()
    assert done("apt_repository", repo=line, state="absent")["sources_removed"] == [str(path)]
    assert not path.exists()
    two = [step(n, "apt_repository", repo="deb http://twice y", update_cache=False) for n in (1, 2)]
    assert [one["changed"] for one in run(*two, check=True)["results"]] == [True, False]
    with pytest.raises(BadArgument, match="neither a line"):
        step(1, "apt_repository", repo="http://x y main")


def test_a_repository_whose_lists_cannot_be_fetched_is_taken_back(apt: Path, tool: Tool) -> None:
    tool("apt-get", "echo no such host >&2; exit 100")
    (apt / "sources.list").write_text("# deb http://x y main\n")
    given = {"update_cache_retries": 2, "update_cache_retry_max_delay": 0}
    said = one("apt_repository", repo="deb http://y z main", **given)["msg"]
    assert "after 2 retries: no such host" in said
    assert not list((apt / "sources.list.d").iterdir())
    assert one("apt_repository", repo="deb http://x y main", **given)["failed"]
    assert (apt / "sources.list").read_text() == "# deb http://x y main\n"


def test_deb822_repository(apt: Path, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("-----BEGIN PGP PUBLIC KEY BLOCK-----\n")
    given = {"name": "My Site_1", "types": "deb", "uris": "https://x", "suites": ["stable"], "enabled": True,
             "components": ["main", "extra"]}  # fmt: skip
    result = done("deb822_repository", signed_by=f"file://{key}", **given)
    path, ring = apt / "sources.list.d/my-site-1.sources", apt / "keyrings/my-site-1.asc"
    assert (result["dest"], result["key_filename"]) == (str(path), str(ring))
    assert path.read_text() == (
        "Components: main extra\nEnabled: yes\nX-Repolib-Name: My Site_1\n"
        f"Signed-By: {ring}\nSuites: stable\nTypes: deb\nURIs: https://x\n"
    )
    done("deb822_repository", signed_by="-----BEGIN\n\nabc\n", **given)
    assert "Signed-By:\n    -----BEGIN\n    .\n    abc\n" in path.read_text()
    done("deb822_repository", name="My Site_1", state="absent")
    assert not path.exists()
    assert not ring.exists()


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, str]:
    """A key of gpg's own, armoured, and its fingerprint."""
    if not shutil.which("gpg"):
        pytest.skip("needs gpg")
    home = tmp_path_factory.mktemp("gpg")
    home.chmod(0o700)

    def gpg(*words: str) -> bytes:
        argv = ["gpg", "--homedir", str(home), "--batch", "--passphrase", "", *words]
        return subprocess.run(argv, check=True, capture_output=True, timeout=60).stdout

    gpg("--quick-generate-key", "rm test <rm@example.com>", "ed25519", "sign", "never")
    rows = gpg("--list-keys", "--with-colons").decode().splitlines()
    mark = next(row.split(":")[9] for row in rows if row.startswith("fpr"))
    armoured = gpg("--armor", "--export")
    subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"], check=False, timeout=60)
    return armoured, mark


APT_KEY = """
for word in "$@"; do last=$word; done
case "$*" in
  *list-public-keys*) [ -f ring ] && cat ring; true;;
  *" add -"|"add -") cat > added; echo "pub:u:255:22:ID:1::::::" | sed "s/ID/$(cat id)/" > ring;;
  *del*) rm -f ring;;
esac
"""


def test_apt_key(tool: Tool, tmp_path: Path, key: tuple[bytes, str]) -> None:
    armoured, mark = key
    (tmp_path / "id").write_text(mark[-16:])
    (tmp_path / "key.asc").write_bytes(armoured)
    log = tool("apt-key", APT_KEY)
    result = done("apt_key", file=f"{tmp_path}/key.asc", keyring="/ring.gpg")
    assert (result["fp"], result["short_id"], result["before"]) == (mark[-16:], mark[-8:], [])
    assert (tmp_path / "added").read_bytes() == armoured
    assert "--keyring /ring.gpg add -" in log.read_text()
    kept("apt_key", data=armoured.decode())
    kept("apt_key", url=f"file://{tmp_path}/key.asc", id=f"0x{mark[-8:]}")
    done("apt_key", id=mark, state="absent")
    assert f"del {mark[-8:]}" in log.read_text()
    with pytest.raises(BadArgument, match="hexadecimal"):
        step(1, "apt_key", id="12", url="http://x")


RPM = """
case "$*" in
  -q*) [ -f ring ] && cat ring;;
  --import*) cp "$2" ring;;
  --erase*) rm ring;;
esac
"""


def test_rpm_key(tool: Tool, tmp_path: Path, key: tuple[bytes, str]) -> None:
    armoured, mark = key
    path = tmp_path / "key.asc"
    path.write_bytes(armoured)
    log = tool("rpm", RPM)
    assert "does not match" in refused("rpm_key", key=str(path), fingerprint="AB CD")
    done("rpm_key", key=str(path), fingerprint=mark.lower())
    kept("rpm_key", key=f"file://{path}")
    kept("rpm_key", key=f"0x{mark[-16:]}")
    done("rpm_key", key=mark[-16:], state="absent")
    assert f"--erase --allmatches gpg-pubkey-{mark[-8:].lower()}" in log.read_text()
    assert "Not a valid key" in refused("rpm_key", key="/no/such/key")


# -- the kernel ---------------------------------------------------------------------------------


def test_modprobe(tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import rm_steps_modprobe

    loads, options, loaded = tmp_path / "load", tmp_path / "options", tmp_path / "modules"
    loads.mkdir()
    options.mkdir()
    loaded.write_text("dummy 1 0 - Live\n")
    monkeypatch.setattr(rm_steps_modprobe, "LOADS", str(loads))
    monkeypatch.setattr(rm_steps_modprobe, "OPTIONS", str(options))
    monkeypatch.setattr(rm_steps_modprobe, "LOADED", str(loaded))
    (options / "old.conf").write_text("options br_netfilter a=1\n")
    script = """case "$1" in -n) ;; -r) echo dummy > modules;; *) echo br_netfilter 1 0 >> modules;; esac"""
    log = tool("modprobe", script)
    done("modprobe", name="br-netfilter", params="a=2")
    assert "br-netfilter a=2" in log.read_text()
    done("modprobe", name="br_netfilter", params="a=2", persistent="present")
    assert (loads / "br_netfilter.conf").read_text() == "br_netfilter\n"
    assert (options / "br_netfilter.conf").read_text() == "options br_netfilter a=2\n"
    assert (options / "old.conf").read_text() == "#options br_netfilter a=1\n"
    done("modprobe", name="br_netfilter", state="absent", persistent="absent")
    assert (loads / "br_netfilter.conf").read_text() == "#br_netfilter\n"
    tool("modprobe", "echo 'FATAL: Module x not found.' >&2; exit 1")
    assert "not found" in refused("modprobe", name="x")


# -- choices that the host's tools keep ---------------------------------------------------------


def test_alternatives(tool: Tool, tmp_path: Path) -> None:
    real = shutil.which("update-alternatives")
    if real is None:
        pytest.skip("needs update-alternatives")
    places = [f"--{name} {tmp_path}/{name}" for name in ("altdir", "admindir", "log")]
    for name in ("altdir", "admindir", "link"):
        (tmp_path / name).mkdir()
    tool("update-alternatives", f'exec {real} {" ".join(places)} "$@"')
    for name in ("one", "two", "one.1"):
        (tmp_path / name).write_text("")
    given = {"name": "editor", "path": f"{tmp_path}/one"}
    assert "missing the link" in refused("alternatives", **given)
    done("alternatives", link=f"{tmp_path}/link/editor", state="present", priority=10, **given)
    done("alternatives", name="editor", path=f"{tmp_path}/two", link=f"{tmp_path}/link/editor", priority=5)
    assert (tmp_path / "link/editor").resolve() == tmp_path / "two"
    slave = {"name": "editor.1", "path": f"{tmp_path}/one.1", "link": f"{tmp_path}/link/editor.1"}
    done("alternatives", priority=20, subcommands=[slave], state="auto", **given)
    assert (tmp_path / "link/editor.1").resolve() == tmp_path / "one.1"
    done("alternatives", state="absent", **given)
    assert "does not exist" in refused("alternatives", name="editor", path=f"{tmp_path}/no", link="/x")
    two = [step(n, "alternatives", link=f"{tmp_path}/link/editor", **given) for n in (1, 2)]
    assert [one["changed"] for one in run(*two, check=True)["results"]] == [True, False]


def test_debconf(tool: Tool, tmp_path: Path) -> None:
    tool("debconf-show", "cat shown 2>/dev/null; true")
    log = tool("debconf-set-selections", 'cat > set; read p q k v < set; echo "* $q: $v" > shown')
    done("debconf", name="locales", question="locales/default", vtype="select", value="C.UTF-8")
    assert (tmp_path / "set").read_text() == "locales locales/default select C.UTF-8\n"
    done("debconf", name="x", question="x/yes", vtype="boolean", value=True, unseen=True)
    assert log.read_text().splitlines()[-1] == "-u"
    done("debconf", name="x", question="x/many", vtype="multiselect", value=["b", "a"])
    assert kept("debconf", name="x")["current"] == {"x/many": "a, b"}
    with pytest.raises(BadArgument, match="go together"):
        step(1, "debconf", name="x", question="y")


def test_assemble_of_a_local_directory_whose_name_is_a_pattern(tmp_path: Path) -> None:
    parts, target = tmp_path / "conf[1].d", tmp_path / "whole"
    parts.mkdir()
    (parts / "1").write_text("one\n")
    done("assemble", src=str(parts), dest=str(target), remote_src=False)
    assert target.read_text() == "one\n"


def test_assemble(tmp_path: Path) -> None:
    parts = tmp_path / "parts"
    parts.mkdir()
    for name, text in (("2-b", "b"), ("1-a", "a\n"), (".hidden", "h\n"), ("3-c", "")):
        (parts / name).write_text(text)
    given = {"src": str(parts), "dest": f"{tmp_path}/whole", "mode": "0600"}
    assert done("assemble", **given)["msg"] == "OK"
    assert (tmp_path / "whole").read_text() == "h\na\nb\n"
    done("assemble", delimiter=r"# \x41", regexp="^[12]", **given)
    assert (tmp_path / "whole").read_text() == "a\n# A\nb"
    done("assemble", ignore_hidden=True, **given)
    assert (tmp_path / "whole").read_text() == "a\nb\n"
    kept("assemble", remote_src=False, ignore_hidden=True, **given)
    assert "does not exist" in refused("assemble", src=f"{tmp_path}/no", dest="/x")


FIREWALL = """
side=run; [ "$1" = --permanent ] && side=perm && shift
case "$1" in
  --state) exit 0;;
  --get-default-zone) echo public; exit;;
  --get-zones) cat zones; exit;;
  --new-zone=*) echo "${1#*=}" >> zones; exit;;
esac
zone=public; case "$1" in --zone=*) zone=${1#*=}; shift;; esac
verb=${1#--}; verb=${verb%%-*}; what=${1#--*-}
case "$verb" in
  query) touch "$side.$zone"; grep -qx "$what" "$side.$zone";;
  add|change) echo "$what" >> "$side.$zone";;
  remove) grep -vx "$what" "$side.$zone" > new; mv new "$side.$zone";;
  get) cat "target.$zone" 2>/dev/null || echo default;;
  set) echo "${what#*=}" > "target.$zone";;
esac
"""


def test_firewalld(tool: Tool, tmp_path: Path) -> None:
    (tmp_path / "zones").write_text("public\n")
    log = tool("firewall-cmd", FIREWALL)
    result = done("firewalld", service="http", state="enabled", permanent=True, immediate=True)
    both = "Permanent and Non-Permanent(immediate) operation, Changed service http to enabled"
    assert result["msg"] == both
    assert "--permanent --add-service=http" in log.read_text()
    (tmp_path / "run.public").write_text("")
    done("firewalld", service="http", state="enabled", permanent=True, immediate=True)
    done("firewalld", port="80-90/tcp", zone="internal", state="enabled", timeout=60)
    assert "--zone=internal --add-port=80-90/tcp --timeout=60" in log.read_text()
    assert done("firewalld", masquerade=True, state="enabled", permanent=True)["msg"].endswith(
        "masquerade to zone public"
    )
    kept("firewalld", masquerade=False, state="disabled", permanent=True)
    done("firewalld", masquerade=False, state="enabled", permanent=True)
    forward = {"port": 80, "proto": "tcp", "toport": 8080, "toaddr": "10.0.0.1"}
    done("firewalld", port_forward=[forward], state="enabled")
    assert "--add-forward-port=port=80:proto=tcp:toport=8080:toaddr=10.0.0.1" in log.read_text()
    said = done("firewalld", interface="eth1", zone="trusted", state="enabled", permanent=True)["msg"]
    assert said == "Permanent operation, Changed eth1 to zone trusted"
    done("firewalld", zone="custom", state="present", permanent=True)
    done("firewalld", zone="custom", target="DROP", state="enabled", permanent=True)
    done("firewalld", zone="custom", target="DROP", state="disabled", permanent=True)
    for given, says in (
        ({"port": "80", "state": "enabled"}, "write 80/tcp"),
        ({"service": "a", "port": "1/tcp", "state": "enabled"}, "only one of"),
        ({"service": "a", "state": "present"}, "disabled or enabled"),
        ({"zone": "a", "state": "present"}, "permanent: true"),
        ({"interface": "a", "state": "enabled"}, "needs 'zone'"),
    ):
        with pytest.raises(BadArgument, match=says):
            step(1, "firewalld", **given)
    tool("firewall-cmd", "exit 252")
    assert "not currently running" in refused("firewalld", service="http", state="enabled")
    tool("firewall-offline-cmd", FIREWALL)
    offline = one("firewalld", service="dns", state="enabled", permanent=True, offline=True)
    assert offline["msg"].endswith("(offline operation: only on-disk configs were altered)")
