"""What people type who know other tools, and what it is called here."""

from __future__ import annotations

from collections.abc import Iterable

from rm.hints import nearest

CALLED = {
    "submit": ("sbatch", "qsub", "bsub", "add", "start", "launch"),
    "queue": (
        "squeue",
        "qstat",
        "bjobs",
        "jobs",
        "job",
        "ps",
        "ls",
        "list",
        "top",
        "sprio",
        "priority",
        "prio",
    ),
    "queue --all": ("sacct", "history", "past"),
    "show JOB": ("info", "describe", "scontrol", "seff", "details"),
    "why JOB": ("explain", "reason"),
    "logs JOB": ("log", "tail", "cat", "less", "output", "out"),
    "cancel JOB": ("scancel", "kill", "stop", "delete", "del", "qdel", "bkill", "abort", "rm"),
    "hosts": ("sinfo", "nodes", "node", "machines", "gpus", "pbsnodes", "inventory"),
    "host drain HOST": ("drain", "cordon"),
    "host resume HOST": ("undrain", "uncordon"),
    "host add HOST": ("register",),
    "requeue JOB": ("restart", "rerun", "retry"),
    "release JOB": ("unhold",),
    "network": ("ping", "iperf", "grid", "maddash"),
    "links": ("link", "topology"),
    "monitor": ("pscheduler", "perfsonar", "measure", "mesh", "meshes"),
    "playbook run FILE": ("ansible-playbook", "ansible", "play"),
    "playbook list": ("playbooks",),
    "status": ("ping-daemon", "health", "sdiag", "version"),
    "config show": ("settings", "conf"),
    "daemon": ("slurmctld", "server", "serve"),
    "account": ("sacctmgr", "accounts"),
    "account show": ("limits", "limit", "quota", "quotas", "fairshare"),
    "slurm-shims": ("sshare", "shares"),
    "sim": ("simulate",),
    "run COMMAND": ("srun", "exec", "interactive"),
    "alloc": ("salloc", "allocate", "allocation"),
    "shell JOB": ("ssh", "bash", "enter"),
    "attach JOB": ("sattach",),
    "forward JOB PORT": ("tunnel", "port-forward", "jupyter", "tensorboard"),
    "usage": ("sreport", "report", "used"),
    "set JOB": ("update", "modify", "edit", "alter"),
}


IN_GROUPS = {
    "add": ("create", "new", "register"),
    "create": ("add", "new"),
    "remove": ("delete", "rm", "del"),
    "delete": ("remove", "rm", "del"),
    "revoke": ("remove", "delete", "rm"),
    "show": ("info", "describe", "details", "list", "ls", "status"),
    "list": ("show", "ls", "status"),
    "set": ("modify", "update", "edit", "change", "alter"),
    "drain": ("hold", "suspend", "cordon", "disable", "offline", "down", "close"),
    "resume": ("release", "undrain", "uncordon", "enable", "online", "up", "open"),
}


def hint_in(group: str, word: str, verbs: Iterable[str]) -> str:
    """The same for `rmx GROUP WORD`."""
    known, word = list(verbs), word.lower()
    if group == "host" and word in ("list", "ls", "status"):
        return "Here it is: rmx hosts"
    for verb, others in IN_GROUPS.items():
        if verb in known and word in others:
            return f"Here it is: rmx {group} {verb}"
    near = nearest(word, known)
    return f"Did you mean `rmx {group} {near}`?" if near else f"`rmx {group} --help` lists the commands."


def hint(word: str, verbs: Iterable[str]) -> str:
    """What to write instead of `word`, which is not one of our verbs."""
    for verb, others in CALLED.items():
        if word.lower() in others:
            return f"Here it is: rmx {verb}"
    near = nearest(word, verbs)
    return f"Did you mean `rmx {near}`?" if near else "`rmx --help` lists the commands."
