"""The modules as a playbook's author meets them: their names, their arguments, and who carries them out."""

import importlib.util
import re
import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest

from rm.playbook.model.problems import BadArgument
from rm.playbook.modules import ALIASES, COLLECTIONS, executor_of, registry
from tests.steps_request import AGENTS, rm_steps, step

MOST_USED = (
    "include_vars file template command set_fact copy shell service package meta assert fail stat apt "
    "systemd wait_for lineinfile debug user dnf group git cron get_url pip blockinfile unarchive mount "
    "sysctl reboot authorized_key replace find slurp fetch script raw uri hostname tempfile add_host "
    "group_by pause package_facts service_facts getent iptables wait_for_connection ping setup "
    "systemd_service yum gather_facts synchronize"
)


def modules() -> dict[str, ModuleType]:
    return {module.__name__: module for module in registry().values()}


@pytest.mark.parametrize("name", MOST_USED.split())
def test_the_modules_in_use_are_there_by_both_names(name: str) -> None:
    assert registry()[name] is registry()[f"ansible.builtin.{name}"]


def test_other_collections_names() -> None:
    for name in ("mount", "sysctl", "authorized_key"):
        assert registry()[f"ansible.posix.{name}"] is registry()[name]


def test_other_names_and_collections_are_of_modules() -> None:
    files = {module.__name__.rpartition(".")[2] for module in registry().values()}
    assert files >= {*ALIASES, *(name for names in COLLECTIONS.values() for name in names)}
    assert registry()["community.crypto.openssl_certificate"] is registry()["x509_certificate"]
    assert "community.general.copy" not in registry()


def test_a_module_is_loaded_when_it_is_asked_for() -> None:
    code = (
        "import sys; from rm.playbook.modules import registry; found = registry();"
        "assert 'ansible.builtin.copy' in found and len(found) > 200; found['copy'];"
        "print([name for name in sys.modules if name.startswith('rm.playbook.modules.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "'rm.playbook.modules.copy'" in done.stdout
    assert "rm.playbook.modules.user" not in done.stdout


def test_every_module_is_carried_out_by_somebody() -> None:
    for module in modules().values():
        operation = executor_of(module)
        if getattr(module, "CONTROL", False):
            assert importlib.util.find_spec(f"rm.adapters.playbook.control.{operation}"), operation
        else:
            assert rm_steps.operation_of(operation) is not None, operation


def test_every_operation_is_in_the_file_that_is_said_to_have_it() -> None:
    for place, names in rm_steps.PLACES.items():
        source = (AGENTS / f"{place}.py").read_text()
        for name in names:
            assert f"def do_{name}(run, args):" in source
    files = {path.stem for path in AGENTS.glob("rm_steps_*.py")}
    shared = {"aside", "apt", "base", "dnf", "dpkg", "labels", "private", "write"}
    assert files - {f"rm_steps_{name}" for name in shared} == set(rm_steps.PLACES)


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("apt", {"name": "x", "deb": "/x.deb"}, "only one of"),
    ("apt", {"name": "x=1=2"}, "not a package"),
    ("pip", {"virtualenv": "/x"}, "'name' or 'requirements'"),
    ("apt", {"name": "x", "policy_rc_d": 101}, "policy_rc_d"),
    ("authorized_key", {"user": "x"}, "'key' is missing"),
    ("copy", {"dest": "/x"}, "'src' or 'content'"),
    ("copy", {"dest": "/x/", "content": "a"}, "file's name"),
    ("copy", {"dest": "/x", "content": "a", "mode": 644}, "quoted octal"),
    ("cron", {"name": "x", "job": "y", "special_time": "daily", "hour": "3"}, "special_time"),
    ("cron", {"name": "x", "job": "a\nb"}, "one line"),
    ("cron", {"name": "x", "job": "y", "cron_file": "z"}, "needs 'user'"),
    ("file", {"path": "/x", "mode": "u=rwz"}, "quoted octal"),
    ("find", {"paths": "/x", "age": "3 years"}, "'age'"),
    ("get_url", {"url": "http://x", "dest": "/x", "checksum": "abc"}, "algorithm"),
    ("git", {"repo": "--upload-pack=x", "dest": "/x"}, "begin with"),
    ("hostname", {"name": "a b"}, "host name"),
    ("mount", {"path": "/x", "state": "mounted"}, "needs 'src'"),
    ("pause", {"seconds": 1, "minutes": 1}, "only one"),
    ("pip", {}, "'requirements'"),
    ("replace", {"path": "/x", "regexp": "("}, "regular expression"),
    ("rm_burn_in", {"tests": "cpu,fans"}, "fans"),
    ("service", {"name": "x"}, "'state' or 'enabled'"),
    ("service", {"state": "started"}, "'name' is missing"),
    ("service", {"state": "started", "daemon_reload": True}, "'state' needs 'name'"),
    ("service", {"name": "x", "state": "running"}, "one of"),
    ("systemd", {"state": "started"}, "needs 'name'"),
    ("sysctl", {"name": "x"}, "needs 'value'"),
    ("unarchive", {"src": "/x", "dest": "/y", "extra_opts": "-v"}, "extra_opts"),
    ("uri", {"url": "http://x", "status_code": "ok"}, "numbers"),
    ("wait_for", {"port": 1, "path": "/x"}, "only one"),
]


@pytest.mark.parametrize(("module", "args", "says"), BAD)
def test_arguments_that_cannot_be_are_told_before_a_host_is_asked(
    module: str, args: dict[str, Any], says: str
) -> None:
    with pytest.raises(BadArgument, match=re.escape(says)):
        step(1, module, **args)
