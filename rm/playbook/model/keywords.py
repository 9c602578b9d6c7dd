"""Which words a play, a task, a block and an include may hold, and which of Ansible's are not supported."""

from __future__ import annotations

# what a block, an import and a play hand down to the tasks inside
COMMON_KEYS = (
    "name", "when", "become", "become_user", "become_method", "environment", "tags", "ignore_errors",
    "ignore_unreachable", "no_log", "vars", "check_mode", "diff", "delegate_to", "delegate_facts", "run_once",
    "any_errors_fatal", "throttle", "module_defaults", "collections", "remote_user", "connection", "timeout",
)  # fmt: skip
PLAY_KEYS = (
    "name", "hosts", "gather_facts", "gather_subset", "gather_timeout", "fact_path", "become", "become_user",
    "become_method", "vars", "vars_files", "vars_prompt", "roles", "tasks", "handlers", "pre_tasks",
    "post_tasks", "serial", "max_fail_percentage", "strategy", "order", "force_handlers", "tags",
    "environment", "any_errors_fatal", "ignore_errors", "ignore_unreachable", "no_log", "check_mode", "diff",
    "module_defaults", "collections", "remote_user", "user", "connection", "run_once", "throttle", "port",
    "timeout",
)  # fmt: skip
BLOCK_KEYS = (*COMMON_KEYS, "block", "rescue", "always", "notify")
ROLE_KEYS = (*COMMON_KEYS, "role")
# whose part on the control machine has no `async`
WITHOUT_ASYNC = ("assemble", "async_status", "copy", "raw", "script", "template", "unarchive")
LOOP_CONTROL_KEYS = ("loop_var", "label", "index_var", "pause", "extended", "extended_allitems", "break_when")
STATIC_INCLUDES = ("import_tasks", "import_role")
DYNAMIC_INCLUDES = ("include_tasks", "include_role")
INCLUDES = (*STATIC_INCLUDES, *DYNAMIC_INCLUDES)
# what a dynamic include may hold beside its loop; all else is for the tasks inside, by `apply`
INCLUDE_KEYS = (
    "action", "args", "collections", "ignore_errors", "loop_control", "name", "no_log", "register",
    "run_once", "tags", "timeout", "vars", "when",
)  # fmt: skip
INCLUDE_FILE_ARGS = ("file", "apply")
INCLUDE_ROLE_ARGS = (
    "name", "tasks_from", "vars_from", "defaults_from", "handlers_from", "apply", "public",
    "allow_duplicates", "rolespec_validate",
)  # fmt: skip
# Ansible's words that are not supported: said as such, not as a spelling mistake; with why, where that helps
LATER = {
    "debugger": "rm sends a host many tasks at once. Look at results with -v or --json.",
    "with_config": "rm has no settings of Ansible's but what it follows of ansible.cfg. Write the value.",
    "include": "Use include_tasks, import_tasks or import_playbook.",
    "become_exe": "", "become_flags": "", "validate_argspec": "", "with_dependent": "",
}  # fmt: skip
PREFIXES = ("ansible.builtin.", "ansible.legacy.")


def short(name: str) -> str:
    """`ansible.builtin.copy` and `copy` are the same."""
    for prefix in PREFIXES:
        name = name.removeprefix(prefix)
    return name
