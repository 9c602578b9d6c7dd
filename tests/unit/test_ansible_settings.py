"""ansible.cfg and ANSIBLE_… of the environment: followed or refused by name, found as Ansible finds it."""

from __future__ import annotations

import os
from importlib import resources
from pathlib import Path

import pytest
import yaml

from rm.cli.playbook import ansible_config
from rm.cli.playbook.ansible_config import ansible_settings
from rm.errors import UsageError
from rm.playbook.read.ansible_settings import FOLLOWED, REFUSED, Settings, read

# looked at: what is shown, logged or cached, plug-ins (refused where a playbook uses one), Windows and
# network devices, how modules travel, and where rm is stricter than the setting
NOTHING = set(
    """
    defaults: allow_broken_conditionals allow_embedded_templates home cow_selection cowsay_enabled_stencils
    defaults: force_color nocolor nocows cowpath pipelining
    defaults: collections_scan_sys_path
    defaults: collections_on_ansible_version_mismatch action_warnings localhost_warning log_verbosity
    defaults: doc_fragment_plugins allow_unsafe_lookups become_plugins cache_plugins
    defaults: callback_plugins callbacks_enabled cliconf_plugins connection_plugins debug
    defaults: httpapi_plugins internal_poll_interval inventory_plugins jinja2_native keep_remote_files
    defaults: bin_ansible_callbacks local_tmp log_path log_filter module_args
    defaults: module_compression module_name netconf_plugins no_target_syslog
    defaults: null_representation poll_interval stdout_callback editor task_debugger_ignore_errors
    defaults: strategy_plugins syslog_facility terminal_plugins vars_plugins vault_id_match
    defaults: vault_identity vault_encrypt_salt vault_encrypt_identity verbosity deprecation_warnings
    defaults: devel_warning display_args_to_stdout display_skipped_hosts display_traceback docsite_root_url
    defaults: duplicate_dict_key force_valid_group_names
    defaults: invalid_task_attribute_failed max_diff_size network_group_modules module_ignore_exts
    defaults: module_strict_utf8_response old_plugin_cache_clear pager playbook_dir plugin_filters_cfg
    defaults: python_module_rlimit_nofile run_vars_plugins
    defaults: show_custom_stats system_warnings target_log_info use_persistent_connections
    defaults: win_async_startup_timeout yaml_valid_extensions validate_action_group_metadata
    defaults: verbose_to_stderr
    connection: pipelining ssh_agent ssh_agent_executable ssh_agent_key_lifetime
    privilege_escalation: become_allow_same_user agnostic_become_prompt
    inventory: inventory_unparsed_warning host_pattern_mismatch any_unparsed_is_failed enable_plugins export
    inventory: unparsed_is_failed
    diff: context
    paramiko_connection: look_for_keys
    """.strip().splitlines()
)
ELSEWHERE = (
    "persistent_connection",
    "colors",
    "selinux",
    "galaxy",
    "jinja2",
    "netconf_connection",
    "testing",
)


def test_every_setting_of_ansible_was_judged() -> None:
    base = yaml.safe_load((resources.files("ansible.config") / "base.yml").read_text())
    known = {(one["section"], one["key"]) for entry in base.values() for one in entry.get("ini") or ()}
    nothing = {(line.split(":")[0].strip(), key) for line in NOTHING for key in line.split(":")[1].split()}
    judged = {*FOLLOWED, *REFUSED, *nothing}
    assert {place for place in known - judged if place[0] not in ELSEWHERE} == set()
    assert not nothing & {*FOLLOWED, *REFUSED}
    of_core = {section for section, _ in known}
    assert {place for place in judged - known if place[0] in of_core} <= {
        ("paramiko_connection", "proxy_command")  # the plug-in's own
    }


def of(text: str, environment: dict[str, str] | None = None) -> Settings:
    return read(text, "/etc/site/ansible.cfg", environment or {}, "/home/ada", "/site")


def test_what_is_followed_is_read_as_ansible_reads_it() -> None:
    found = of(
        "[defaults]\ninventory = hosts, ~/more.ini\nroles_path = roles:/srv/roles\nforks = 40 ; many\n"
        "gathering = explicit\nhost_key_checking = False\nprivate_key_file = ~/.ssh/key\ntimeout=30\n"
        "[ssh_connection]\nssh_common_args = -o ProxyCommand='ssh -W %%h:%%p gate'\npipelining = True\n"
        "[privilege_escalation]\nbecome=yes\n[tags]\nrun = a, b\n",
        {"ANSIBLE_FORKS": "7", "ANSIBLE_INVENTORY": "", "ANSIBLE_SKIP_TAGS": "c"},
    )
    assert found.inventory == ("/etc/site/hosts", "/home/ada/more.ini")
    assert found.roles_path == ("/etc/site/roles", "/srv/roles")
    assert (found.forks, found.timeout_s, found.gathering) == (7, 30, "explicit")
    assert (found.host_key_checking, found.become, found.diff) == (False, True, False)
    assert found.private_key_file == "/home/ada/.ssh/key"
    assert found.ssh_common_args == "-o ProxyCommand='ssh -W %h:%p gate'"
    kept = of("[defaults]\nretry_files_enabled = true\nretry_files_save_path = left")
    assert (kept.retry_files_enabled, kept.retry_files_save_path) == (True, "/etc/site/left")
    assert (found.tags, found.skip_tags) == (("a", "b"), ("c",))
    assert of("[defaults]\ncollections_path = mine:~/more").collections_path == (
        "/etc/site/mine",
        "/home/ada/more",
    )
    assert "forks" not in found.used
    assert "become" in found.used
    assert of("", {"ANSIBLE_INVENTORY": "hosts.yml"}).inventory == ("/site/hosts.yml",)
    assert of("", {"ANSIBLE_INVENTORY": "a,"}).inventory == ("a,",)


@pytest.mark.parametrize(
    ("text", "environment", "said"),
    [
        (
            "[defaults]\nhash_behaviour = merge",
            {},
            "hash_behaviour in [defaults] of /etc/site/",
        ),
        ("", {"ANSIBLE_STRATEGY": "free"}, "the variable ANSIBLE_STRATEGY of the environment is 'free'"),
        ("[privilege_escalation]\nbecome_method = su", {}, "become_method in [privilege_escalation]"),
        ("[defaults]\nerror_on_undefined_vars = no", {}, "error_on_undefined_vars"),
        ("[defaults]\nvars_plugins_enabled = host_group_vars,mine", {}, "vars_plugins_enabled"),
        ("[defaults]\ngathering = lazy", {}, "gathering in [defaults] of /etc/site/ansible.cfg is 'lazy'"),
        ("[defaults]\nforks = many", {}, "forks in [defaults] of /etc/site/ansible.cfg is 'many'"),
        ("[defaults]\nfact_caching = redis", {}, "fact_caching in [defaults] of /etc/site/ansible.cfg is"),
        ("[defaults]\nfact_caching = jsonfile", {}, "no directory is named"),
        ("forks = 5", {}, "cannot be read"),
    ],
)
def test_what_rm_does_not_follow_is_refused(text: str, environment: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        of(text, environment)
    assert said in refused.value.what
    assert refused.value.hint or "cannot be read" in said


def test_what_rm_does_by_itself_is_no_reason_to_refuse() -> None:
    text = "[defaults]\nstrategy=linear\nhash_behaviour=replace\nfact_caching = memory\nnocows=1\n"
    assert of(f"{text}stdout_callback = yaml\n[privilege_escalation]\nbecome_method=sudo\n").forks is None


def test_ids_of_the_vault_name_files() -> None:
    found = of(
        "[defaults]\nvault_identity_list = dev@pw/d@ev, prod@prompt, ~/plain\nvault_password_file = one\n"
    )
    assert found.vault_files == (
        "dev@/etc/site/pw/d@ev", "prod@prompt", "/home/ada/plain", "/etc/site/one",
    )  # fmt: skip


def test_directories_of_plug_ins_are_the_set_ones_or_ansible_s(tmp_path: Path) -> None:
    found = of("[defaults]\nlibrary = ./modules:~/mine\n", {"ANSIBLE_FILTER_PLUGINS": "/srv/filters"})
    assert found.library == ("/etc/site/modules", "/home/ada/mine")
    assert found.filter_plugins == ("/srv/filters",)
    assert found.test_plugins == ("/home/ada/.ansible/plugins/test", "/usr/share/ansible/plugins/test")


@pytest.mark.parametrize("name", ["", "f.py", "below", "below/g.py"])
def test_plug_ins_that_others_may_write_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "below").mkdir()
    for file in ("f.py", "below/g.py"):
        (tmp_path / file).write_text("")
    monkeypatch.setenv("HOME", str(tmp_path / "none"))
    environment = {"ANSIBLE_CONFIG": "/none", "ANSIBLE_LIBRARY": str(tmp_path)}
    assert ansible_settings(environment, False).library == (str(tmp_path),)
    (tmp_path / name).chmod(0o777)
    with pytest.raises(UsageError, match=f"Others may write {tmp_path / name}, "):
        ansible_settings(environment, False)
    refused: list[UsageError] = []
    ansible_settings(environment, False, refused.append)
    assert len(refused) == 1


@pytest.mark.parametrize("name", ["library", "module_utils"])
@pytest.mark.parametrize(
    "place",
    [
        "", "hop", "far", "far/code", "far/code/f.py", "far/code/__pycache__", "far/code/__pycache__/f.pyc",
        "alone", "alone/g.py",
    ],
)  # fmt: skip
def test_what_others_may_write_behind_a_link_to_plug_ins_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, name: str
) -> None:
    """Also what only leads there: a folder in which others may put another link, or folder, in its place."""
    for folder in ("plug-ins", "hop", "far/code/__pycache__", "alone"):
        (tmp_path / folder).mkdir(parents=True)
    for file in ("far/code/f.py", "far/code/__pycache__/f.pyc", "alone/g.py"):
        (tmp_path / file).write_text("")
    (tmp_path / "plug-ins/sub").symlink_to("../hop/link")
    (tmp_path / "hop/link").symlink_to(tmp_path / "far/code")
    (tmp_path / "far/code/g.py").symlink_to(tmp_path / "alone/g.py")
    (tmp_path / "far/code/round").symlink_to("../code")
    (tmp_path / "far/data").mkdir()
    (tmp_path / "far/data").chmod(0o777)  # nothing is taken from there
    monkeypatch.setenv("HOME", str(tmp_path / "none"))
    environment = {"ANSIBLE_CONFIG": "/none", f"ANSIBLE_{name.upper()}": str(tmp_path / "plug-ins")}
    ansible_settings(environment, False)
    before = (tmp_path / place).stat().st_mode
    if place in ("", "hop", "far", "alone"):
        (tmp_path / place).chmod(0o1777)  # as /tmp: nobody moves what is another's
        ansible_settings(environment, False)
    (tmp_path / place).chmod(before | 0o002)
    with pytest.raises(UsageError, match=f"Others may write {tmp_path}.*'{name}' of Ansible") as refused:
        ansible_settings(environment, False)
    told = refused.value.hint.removeprefix("chmod o-w ")
    assert Path(told).samefile(tmp_path / place)


def test_more_than_modules_need_is_not_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules lie in a directory and one level below; packages of module_utils at any depth."""
    (tmp_path / "one/two").mkdir(parents=True)
    for file in ("one/f.py", "one/two/g.py"):
        (tmp_path / file).write_text("")
    (tmp_path / "one/two/g.py").chmod(0o666)
    monkeypatch.setenv("HOME", str(tmp_path / "none"))
    environment = {"ANSIBLE_CONFIG": "/none", "ANSIBLE_LIBRARY": str(tmp_path)}
    assert ansible_settings(environment, False).library == (str(tmp_path),)
    with pytest.raises(UsageError, match=f"Others may write {tmp_path}/one/two/g.py"):
        ansible_settings({"ANSIBLE_CONFIG": "/none", "ANSIBLE_MODULE_UTILS": str(tmp_path)}, False)


def test_a_directory_of_plugins_in_which_others_may_put_one_is_refused_while_it_is_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "none"))
    environment = {"ANSIBLE_CONFIG": "/none", "ANSIBLE_FILTER_PLUGINS": str(tmp_path / "empty")}
    ansible_settings(environment, False)  # it is not there
    (tmp_path / "empty").mkdir()
    ansible_settings(environment, False)
    (tmp_path / "empty").chmod(0o777)
    with pytest.raises(UsageError, match=f"Others may write {tmp_path}/empty, .*'filter_plugins'"):
        ansible_settings(environment, False)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_daemon_takes_no_code_of_other_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "f.py").write_text("")
    os.chown(tmp_path / "f.py", 65534, -1)
    monkeypatch.setenv("HOME", str(tmp_path / "none"))
    environment = {"ANSIBLE_CONFIG": "/none", "ANSIBLE_LIBRARY": str(tmp_path)}
    assert ansible_settings(environment, False).library == (str(tmp_path),)
    with pytest.raises(UsageError, match="Others may write"):
        ansible_settings(environment, False, ours=True)


def test_the_file_is_found_where_ansible_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home, here, named = (tmp_path / name for name in ("home", "here", "named"))
    for folder, forks in ((home, 2), (here, 3), (named, 4)):
        folder.mkdir(mode=0o755)
        name = ".ansible.cfg" if folder == home else "ansible.cfg"
        (folder / name).write_text(f"[defaults]\nforks = {forks}\n")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(here)
    monkeypatch.setattr(ansible_config, "SYSTEM", tmp_path / "none")
    assert ansible_settings({"ANSIBLE_CONFIG": str(named)}, False).forks == 4
    assert ansible_settings({"ANSIBLE_CONFIG": str(tmp_path / "nosuch")}, True).forks == 3
    assert f"{here}/ansible.cfg sets forks." in capsys.readouterr().err
    here.chmod(0o777)
    assert ansible_settings({}, False).forks == 2
    assert f"{here}/ansible.cfg is ignored: others may write" in capsys.readouterr().err
    assert ansible_settings({"ANSIBLE_CONFIG": f"{here}/ansible.cfg"}, False).forks == 3
