"""Names of variables that say how a host is reached and who acts there, or that only the runner sets.

A host never sets one of these by an answer, as with Ansible's `clean_facts`; and what such a variable may do
where, the places that read it say.
"""

from __future__ import annotations

# how to reach a host: each is read from the inventory, from `-e` and from add_host
REACH = (
    "ansible_host", "ansible_port", "ansible_user", "ansible_connection", "ansible_python_interpreter",
)  # fmt: skip
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


def is_reserved(name: str) -> bool:
    """Is this a variable that no host's answer sets?"""
    if name.startswith(_HOST_KEY):
        return False
    return name in _EXACT or name.startswith(_BEGINNINGS) or name.endswith("_interpreter")
