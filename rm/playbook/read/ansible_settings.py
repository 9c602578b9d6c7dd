"""Ansible's settings, of ansible.cfg and of the environment: followed, or refused by name; all pure.

As with Ansible a variable of the environment is stronger than the file, and the command line than both.
Settings that are in neither table change nothing that a run of rm does.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping
from typing import Any

from rm.errors import UsageError
from rm.playbook.model.connection import SUDO
from rm.playbook.model.vault_id import split_vault_id
from rm.playbook.template.filters import FALSE, TRUE
from rm.quick_dataclass import dataclass

Place = tuple[str, str]  # section, key

# what rm follows: a field of Settings, and the variable of the environment
FOLLOWED: dict[Place, tuple[str, str]] = {
    ("defaults", "inventory"): ("inventory", "ANSIBLE_INVENTORY"),
    ("defaults", "forks"): ("forks", "ANSIBLE_FORKS"),
    ("defaults", "remote_user"): ("remote_user", "ANSIBLE_REMOTE_USER"),
    ("defaults", "private_key_file"): ("private_key_file", "ANSIBLE_PRIVATE_KEY_FILE"),
    ("defaults", "roles_path"): ("roles_path", "ANSIBLE_ROLES_PATH"),
    ("defaults", "collections_path"): ("collections_path", "ANSIBLE_COLLECTIONS_PATH"),
    ("defaults", "timeout"): ("timeout_s", "ANSIBLE_TIMEOUT"),
    ("defaults", "interpreter_python"): ("python", "ANSIBLE_PYTHON_INTERPRETER"),
    ("defaults", "vault_password_file"): ("vault_password_file", "ANSIBLE_VAULT_PASSWORD_FILE"),
    ("defaults", "vault_identity_list"): ("vault_ids", "ANSIBLE_VAULT_IDENTITY_LIST"),
    ("defaults", "ask_vault_pass"): ("ask_vault_pass", "ANSIBLE_ASK_VAULT_PASS"),
    ("defaults", "ask_pass"): ("ask_pass", "ANSIBLE_ASK_PASS"),
    ("defaults", "become_password_file"): ("become_password_file", "ANSIBLE_BECOME_PASSWORD_FILE"),
    ("defaults", "connection_password_file"): (
        "connection_password_file", "ANSIBLE_CONNECTION_PASSWORD_FILE"),
    ("defaults", "gathering"): ("gathering", "ANSIBLE_GATHERING"),
    ("defaults", "force_handlers"): ("force_handlers", "ANSIBLE_FORCE_HANDLERS"),
    ("defaults", "any_errors_fatal"): ("any_errors_fatal", "ANSIBLE_ANY_ERRORS_FATAL"),
    ("defaults", "error_on_missing_handler"): (
        "error_on_missing_handler", "ANSIBLE_ERROR_ON_MISSING_HANDLER"),
    ("defaults", "host_key_checking"): ("host_key_checking", "ANSIBLE_HOST_KEY_CHECKING"),
    ("defaults", "retry_files_enabled"): ("retry_files_enabled", "ANSIBLE_RETRY_FILES_ENABLED"),
    ("defaults", "retry_files_save_path"): ("retry_files_save_path", "ANSIBLE_RETRY_FILES_SAVE_PATH"),
    ("defaults", "library"): ("library", "ANSIBLE_LIBRARY"),
    ("defaults", "module_utils"): ("module_utils", "ANSIBLE_MODULE_UTILS"),
    ("defaults", "filter_plugins"): ("filter_plugins", "ANSIBLE_FILTER_PLUGINS"),
    ("defaults", "test_plugins"): ("test_plugins", "ANSIBLE_TEST_PLUGINS"),
    ("defaults", "lookup_plugins"): ("lookup_plugins", "ANSIBLE_LOOKUP_PLUGINS"),
    ("defaults", "action_plugins"): ("action_plugins", "ANSIBLE_ACTION_PLUGINS"),
    ("defaults", "fact_caching"): ("fact_caching", "ANSIBLE_CACHE_PLUGIN"),
    ("defaults", "fact_caching_connection"): (
        "fact_caching_connection", "ANSIBLE_CACHE_PLUGIN_CONNECTION"),
    ("defaults", "fact_caching_prefix"): ("fact_caching_prefix", "ANSIBLE_CACHE_PLUGIN_PREFIX"),
    ("defaults", "fact_caching_timeout"): ("fact_caching_timeout_s", "ANSIBLE_CACHE_PLUGIN_TIMEOUT"),
    ("privilege_escalation", "become"): ("become", "ANSIBLE_BECOME"),
    ("privilege_escalation", "become_user"): ("become_user", "ANSIBLE_BECOME_USER"),
    ("privilege_escalation", "become_ask_pass"): ("become_ask_pass", "ANSIBLE_BECOME_ASK_PASS"),
    ("diff", "always"): ("diff", "ANSIBLE_DIFF_ALWAYS"),
    ("tags", "run"): ("tags", "ANSIBLE_RUN_TAGS"),
    ("tags", "skip"): ("skip_tags", "ANSIBLE_SKIP_TAGS"),
    ("ssh_connection", "ssh_args"): ("ssh_args", "ANSIBLE_SSH_ARGS"),
    ("ssh_connection", "ssh_common_args"): ("ssh_common_args", "ANSIBLE_SSH_COMMON_ARGS"),
    ("ssh_connection", "ssh_extra_args"): ("ssh_extra_args", "ANSIBLE_SSH_EXTRA_ARGS"),
}  # fmt: skip


# the settings that name directories of plug-ins, and where Ansible looks where one is not set
PLUGINS = {"library": "modules", "module_utils": "module_utils", "filter_plugins": "filter",
           "test_plugins": "test", "lookup_plugins": "lookup", "action_plugins": "action"}  # fmt: skip
USUAL = ("~/.ansible/plugins", "/usr/share/ansible/plugins")

# what would change a run, the variable of the environment, and the values with which rm does the same
REFUSED: dict[Place, tuple[str, tuple[str, ...]]] = {
    ("defaults", "hash_behaviour"): ("ANSIBLE_HASH_BEHAVIOUR", ("replace",)),
    ("defaults", "strategy"): ("ANSIBLE_STRATEGY", ("linear", "ansible.builtin.linear")),
    ("defaults", "transport"): ("ANSIBLE_TRANSPORT", ("ssh", "smart", "paramiko", "paramiko_ssh")),
    ("defaults", "executable"): ("ANSIBLE_EXECUTABLE", ("/bin/sh", "/bin/bash", "sh", "bash")),
    ("defaults", "remote_port"): ("ANSIBLE_REMOTE_PORT", ("22",)),
    ("defaults", "task_timeout"): ("ANSIBLE_TASK_TIMEOUT", ("0",)),
    ("defaults", "precedence"): ("ANSIBLE_PRECEDENCE", ()),
    ("defaults", "playbook_vars_root"): ("ANSIBLE_PLAYBOOK_VARS_ROOT", ("top",)),
    ("defaults", "vars_plugins_enabled"): ("ANSIBLE_VARS_ENABLED", ("host_group_vars",)),
    ("defaults", "facts_modules"): ("ANSIBLE_FACTS_MODULES", ("smart", "setup", "ansible.builtin.setup")),
    ("defaults", "jinja2_extensions"): ("ANSIBLE_JINJA2_EXTENSIONS", ()),
    ("defaults", "ansible_managed"): ("", ("Ansible managed",)),
    ("defaults", "su"): ("ANSIBLE_SU", FALSE),
    ("defaults", "no_log"): ("ANSIBLE_NO_LOG", FALSE),
    ("defaults", "private_role_vars"): ("ANSIBLE_PRIVATE_ROLE_VARS", FALSE),
    ("defaults", "enable_task_debugger"): ("ANSIBLE_ENABLE_TASK_DEBUGGER", FALSE),
    ("defaults", "error_on_undefined_vars"): ("ANSIBLE_ERROR_ON_UNDEFINED_VARS", TRUE),
    ("defaults", "inject_facts_as_vars"): ("ANSIBLE_INJECT_FACT_VARS", TRUE),
    ("defaults", "inventory_ignore_patterns"): ("ANSIBLE_INVENTORY_IGNORE_REGEX", ()),
    ("defaults", "inventory_ignore_extensions"): ("ANSIBLE_INVENTORY_IGNORE", ()),
    ("inventory", "ignore_patterns"): ("ANSIBLE_INVENTORY_IGNORE_REGEX", ()),
    ("inventory", "ignore_extensions"): ("ANSIBLE_INVENTORY_IGNORE", ()),
    ("privilege_escalation", "become_method"): ("ANSIBLE_BECOME_METHOD", SUDO),
    ("privilege_escalation", "become_exe"): ("ANSIBLE_BECOME_EXE", ("sudo", "/usr/bin/sudo")),
    ("privilege_escalation", "become_flags"): ("ANSIBLE_BECOME_FLAGS", ("-H -S -n", "-H -S", "-n", "-H")),
    ("sudo_become_plugin", "executable"): ("ANSIBLE_SUDO_EXE", ("sudo", "/usr/bin/sudo")),
    ("sudo_become_plugin", "flags"): ("ANSIBLE_SUDO_FLAGS", ("-H -S -n", "-H -S", "-n", "-H")),
    ("sudo_become_plugin", "user"): ("ANSIBLE_SUDO_USER", ("root",)),
    ("ssh_connection", "ssh_executable"): ("ANSIBLE_SSH_EXECUTABLE", ("ssh", "/usr/bin/ssh")),
    ("ssh_connection", "pkcs11_provider"): ("ANSIBLE_PKCS11_PROVIDER", ()),
    ("ssh_connection", "host_key_checking"): ("ANSIBLE_SSH_HOST_KEY_CHECKING", TRUE),
    ("paramiko_connection", "host_key_auto_add"): ("ANSIBLE_PARAMIKO_HOST_KEY_AUTO_ADD", FALSE),
    ("paramiko_connection", "proxy_command"): ("ANSIBLE_PARAMIKO_PROXY_COMMAND", ()),
}
_SWITCHES = ("ask_vault_pass", "ask_pass", "force_handlers", "any_errors_fatal", "error_on_missing_handler",
             "host_key_checking",
             "become", "become_ask_pass", "diff", "retry_files_enabled")  # fmt: skip
_LISTS = ("roles_path", "collections_path", *PLUGINS)
_PATHS = ("private_key_file", "vault_password_file", "become_password_file", "connection_password_file",
          "retry_files_save_path", "fact_caching_connection")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Settings:
    """What is set, None or () where nothing is; of `library` and the plug-ins then Ansible's own directories.
    `source` is the file, `used` the settings that it sets."""

    source: str = ""
    used: tuple[str, ...] = ()
    inventory: tuple[str, ...] = ()
    roles_path: tuple[str, ...] = ()
    collections_path: tuple[str, ...] = ()
    library: tuple[str, ...] = ()
    module_utils: tuple[str, ...] = ()
    filter_plugins: tuple[str, ...] = ()
    test_plugins: tuple[str, ...] = ()
    lookup_plugins: tuple[str, ...] = ()
    action_plugins: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    skip_tags: tuple[str, ...] = ()
    forks: int | None = None
    timeout_s: float | None = None
    remote_user: str | None = None
    private_key_file: str | None = None
    python: str | None = None
    vault_password_file: str | None = None
    vault_ids: tuple[str, ...] = ()  # NAME@FILE, NAME@prompt, or FILE
    become_password_file: str | None = None
    connection_password_file: str | None = None
    become_user: str | None = None
    gathering: str = "implicit"
    fact_caching: str = "memory"
    fact_caching_connection: str | None = None
    fact_caching_prefix: str = ""
    fact_caching_timeout_s: int = 86_400  # 0: facts of any age are taken
    ask_vault_pass: bool = False
    ask_pass: bool = False
    become: bool = False
    become_ask_pass: bool = False
    force_handlers: bool = False
    any_errors_fatal: bool = False
    error_on_missing_handler: bool = True
    host_key_checking: bool = True
    diff: bool = False
    retry_files_enabled: bool = False
    retry_files_save_path: str | None = None
    ssh_args: str = ""
    ssh_common_args: str = ""
    ssh_extra_args: str = ""

    @property
    def vault_files(self) -> tuple[str, ...]:
        """Where the vault's passwords are."""
        return (*self.vault_ids, *((self.vault_password_file,) if self.vault_password_file else ()))


def _values_in(text: str, path: str) -> Callable[[Place], str]:
    """What the text of an ansible.cfg says at a place, "" for nothing. Raises UsageError."""
    import configparser  # slow to load, and few directories have such a file

    parser = configparser.ConfigParser(inline_comment_prefixes=(";",), strict=False)
    try:
        parser.read_string(text)
    except configparser.Error as problem:
        raise UsageError(f"{path} cannot be read: {str(problem).splitlines()[0]}.") from None

    def value(place: Place) -> str:
        section, key = place
        try:
            return parser.get(section, key, fallback="")
        except configparser.Error as problem:
            raise UsageError(f"{path}: {key} in [{section}]: {str(problem).splitlines()[0]}.") from None

    return value


def read(
    text: str, path: str, environment: Mapping[str, str], home: str, here: str,
    refused: Callable[[UsageError], None] | None = None,
) -> Settings:  # fmt: skip
    """The settings of the text of an ansible.cfg and of the environment. `path` is the file ("" = there is
    none), `home` the caller's directory, `here` the current one. Raises UsageError; with
    `refused` it is given each of them instead, and the rest counts."""
    in_file = _values_in(text, path) if text else lambda place: ""

    def said(place: Place, variable: str) -> tuple[str, str]:
        """The value, and the place it is from; ("", "") where it is not set."""
        if variable and environment.get(variable):
            return environment[variable], f"the variable {variable} of the environment"
        section, key = place
        value = in_file(place)
        return value.strip(), f"{key} in [{section}] of {path}" if value else ""

    for place, (variable, same) in REFUSED.items():
        value, where = said(place, variable)
        if value and value.lower() not in same and value not in same:
            problem = UsageError(
                f"{where} is '{value}', which rm does not follow.",
                "Remove it, or run rmx with ANSIBLE_CONFIG naming another file.",
            )
            if refused is None:
                raise problem
            refused(problem)
    found: dict[str, Any] = {}
    used = []
    for place, (name, variable) in FOLLOWED.items():
        value, where = said(place, variable)
        if not value:
            continue
        from_file = not where.startswith("the variable")
        try:
            found[name] = _typed(name, value, where, posixpath.dirname(path) if from_file else here, home)
        except UsageError as problem:
            if refused is None:
                raise
            refused(problem)
            continue
        used += [place[1]] if from_file else []
    if found.get("fact_caching") == "jsonfile" and "fact_caching_connection" not in found:
        nowhere = UsageError(
            "fact_caching of Ansible's settings is 'jsonfile', and no directory is named.",
            "Set fact_caching_connection to one.",
        )
        if refused is None:
            raise nowhere
        refused(nowhere)
    for name, kind in PLUGINS.items():
        found.setdefault(name, tuple(f"{_path(top, '', home)}/{kind}" for top in USUAL))
    return Settings(path, tuple(used), **found)


def _typed(name: str, value: str, where: str, base: str, home: str) -> Any:
    def wrong(must: str) -> UsageError:
        return UsageError(f"{where} is '{value}'.", f"It must be {must}.")

    if name in _SWITCHES:
        if value.lower() not in (*TRUE, *FALSE):
            raise wrong("true or false")
        return value.lower() in TRUE
    if name in ("forks", "timeout_s", "fact_caching_timeout_s"):
        least = 0 if name == "fact_caching_timeout_s" else 1
        if not value.isdecimal() or int(value) < least:
            raise wrong(f"a whole number of at least {least}")
        return int(value)
    if name == "fact_caching":
        short = value.removeprefix("ansible.builtin.")
        if short not in ("memory", "jsonfile"):
            raise wrong("memory or jsonfile")
        return short
    if name == "gathering":
        if value not in ("implicit", "explicit", "smart"):
            raise wrong("implicit, explicit or smart")
        return value
    if name == "inventory":
        parts = [part.strip() for part in value.split(",") if part.strip()]
        return (value,) if value.endswith(",") else tuple(_path(part, base, home) for part in parts)
    if name in _LISTS:
        return tuple(_path(part, base, home) for part in value.split(":") if part)
    if name == "vault_ids":
        found = []
        for name, file in (split_vault_id(part.strip()) for part in value.split(",") if part.strip()):
            found.append(
                (f"{name}@" if name else "") + (file if file == "prompt" else _path(file, base, home))
            )
        return tuple(found)
    if name in ("tags", "skip_tags"):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return _path(value, base, home) if name in _PATHS else value


def _path(text: str, base: str, home: str) -> str:
    if text == "~" or text.startswith("~/"):
        return home + text[1:]
    return posixpath.normpath(posixpath.join(base, text)) if base else text
