"""[fence] of rm.toml on its way to the hosts, and what they say of themselves on the way back."""

from __future__ import annotations

import pwd
import sys

import msgspec
import pytest

from rm.config import FenceConfig
from rm.daemon.execution.agent_news import up_event
from rm.daemon.execution.fence import Ids, fence_of, limit_of
from rm.errors import ConfigError
from rm.protocol.attempts import Fence
from rm.protocol.hosts import Gpu, HostFacts
from rm.protocol.notifications import Enforced, Features, Hello
from tests.agent_process import AGENTS


def test_defaults_are_the_same_in_rm_toml_on_the_wire_and_on_hosts() -> None:
    sys.path.insert(0, str(AGENTS))
    try:
        from rm_fence import SETTINGS, checked_settings
        from rm_fence_limits import ITEMS
    finally:
        sys.path.remove(str(AGENTS))
    assert msgspec.structs.asdict(fence_of(FenceConfig())) == SETTINGS
    assert msgspec.json.encode(Fence()) == b"{}"
    ours = {
        key: value
        for key, value in msgspec.structs.asdict(FenceConfig()).items()
        if key not in ("check_ids", "limits")
    }
    assert ours == {key: value for key, value in SETTINGS.items() if key != "limits"}
    # and whatever can be written arrives
    config = FenceConfig(
        gpus=False, cpus="limit", processes=0, private_tmp="/local", private_ipc=False, login_limits=False,
        no_new_privs=True, seccomp=True, unenforced="refuse",
        limits=tuple(f"{item}=1:2" for item in sorted(set(ITEMS) - {"nice"})),
    )  # fmt: skip
    sent = msgspec.json.decode(msgspec.json.encode(fence_of(config)))
    assert checked_settings(sent) == sent


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("nofile=1048576", ("nofile", 1048576, 1048576)),
        ("core=0:unlimited", ("core", 0, -1)),
        ("memlock = unlimited", ("memlock", -1, -1)),
        ("stack=8192", ("stack", 8 << 20, 8 << 20)),
        ("cpu=10", ("cpu", 600, 600)),
    ],
)
def test_a_limit(text: str, wanted: tuple[str, int, int]) -> None:
    assert limit_of(text) == wanted


@pytest.mark.parametrize(
    "text", ["", "nofile", "nofile=", "nofile=many", "files=1", "nofile=-1", "nofile=1:2:3"]
)
def test_what_is_no_limit(text: str) -> None:
    with pytest.raises(ConfigError, match=r"fence\.limits"):
        limit_of(text)


def test_a_directory_for_jobs_is_absolute() -> None:
    with pytest.raises(ConfigError, match="private_tmp"):
        fence_of(FenceConfig(private_tmp="tmp"))


def test_ids_are_looked_up_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    ids = Ids(lambda: now[0])
    account = pwd.getpwnam("daemon")  # who is on every machine
    assert ids(account.pw_name) == (account.pw_uid, account.pw_gid)
    assert ids("no-such-user-here") is None
    asked: list[str] = []
    monkeypatch.setattr(pwd, "getpwnam", lambda name: asked.append(name) or account)
    ids(account.pw_name)
    assert asked == []
    now[0] += 60
    ids(account.pw_name)
    assert asked == [account.pw_name]


def test_roots_ids_are_not_compared() -> None:
    """In a lab of one user, root of a host has that user's ids, and root of the daemon's side 0."""
    assert Ids()("root") is None


@pytest.mark.parametrize(
    ("enforced", "gpus", "wanted"),
    [
        (Enforced(memory="v2", cpu="v2", pids="v2", gpus="bpf", ipc="namespace"), 1, ()),
        (Enforced(memory="v2", cpu="v2", pids="v2", ipc="namespace"), 0, ()),
        (Enforced(memory="v2", cpu="v2", pids="v2"), 1, ("ipc", "gpus")),
        (Enforced(gpus="cover"), 1, ("memory", "cpus", "processes", "ipc")),
    ],
)
def test_what_a_host_cannot_limit_is_told(enforced: Enforced, gpus: int, wanted: tuple[str, ...]) -> None:
    facts = HostFacts(gpus=[Gpu(index=index) for index in range(gpus)])
    hello = Hello(version="1", protocol=1, features=Features(enforced=enforced))
    assert up_event("h1", facts, hello).unenforced == wanted


@pytest.mark.parametrize(
    ("features", "wanted"),
    [
        (Features(htb=True, nft=True, missing=["netem"]), ()),
        (Features(htb=True, nft=True, missing=["prio", "bpf"]), ("bursts",)),
        (Features(htb=True), ("classes", "bursts")),
        (Features(nft=True), ("classes", "bursts")),
    ],
)
def test_what_a_host_cannot_do_to_traffic_is_told(features: Features, wanted: tuple[str, ...]) -> None:
    hello = Hello(version="1", protocol=1, features=features)
    assert up_event("h1", HostFacts(), hello).unshaped == wanted
