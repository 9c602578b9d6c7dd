"""Configuration: layers, origins, and errors that name file, line and the nearest key."""

import dataclasses
import importlib
import os
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rm import config, paths
from rm.cli.lab import default_directory
from rm.client import kept_ssh
from rm.client.address import Address, find_daemon
from rm.core import registry
from rm.errors import ConfigError
from rm.policies.regulate.controller import ControllerOptions

SHIPPED = Path(__file__).parents[2] / "rm.toml"


def load(tmp_path: Path, text: str = "", **env: str) -> config.Loaded:
    file = tmp_path / "rm.toml"
    file.write_text(text)
    return config.load(env={"HOME": str(tmp_path), "RM_CONFIG": str(file), **env}, euid=1000)


def is_open(key: str) -> bool:
    return key.startswith(tuple(table + "." for table in config.OPEN_TABLES))


def test_the_shipped_file_names_every_key_with_its_default() -> None:
    text = SHIPPED.read_text()
    assert all(f"# [[{table}]]" in text for table in config.LISTED_TABLES)  # none by default
    written = dict(config.flatten(tomllib.loads(text))) | {table: [] for table in config.LISTED_TABLES}
    defaults = {key: list(v) if isinstance(v, tuple) else v for key, v in config.flatten(config.Config())}
    assert {key: value for key, value in written.items() if not is_open(key)} == defaults


def test_the_shipped_file_names_every_option_of_every_policy() -> None:
    tables = tomllib.loads(SHIPPED.read_text())
    expected: dict[str, dict[str, Any]] = {}
    for kind in registry.KINDS:
        for name in registry.names(kind):
            module = importlib.import_module(f"rm.policies.{kind}.{name.replace('-', '_')}")
            if hasattr(module, "OPTIONS"):
                expected.setdefault(kind, {})[name] = dataclasses.asdict(module.OPTIONS())
    assert tables["policies"]["options"] == expected
    assert tables["regulate"] == dataclasses.asdict(ControllerOptions())


def test_the_shipped_file_is_accepted(tmp_path: Path) -> None:
    loaded, bare = load(tmp_path, SHIPPED.read_text()), load(tmp_path)
    assert msgspec.structs.replace(loaded.config, policies=bare.config.policies, regulate={}) == bare.config
    assert loaded.origins["jobs.grace_s"].startswith(f"{tmp_path}/rm.toml:")
    for kind in registry.KINDS:
        name = getattr(loaded.config.policies, kind)
        registry.load(kind, name, config.policy_options(loaded.config, kind, name))


def test_flag_beats_environment_beats_file_beats_default(tmp_path: Path) -> None:
    file = tmp_path / "rm.toml"
    file.write_text("[jobs]\ngrace_s = 5\noutput = 'a'\nrecent_s = 1\n")
    loaded = config.load(
        str(file),
        env={"HOME": "/h", "RM_JOBS__GRACE_S": "7", "RM_JOBS__OUTPUT": "b", "RM_JOB_ID": "3"},
        flags={"jobs.grace_s": 9},
        euid=1000,
    )
    jobs = loaded.config.jobs
    assert (jobs.grace_s, jobs.output, jobs.recent_s, jobs.keep_finished) == (9, "b", 1, 100_000)
    keys = ("jobs.grace_s", "jobs.output", "jobs.recent_s", "jobs.keep_finished")
    assert [loaded.origins[key] for key in keys] == ["--grace-s", "RM_JOBS__OUTPUT", f"{file}:4", "default"]


def test_environment_values_take_the_type_of_their_key(tmp_path: Path) -> None:
    loaded = load(
        tmp_path,
        RM_DAEMON__ADMINS="ann, bob",
        RM_JOBS__ALLOW_ROOT="true",
        RM_DAEMON__SOCKET="/x/7",
        RM_POLICIES__OPTIONS__PLACEMENT__ZONE__W_LOSS="0.5",
    ).config
    assert (loaded.daemon.admins, loaded.jobs.allow_root, loaded.daemon.socket) == (
        ("ann", "bob"),
        True,
        "/x/7",
    )
    assert config.policy_options(loaded, "placement", "zone") == {"w_loss": 0.5}


def test_places_of_root_and_of_users(tmp_path: Path) -> None:
    root = config.load(env={"HOME": "/nowhere"}, euid=0).config
    assert (root.daemon.socket, root.daemon.database) == (
        "/run/rm/rm.sock",
        "sqlite:////var/lib/rm/rm.sqlite3",
    )
    user = load(tmp_path, XDG_RUNTIME_DIR="/run/user/7", XDG_STATE_HOME="/s").config
    assert (user.daemon.socket, user.ssh.known_hosts) == ("/run/user/7/rm/rm.sock", "/s/rm/known_hosts")


@pytest.mark.parametrize("theirs", ["owned by others", "for all to write to"])
def test_no_socket_is_looked_for_where_others_could_put_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, theirs: str
) -> None:
    """As after `su`, which keeps the other user's variable; or with /tmp in it."""
    runtime = tmp_path / "runtime"
    (runtime / "rm" / "ssh").mkdir(parents=True, mode=0o700)
    (runtime / "rm" / "rm.sock").touch()
    runtime.chmod(0o700)
    env = {"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(runtime), "XDG_STATE_HOME": "/s"}
    assert paths.socket_path(env, 7) == f"{runtime}/rm/rm.sock"
    assert kept_ssh.directory(env) == f"{runtime}/rm/ssh"
    if theirs == "owned by others":
        other = os.geteuid() + 1
        monkeypatch.setattr("os.geteuid", lambda: other)
    else:
        runtime.chmod(0o1777)
    assert paths.socket_path(env, 7) == "/s/rm/rm.sock"
    assert not kept_ssh.directory(env).startswith(str(runtime))


@pytest.mark.parametrize("set_to", ["", "/s"])
def test_the_tours_configuration_and_its_lab_agree_on_where_they_are(
    monkeypatch: pytest.MonkeyPatch, set_to: str
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", set_to)
    example = str(SHIPPED.parent / "examples/lab.toml")
    monkeypatch.delenv("RM_DAEMON", raising=False)
    found, lab = config.load_config(example), default_directory()
    assert found.ssh.known_hosts == str(lab / "known_hosts")
    assert found.daemon.state_dir == str(lab.parent / "tour")
    assert find_daemon(None, example) == Address("unix", found.daemon.socket)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "[jobs]\ngrase_s = 3\n",
            r"\[jobs\] has no key 'grase_s' \(.*rm\.toml:2\)\. Did you mean 'grace_s'\?",
        ),
        ("[job]\ngrace_s = 3\n", r"no section \[job\] \(.*rm\.toml:1\)\. Did you mean 'jobs'"),
        ("[jubs]\n", r"no section \[jubs\]"),
        (
            "[jobs]\n\ngrace_s = 'long'\n",
            r"jobs\.grace_s \([^()]*rm\.toml:3\): expected a number, got text\. .*seconds",
        ),
        ("[jobs]\ngrace_s = inf\n", r"jobs\.grace_s \([^()]*rm\.toml:2\): expected a number <= 1"),
        ("\n[daemon]\nsocket = ['a']\n", r"daemon\.socket \([^()]*rm\.toml:3\): expected text, got a list"),
        ("[jobs]\ngrace_s = -1\n", r"jobs\.grace_s .*>= 0"),
        ("[jobs\n", r"rm\.toml:1 is not valid TOML"),
        ("[jobs]\n[ssh]\n[jobs]\n", r"rm\.toml:3 is not valid TOML: \[jobs\] is there twice\."),
        ("[jobs]\ngrace_s = 1\ngrace_s = 2\n", r"rm\.toml:3 is not valid TOML: its key is there twice\."),
        ("jobs = 3\n", r"jobs \(.*rm\.toml:1\) is a section\. Write \[jobs\]"),
        ("[daemon]\n[[jobs]]\n", r"jobs \(.*rm\.toml:2\) is a section\. Write \[jobs\]"),
        ("\ngrace_s = 3\n", r"'grace_s' \(.*rm\.toml:2\) stands in no section\. Put it below \[jobs\]"),
        ("[daemon]\nlog_level = 'loud'\n", r"daemon\.log_level \(.*rm\.toml:2\) is 'loud'\. Use debug"),
        ("[jobs]\nlaunch = 'bath'\n", "'bath' is not one of its words. Did you mean 'batch'"),
        ("[jobs]\ntime_limit = 'soon'\n", r"jobs\.time_limit \(.*rm\.toml:2\): 'soon' is not a time limit"),
        ("[jobs]\nrun_root_as = 'root'\n", "another user"),
        ("[jobs]\nfence = '60'\n", r"jobs\.fence \(.*rm\.toml:2\): '60' is not a duration. Write 60s"),
        ("[jobs]\nfence = '5s'\n", "from 10 s to a day"),
        ("[jobs]\npartition_fences = ['gpu']\n", r"jobs\.partition_fences \(.*rm\.toml:2\) has 'gpu'"),
        ("[jobs]\npartition_fences = ['=60s']\n", r"jobs\.partition_fences \(.*rm\.toml:2\) has '=60s'"),
        ("[fabric]\nspines = 2\nuplink_mbps = 100\ndscp = [3]\n", "one code point for each spine"),
        ("[fabric]\nspines = 2\nuplink_mbps = 100\ndscp = [3, 3]\n", "all different"),
        ("[fabric]\nspines = 1\nuplink_mbps = 100\ndscp = [64]\n", r"fabric\.dscp.*<= 63"),
        (f"[daemon]\nsocket = '/{'x' * 200}'\n", "107 bytes"),
        ('[playbooks]\nvault_password_file = "vault.txt"', "absolute path of a file"),
        ('[playbooks]\ndirectory = "playbooks"', "absolute path of a folder"),
    ],
)
def test_mistakes_are_named_with_their_place(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        load(tmp_path, text)


def test_a_file_that_is_not_utf_8_is_named_with_its_line_for_the_daemon_and_its_clients(
    tmp_path: Path,
) -> None:
    file = tmp_path / "rm.toml"
    file.write_bytes("[jobs]\n# Größe\n".encode("latin-1"))
    for read in (config.load_config, lambda path: find_daemon(None, path)):
        with pytest.raises(ConfigError, match=r"rm\.toml:2 is not UTF-8 text: there is the byte 0xF6\."):
            read(str(file))
    file.write_bytes(b"\xef\xbb\xbf[daemon]\r\nsocket = '/run/x.sock'\r\n")  # as editors of Windows write it
    assert config.load_config(str(file)).daemon.socket == "/run/x.sock"
    assert find_daemon(None, str(file)) == Address("unix", "/run/x.sock")


def test_mistakes_in_the_environment_and_missing_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="RM_JOBS__GRACES"):
        load(tmp_path, RM_JOBS__GRACES="1")
    with pytest.raises(ConfigError, match="RM_JOBS__GRACE_S='a b'"):
        load(tmp_path, RM_JOBS__GRACE_S="a b")
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        config.load(str(tmp_path / "none.toml"), env={}, euid=1000)


@dataclass(frozen=True)
class Weights:
    loss: float = 1.0
    delay: float = 2.0


def test_options_of_the_controller(tmp_path: Path) -> None:
    loaded = load(tmp_path, "[regulate]\nloss = 3\n").config
    assert config.options_for(loaded, "regulate", Weights) == Weights(loss=3.0)
    assert config.options_for(config.Config(), "regulate", Weights) == Weights()
    bad = load(tmp_path, "[regulate]\nlos = 3\n").config
    with pytest.raises(ConfigError, match=r"\[regulate\] has no key 'los'\. Did you mean 'loss'\?"):
        config.options_for(bad, "regulate", Weights)


def test_options_of_policies_are_kept_by_kind(tmp_path: Path) -> None:
    text = "[policies.options.placement.first-fit]\na = 1\n[policies.options.comm.metronome]\nslots = 36\n"
    loaded = load(tmp_path, text).config
    assert config.policy_options(loaded, "placement", "first-fit") == {"a": 1}
    assert config.policy_options(loaded, "comm", "metronome") == {"slots": 36}
    assert config.policy_options(loaded, "placement", "metronome") == {}
    with pytest.raises(
        ConfigError, match=r"comm\.metronom\] \(.*:1\): there is no such policy\. Did you mean 'metronome'"
    ):
        load(tmp_path, "[policies.options.comm.metronom]\nslots = 36\n")
    with pytest.raises(ConfigError, match="no such kind of policy"):
        load(tmp_path, "[policies.options.metronome.x]\nslots = 36\n")
    with pytest.raises(ConfigError, match=r"'policies\.options\.metronome\.slots' \(.*:2\) is no option of"):
        load(tmp_path, "[policies.options.metronome]\nslots = 36\n")
