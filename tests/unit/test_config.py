"""Configuration: layers, origins, and errors that name file, line and the nearest key."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

from rm import config
from rm.errors import ConfigError

SHIPPED = Path(__file__).parents[2] / "rm.toml"


def load(tmp_path: Path, text: str = "", **env: str) -> config.Loaded:
    file = tmp_path / "rm.toml"
    file.write_text(text)
    return config.load(env={"HOME": str(tmp_path), "RM_CONFIG": str(file), **env}, euid=1000)


def test_the_shipped_file_names_every_key_with_its_default() -> None:
    written = dict(config.flatten(tomllib.loads(SHIPPED.read_text())))
    tables = {key for key in written if key in config.OPEN_TABLES}
    defaults = {key: list(v) if isinstance(v, tuple) else v for key, v in config.flatten(config.Config())}
    beyond = {key for key in written if key.startswith(tuple(t + "." for t in config.OPEN_TABLES))}
    assert {k: v for k, v in written.items() if k not in tables | beyond} == defaults


def test_the_shipped_file_is_accepted(tmp_path: Path) -> None:
    loaded = load(tmp_path, SHIPPED.read_text())
    assert loaded.config == load(tmp_path).config
    assert loaded.origins["jobs.grace_s"].startswith(f"{tmp_path}/rm.toml:")


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
    assert (jobs.grace_s, jobs.output, jobs.recent_s, jobs.keep_finished) == (9, "b", 1, 10_000)
    keys = ("jobs.grace_s", "jobs.output", "jobs.recent_s", "jobs.keep_finished")
    assert [loaded.origins[key] for key in keys] == ["--grace-s", "RM_JOBS__OUTPUT", f"{file}:4", "default"]


def test_environment_values_take_the_type_of_their_key(tmp_path: Path) -> None:
    loaded = load(
        tmp_path,
        RM_DAEMON__ADMINS="ann, bob",
        RM_JOBS__ALLOW_ROOT="true",
        RM_DAEMON__SOCKET="/x/7",
        RM_POLICIES__OPTIONS__ZONE__LOSS_WEIGHT="0.5",
    ).config
    assert (loaded.daemon.admins, loaded.jobs.allow_root, loaded.daemon.socket) == (
        ("ann", "bob"),
        True,
        "/x/7",
    )
    assert loaded.policies.options == {"zone": {"loss_weight": 0.5}}


def test_places_of_root_and_of_users(tmp_path: Path) -> None:
    root = config.load(env={"HOME": "/nowhere"}, euid=0).config
    assert (root.daemon.socket, root.daemon.database) == (
        "/run/rm/rm.sock",
        "sqlite:////var/lib/rm/rm.sqlite3",
    )
    user = load(tmp_path, XDG_RUNTIME_DIR="/run/user/7", XDG_STATE_HOME="/s").config
    assert (user.daemon.socket, user.ssh.known_hosts) == ("/run/user/7/rm/rm.sock", "/s/rm/known_hosts")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "[jobs]\ngrase_s = 3\n",
            r"\[jobs\] has no key 'grase_s' \(.*rm\.toml:2\)\. Did you mean 'grace_s'\?",
        ),
        ("[job]\ngrace_s = 3\n", r"no section \[job\].*Did you mean 'jobs'"),
        ("[jubs]\n", r"no section \[jubs\]"),
        ("[jobs]\n\ngrace_s = 'long'\n", r"jobs\.grace_s \(.*rm\.toml:3\): expected 'float', got 'str'"),
        ("[jobs]\ngrace_s = -1\n", r"jobs\.grace_s .*>= 0"),
        ("[jobs\n", r"rm\.toml is not valid TOML.*line 1"),
        ("jobs = 3\n", r"write \[jobs\]"),
        ("[daemon]\nlog_level = 'loud'\n", "Use debug"),
        ("[jobs]\ntime_limit = 'soon'\n", "jobs.time_limit: 'soon' is not a time limit"),
        ("[jobs]\nrun_root_as = 'root'\n", "another user"),
        (f"[daemon]\nsocket = '/{'x' * 200}'\n", "107 bytes"),
    ],
)
def test_mistakes_are_named_with_their_place(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        load(tmp_path, text)


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


def test_options_of_a_policy(tmp_path: Path) -> None:
    loaded = load(tmp_path, "[policies.options.zone]\nloss = 3\n").config
    assert config.options_for(loaded, "zone", Weights) == Weights(loss=3.0)
    assert config.options_for(loaded, "other", Weights) == Weights()
    bad = load(tmp_path, "[interleave]\nlos = 3\n").config
    with pytest.raises(ConfigError, match=r"\[interleave\] has no key 'los'\. Did you mean 'loss'\?"):
        config.options_for(bad, "interleave", Weights)
