"""SELinux, ufw, time zones and file systems: with the host's own tools on files, or recorded ones."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rm.playbook.model.problems import BadArgument
from tests.steps_request import done, kept, one, refused, step

Tool = Callable[[str, str], Path]


@pytest.fixture
def mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the kernel says whether SELinux is enforced."""
    import rm_steps_selinux

    (tmp_path / "selinuxfs").mkdir()
    monkeypatch.setattr(rm_steps_selinux, "MOUNT", str(tmp_path / "selinuxfs"))
    return tmp_path / "selinuxfs/enforce"


def test_selinux(tool: Tool, mount: Path, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("# head\nSELINUX=enforcing\nSELINUXTYPE=targeted\n")
    mount.write_text("1")
    tool("setenforce", "printf %s $1 > selinuxfs/enforce")
    given = {"policy": "targeted", "configfile": str(config)}
    result = done("selinux", state="permissive", **given)
    assert result["msg"] == (
        "SELinux state changed from 'enforcing' to 'permissive', "
        "Config SELinux state changed from 'enforcing' to 'permissive'"
    )
    assert config.read_text() == "# head\nSELINUX=permissive\nSELINUXTYPE=targeted\n"
    assert mount.read_text() == "0"
    result = done("selinux", state="disabled", configfile=str(config))
    assert result["reboot_required"]
    mount.unlink()
    kept("selinux", state="disabled", configfile=str(config))
    assert "does not exist in /etc/selinux" in refused(
        "selinux", state="enforcing", policy="no-such", configfile=str(config)
    )
    with pytest.raises(BadArgument, match="'policy' is needed"):
        step(1, "selinux", state="enforcing")


def test_selinux_booleans_and_ports(tool: Tool, mount: Path, tmp_path: Path) -> None:
    assert "SELinux is disabled" in refused("seboolean", name="x", state=True)
    mount.write_text("1")
    (tmp_path / "now").write_text("off\n")
    (tmp_path / "ports").write_text("http_port_t  tcp  80, 443, 8000-8010\nssh_port_t  tcp  22\n")
    tool("getsebool", '[ "$1" = httpd_x ] || exit 1; echo "$1 --> $(cat now)"')
    tool(
        "setsebool",
        'for word in "$@"; do last=$word; done; echo $last > now; [ "$1" = -P ] && echo $last > kept; true',
    )
    log = tool(
        "semanage",
        "[ -f kept ] || echo off > kept\n"
        'case "$1 $2" in "boolean -l") echo "httpd_x   (off  ,  $(cat kept))  text";;\n'
        '"port -l") cat ports;; "port -a"|"port -m") echo "$4  tcp  9000" >> ports;;\n'
        '"port -d") grep -v 9000 ports > new; mv new ports;; esac',
    )
    done("seboolean", name="httpd_x", state=True)
    done("seboolean", name="httpd_x", state="yes", persistent=True)
    assert "does not exist" in refused("seboolean", name="none", state=True)
    kept("seport", ports="80,8000-8010", proto="tcp", setype="http_port_t")
    done("seport", ports=9000, proto="tcp", setype="http_port_t")
    assert "port -a -t http_port_t -p tcp 9000" in log.read_text()
    done("seport", ports=["9000"], proto="tcp", setype="http_port_t", state="absent", reload=False)
    assert "port -d -p tcp -N 9000" in log.read_text()
    with pytest.raises(BadArgument, match="neither a port"):
        step(1, "seport", ports="ssh", proto="tcp", setype="x")


UFW = """
dry=; [ "$1" = --dry-run ] && dry=1 && shift
case "$*" in
  "status verbose") echo "Status: $(cat state)"; echo "Logging: on (low)"
     echo "Default: $(cat default) (incoming), allow (outgoing), disabled (routed)";;
  "status numbered") echo '[ 1] 22/tcp ALLOW IN Anywhere'; echo '[ 2] 22/tcp (v6) ALLOW IN Anywhere (v6)';;
  "-f enable") echo active > state;; "-f disable") echo inactive > state;; "-f reload") ;;
  "default "*) echo $2 > default;; logging*) ;;
  *delete*) grep -v ' 80 ' user.rules > new; if [ "$dry" ]; then cat new; else mv new user.rules; fi;;
  *) new='### tuple ### allow tcp 80 0.0.0.0/0 any 0.0.0.0/0 in'
     if grep -q ' 80 ' user.rules; then echo 'Skipping adding existing rule'; exit; fi
     if [ "$dry" ]; then cat user.rules; echo "$new"; else echo "$new" >> user.rules; fi;;
esac
"""


def test_the_log_level_of_an_inactive_firewall_is_not_known(
    tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import rm_steps_ufw

    monkeypatch.setattr(rm_steps_ufw, "RULES", (f"{tmp_path}/user*.rules",))
    tool("ufw", 'echo "Status: inactive"')
    assert one("ufw", logging=False)["changed"]


def test_ufw(tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import rm_steps_ufw

    monkeypatch.setattr(rm_steps_ufw, "RULES", (f"{tmp_path}/user*.rules",))
    for name, text in (("state", "inactive"), ("default", "deny")):
        (tmp_path / name).write_text(text + "\n")
    (tmp_path / "user.rules").write_text("*filter\n### tuple ### allow tcp 22 0.0.0.0/0 any 0.0.0.0/0 in\n")
    log = tool("ufw", UFW)
    done("ufw", state="enabled")
    done("ufw", policy="reject", direction="incoming")
    done("ufw", rule="allow", port=80, proto="tcp", comment="it's web")
    assert "allow from any to any port 80 proto tcp comment it's web" in log.read_text()
    done("ufw", rule="allow", port=80, proto="tcp", delete=True)
    kept("ufw", logging=True)
    assert one("ufw", state="reloaded")["changed"]
    result = one("ufw", rule="deny", src="10.0.0.1", insert=0, insert_relative_to="first-ipv6")
    assert result["commands"] == ["ufw insert 2 deny from 10.0.0.1 to any"]
    for given, says in (
        ({}, "give 'state'"),
        ({"rule": "allow", "if": "eth0"}, "needs 'direction'"),
        ({"rule": "allow", "app": "ssh", "port": "1"}, "does not go with ports"),
        ({"rule": "allow", "direction": "incoming"}, "'in' or 'out'"),
    ):
        with pytest.raises(BadArgument, match=says):
            step(1, "ufw", **given)


def test_timezone(tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import rm_steps_timezone

    zones = tmp_path / "zones"
    (zones / "Europe").mkdir(parents=True)
    for name in ("UTC", "Europe/Berlin"):
        (zones / name).write_text("TZif")
    (tmp_path / "localtime").symlink_to(zones / "UTC")
    (tmp_path / "timezone").write_text("UTC\n")
    for name, path in (("ZONES", "zones"), ("LOCAL", "localtime"), ("NAME", "timezone")):
        monkeypatch.setattr(rm_steps_timezone, name, str(tmp_path / path))
    tool("timedatectl", "echo no bus >&2; exit 1")
    done("timezone", name="Europe/Berlin")
    assert (tmp_path / "localtime").resolve() == zones / "Europe/Berlin"
    assert (tmp_path / "timezone").read_text() == "Europe/Berlin\n"
    assert "not available" in refused("timezone", name="Europe/Nowhere")
    assert "needs timedatectl" in refused("timezone", hwclock="UTC")
    (tmp_path / "zone").write_text("UTC\n")
    (tmp_path / "rtc").write_text("yes\n")
    tool(
        "timedatectl",
        'case "$1" in set-timezone) echo $2 > zone;; set-local-rtc) echo $2 > rtc;;\n'
        '*) echo "       Time zone: $(cat zone) (UTC, +0000)"; echo "  RTC in local TZ: $(cat rtc)";; esac',
    )
    result = done("timezone", name="Europe/Berlin", hwclock="UTC")
    assert result["msg"] == (
        "executed `timedatectl set-timezone Europe/Berlin`\nexecuted `timedatectl set-local-rtc no`"
    )


def test_filesystem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
    needed = ("mkfs.ext4", "blkid", "wipefs", "tune2fs", "resize2fs", "mkswap")
    if missing := [name for name in needed if not shutil.which(name)]:
        pytest.skip(f"needs {missing}")
    disk = tmp_path / "disk"
    disk.write_bytes(b"")
    with disk.open("r+b") as file:
        file.truncate(8 << 20)
    given: dict[str, Any] = {"dev": str(disk)}
    done("filesystem", fstype="ext4", opts="-L 'my data'", **given)
    assert "already used as ext4" in refused("filesystem", fstype="swap", **given)
    with disk.open("r+b") as file:
        file.truncate(16 << 20)
    kept("filesystem", fstype="ext4", **given)
    done("filesystem", fstype="ext4", resizefs=True, **given)
    assert one("filesystem", fstype="swap", force=True, **given)["changed"]
    done("filesystem", state="absent", **given)
    assert "not found" in refused("filesystem", dev="/no/such", fstype="ext4")
    kept("filesystem", dev="/no/such", state="absent")
    with pytest.raises(BadArgument, match="cannot be resized"):
        step(1, "filesystem", dev="/x", fstype="swap", resizefs=True)
