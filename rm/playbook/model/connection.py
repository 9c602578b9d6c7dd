"""Names of variables that say how a host is reached and who acts there, or that only the runner sets.

A host never sets one of these by an answer, as with Ansible's `clean_facts`; and what such a variable may do
where, the places that read it say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

# the names of each setting that says how to reach a host; of several that are set the last counts, as with
# Ansible. Read from the inventory, the playbook, `-e`, set_fact and add_host
NAMES = {
    "ansible_host": ("ansible_host", "ansible_ssh_host"),
    "ansible_port": ("ansible_port", "ansible_ssh_port"),
    "ansible_user": ("ansible_user", "ansible_ssh_user"),
    "ansible_connection": ("ansible_connection",),
    "ansible_python_interpreter": ("ansible_python_interpreter",),
    "ansible_private_key_file": ("ansible_private_key_file", "ansible_ssh_private_key_file"),
    "ansible_ssh_args": ("ansible_ssh_args",),
    "ansible_ssh_common_args": ("ansible_ssh_common_args",),
    "ansible_ssh_extra_args": ("ansible_ssh_extra_args",),
}
REACH = tuple(name for names in NAMES.values() for name in names)
# options of the program ssh, in the order in which Ansible gives them
SSH_ARGS = ("ansible_ssh_args", "ansible_ssh_common_args", "ansible_ssh_extra_args")
# the variables that hold passwords, the strongest first
BECOME_PASSWORDS = ("ansible_become_password", "ansible_become_pass", "ansible_sudo_pass")
LOGIN_PASSWORDS = ("ansible_password", "ansible_ssh_password", "ansible_ssh_pass")
PASSWORDS = (*BECOME_PASSWORDS, *LOGIN_PASSWORDS)
SUDO = ("sudo", "ansible.builtin.sudo")  # as a become method
# connections as they are called, and what that comes to; None: the agent's channel where there is one
CONNECTIONS = {
    "local": "local", "ansible.builtin.local": "local", "ssh": "ssh", "paramiko": "ssh",
    "paramiko_ssh": "ssh", "ansible.builtin.ssh": "ssh", "ansible.builtin.paramiko_ssh": "ssh", "smart": None,
}  # fmt: skip
_EXACT = frozenset(
    {
        *REACH, "ansible_password", "ansible_sudo_pass", "ansible_su_pass", "ansible_private_key_file",
        "ansible_host_key_checking", "ansible_scp_if_ssh", "ansible_remote_tmp", "ansible_async_dir",
        "ansible_timeout", "ansible_pipelining", "ansible_executable", "ansible_module_compression",
        "ansible_common_remote_group", "ansible_rsync_path", "ansible_network_os", "ansible_facts",
        "ansible_check_mode", "ansible_diff_mode", "ansible_config_file", "ansible_delegated_vars",
        "ansible_dependent_role_names", "ansible_failed_result", "ansible_failed_task", "ansible_forks",
        "ansible_index_var", "ansible_inventory_sources", "ansible_limit", "ansible_parent_role_names",
        "ansible_playbook_python", "ansible_role_name", "ansible_role_names", "ansible_run_tags",
        "ansible_search_path", "ansible_skip_tags", "ansible_verbosity", "ansible_version", "environment",
        "group_names", "groups", "hostvars", "inventory_dir", "inventory_file", "inventory_hostname",
        "inventory_hostname_short", "omit", "play_hosts", "playbook_dir", "role_name", "role_names",
        "role_path", "vars",
    }
)  # fmt: skip
_BEGINNINGS = (
    "rm_", "ansible_rm_", "ansible_become", "ansible_ssh_", "ansible_sudo_", "ansible_su_", "ansible_shell_",
    "ansible_paramiko_", "ansible_docker_", "ansible_winrm_", "ansible_psrp_", "ansible_play_",
    "ansible_loop", "ansible_interpreter_",
)  # fmt: skip
_HOST_KEY = "ansible_ssh_host_key_"  # the one fact that begins like a setting


def passwords_of(variables: Iterable[Mapping[str, Any]]) -> set[str]:
    """The passwords among variables of hosts or groups, or extra ones: hidden wherever they show."""
    return {str(given[name]) for given in variables for name in PASSWORDS if given.get(name)}


def is_reserved(name: str) -> bool:
    """Is this a variable that no host's answer sets?"""
    if name.startswith(_HOST_KEY):
        return False
    return name in _EXACT or name.startswith(_BEGINNINGS) or name.endswith("_interpreter")


def last_name(given: Mapping[str, Any], setting: str) -> str:
    """The name under which a setting of NAMES is given; its first one where it is not."""
    return next((name for name in reversed(NAMES[setting]) if given.get(name) is not None), setting)


def settled(given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of NAMES that are given, each by its first name."""
    found = {setting: given.get(last_name(given, setting)) for setting in NAMES}
    return {setting: value for setting, value in found.items() if value is not None}


def refusal(name: str, value: Any) -> tuple[str, str]:
    """What is wrong with this value of a variable that says how to reach a host or who acts there, as a
    sentence, and what to do; ("", "") where rm follows it, or where it changes nothing that a run does.
    A value that is a template is judged when it is evaluated."""
    text = "" if value is None else str(value).strip()
    if not text or "{{" in text or "{%" in text:
        return "", ""
    word = text.rpartition("/")[2]
    if name == "ansible_connection" and text not in CONNECTIONS:
        return f"{name} is '{text}'.", "Known: ssh, local."
    if name == "ansible_become_method" and text not in SUDO:
        return f"{name} is '{text}'.", "Only sudo is known."
    if name in ("ansible_become_exe", "ansible_sudo_exe") and word != "sudo":
        return f"{name} is '{text}'.", "Only sudo is known."
    if name in ("ansible_become_flags", "ansible_sudo_flags") and not set(text.split()) <= {"-H", "-S", "-n"}:
        return f"{name} is '{text}'.", "rm runs sudo with options of its own: remove the variable."
    if (
        name in ("ansible_shell_executable", "ansible_executable", "ansible_shell_type")
        and word not in _SHELLS
    ):
        return f"{name} is '{text}'.", "rm uses the POSIX shell sh: remove the variable."
    if name == "ansible_ssh_executable" and word != "ssh":
        return f"{name} is '{text}'.", "rm speaks SSH by itself: remove the variable."
    if name in _NEVER:
        return f"{name} is set, which rm does not follow.", _NEVER[name]
    return "", ""


_SHELLS = ("sh", "bash", "dash", "ash", "ksh", "zsh")
_NEVER = {
    "ansible_ssh_pkcs11_provider": "Use a key file, or an SSH agent that holds the key.",
    "ansible_paramiko_proxy_command": "Write it as ansible_ssh_common_args: -o ProxyCommand=…",
    "ansible_ssh_proxy_command": "Write it as ansible_ssh_common_args: -o ProxyCommand=…",
}
