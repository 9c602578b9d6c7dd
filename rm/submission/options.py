"""The options of `rmx submit` and of directives: one table for both, as plain data.

Names and letters are Slurm's; the network options are ours. None of the names is an option of
coreutils' rm (a test holds it), so that `rm submit --…` handed to the real rm deletes nothing; letters
are for `rmx` and for directives.
"""

from __future__ import annotations

from rm.quick_tuple import NamedTuple

VALUE, FLAG, MAYBE = "value", "flag", "maybe"  # MAYBE: a flag that may carry =value
IGNORED = "ignored"  # known to Slurm, without effect here: a warning
TOLD = "told"  # the same, but the job finds it in its environment, as under Slurm
REFUSED = "refused"  # known to Slurm, and without it the job would mean something else: an error


class Option(NamedTuple):
    """`key` is the name in the parsed result; `off` the long name that sets it to false."""

    key: str
    long: tuple[str, ...]
    short: str = ""
    takes: str = VALUE
    help: str = ""
    metavar: str = ""
    support: str = ""
    off: str = ""


SUPPORTED = (
    Option("name", ("job-name",), "J", help="Name of the job.", metavar="NAME"),
    Option("launch", ("launch",), help="Start the script once (batch) or by task (tasks).", metavar="HOW"),
    Option("output", ("output",), "o", help="File for output, with %j, %x, %t; or none.", metavar="PATTERN"),
    Option("error", ("error",), "e", help="File for standard error (default: --output).", metavar="PATTERN"),
    Option("input", ("input",), "i", help="File that the tasks read; with %j, %a, %t.", metavar="PATTERN"),
    Option("open_mode", ("open-mode",), help="How to open these files: append or truncate.", metavar="MODE"),
    Option("nodes", ("nodes",), "N", help="Number of hosts, or a range.", metavar="MIN[-MAX]"),
    Option("ntasks", ("ntasks",), "n", help="Number of tasks (ranks).", metavar="N"),
    Option("ntasks_per_node", ("ntasks-per-node", "tasks-per-node"), metavar="N",
           help="At most this many tasks on one host."),
    Option("cpus_per_task", ("cpus-per-task",), "c", help="Processors of one task.", metavar="N"),
    Option("cpus_per_gpu", ("cpus-per-gpu",), help="Processors for each GPU.", metavar="N"),
    Option("mem", ("mem",), help="Memory on each host, such as 16G; 0: all of it.", metavar="SIZE"),
    Option("mem_per_cpu", ("mem-per-cpu",), help="Memory for each processor.", metavar="SIZE"),
    Option("mem_per_gpu", ("mem-per-gpu",), help="Memory for each GPU.", metavar="SIZE"),
    Option("gpus", ("gpus",), "G", help="GPUs of the whole job.", metavar="[TYPE:]N"),
    Option("gpus_per_node", ("gpus-per-node",), help="GPUs on each host.", metavar="[TYPE:]N"),
    Option("gpus_per_task", ("gpus-per-task",), help="GPUs of one task.", metavar="[TYPE:]N"),
    Option("gpus_per_socket", ("gpus-per-socket",), help="On each of --sockets-per-node.",
           metavar="[TYPE:]N"),
    Option("sockets_per_node", ("sockets-per-node",), help="Sockets that --gpus-per-socket counts.",
           metavar="N"),
    Option("gres", ("gres",), help="The same, as Slurm's generic resources.", metavar="gpu[:TYPE]:N"),
    Option("ntasks_per_gpu", ("ntasks-per-gpu",), help="Tasks that share a GPU.", metavar="N"),
    Option("gpu_bind", ("gpu-bind",), help="GPUs of a task: none, closest, per_task:N …", metavar="HOW"),
    Option("distribution", ("distribution",), "m", help="Ranks over hosts: cyclic, plane=N …",
           metavar="HOW"),
    Option("gpu_mem", ("gpu-mem",), help="Share GPUs; memory on each, 16G.", metavar="SIZE"),
    Option("time", ("time",), "t", help="Time limit: M, H:M:S, D-H:M, 1h30m, UNLIMITED.", metavar="TIME"),
    Option("expect", ("expect",), help="Run time expected when undisturbed, such as 2h.", metavar="TIME"),
    Option("iterations", ("iterations",), help="Iterations that the job will make.", metavar="N"),
    Option("export", ("export",), help="Environment: ALL, NONE, or NAME[=VALUE],…", metavar="LIST"),
    Option("chdir", ("chdir",), "D", help="Working directory of the tasks.", metavar="DIR"),
    Option("partition", ("partition",), "p", help="Partition; of several, one.", metavar="NAMES"),
    Option("priority", ("priority",), help="high, low or an integer.", metavar="P"),
    Option("nice", ("nice",), takes=MAYBE, help="Lower its place in the queue by 100, or N.", metavar="[N]"),
    Option("begin", ("begin",), "b", help="Not before: now+1hour, 16:00, 2030-01-31T16:00.", metavar="TIME"),
    Option("deadline", ("deadline",), help="End it by then, or cancel it in time.", metavar="TIME"),
    Option("time_min", ("time-min",), help="Least time that it needs until the deadline.", metavar="TIME"),
    Option("array", ("array",), "a", help="Job array: 0-15, 1,3,7-9, 0-99:2; %N at once.", metavar="INDICES"),
    Option("dependency", ("dependency",), "d", help="Start after other jobs: afterok:12.", metavar="LIST"),
    Option("kill_on_invalid_dep", ("kill-on-invalid-dep",), help="Cancel it if that can never be.",
           metavar="yes|no"),
    Option("hold", ("hold",), "H", FLAG, "Submit in held state."),
    Option("nodelist", ("nodelist", "hosts"), "w", help="On exactly these hosts.", metavar="HOSTS"),
    Option("nodefile", ("nodefile",), "F", help="On the hosts that this file lists.", metavar="FILE"),
    Option("exclude", ("exclude",), "x", help="Not on these hosts.", metavar="HOSTS"),
    Option("constraint", ("constraint",), "C", help="Hosts with these features: a&!b.", metavar="LIST"),
    Option("licenses", ("licenses",), "L", help="Licences of the cluster that it holds.", metavar="NAME:N,…"),
    Option("account", ("account",), "A", help="Run for this account.", metavar="NAME"),
    Option("qos", ("qos",), "q", help="In this quality of service.", metavar="NAME"),
    Option("reservation", ("reservation",), help="Run in this reservation of hosts.", metavar="NAME"),
    Option("prefer", ("prefer",), help="Rather on hosts with these features.", metavar="LIST"),
    Option("container_image", ("container-image",), help="Run the tasks in this image.", metavar="IMAGE"),
    Option("container_mounts", ("container-mounts",), help="What they see of the host: SRC:DST,…",
           metavar="LIST"),
    Option("container_workdir", ("container-workdir",), help="Where they begin in it.", metavar="DIR"),
    Option("container_name", ("container-name",), help="By which srun finds it again.", metavar="NAME"),
    Option("container_mount_home", ("container-mount-home",), takes=FLAG, off="no-container-mount-home",
           help="They see the home directory, too."),
    Option("container_writable", ("container-writable",), takes=FLAG, help="They may write; they do anyway."),
    Option("no_container_entrypoint", ("no-container-entrypoint",), takes=FLAG,
           help="No entry point is run; none is anyway."),
    Option("switches", ("switches",), help="Below so few leaves; waits for that.", metavar="N[@TIME]"),
    Option("exclusive", ("exclusive",), takes=MAYBE, help="Share the hosts with no other job."),
    Option("signal", ("signal",), help="Send it before the time limit.", metavar="[B:]SIG[@S]"),
    Option("requeue", ("requeue",), takes=FLAG, help="Start again when a host fails.", off="no-requeue"),
    Option("fence", ("fence",), help="A host without a daemon ends it after this, 60s.", metavar="TIME"),
    Option("mail_type", ("mail-type",), help="Mail of BEGIN, END, FAIL … or ALL.", metavar="LIST"),
    Option("mail_user", ("mail-user",), help="Who gets these mails: you.", metavar="ADDRESS"),
    Option("comment", ("comment",), help="Free text.", metavar="TEXT"),
    Option("zone", ("zone",), help="Only in this zone.", metavar="ZONE"),
    Option("period", ("period",), help="Iteration time, such as 200ms.", metavar="TIME"),
    Option("duty_cycle", ("duty-cycle",), help="Part of it that communicates: 0.4 or 40%.", metavar="PART"),
    Option("bandwidth", ("bandwidth",), help="Rate while it communicates, such as 10Gbps.", metavar="RATE"),
    Option("traffic", ("traffic",), help="A traffic profile in TOML or JSON.", metavar="FILE"),
    Option("low_comm", ("low-comm",), takes=FLAG, help="The job hardly communicates."),
    Option("clusters", ("clusters",), "M", help="The daemon's cluster, or all.", metavar="NAME"),
    Option("wait", ("wait",), "W", FLAG, "Wait for the end; exit with the job's code."),
    Option("parsable", ("parsable",), takes=FLAG, help="Print the job id alone."),
    Option("test_only", ("test-only", "dry-run"), takes=FLAG, help="Say where it would run; submit nothing."),
)  # fmt: skip


def _other(support: str, *spellings: str) -> tuple[Option, ...]:
    """`name/L=`: long name, letter, and `=` when it takes a value (`?` when it may)."""
    found = []
    for spelling in spellings:
        takes = VALUE if spelling.endswith("=") else MAYBE if spelling.endswith("?") else FLAG
        name, _, letter = spelling.rstrip("=?").partition("/")
        found.append(Option(name.replace("-", "_"), (name,), letter, takes, support=support))
    return tuple(found)


UNSUPPORTED = _other(
    IGNORED,
    "acctg-freq=", "cpu-bind=", "mem-bind=", "gres-flags=",
    "wait-all-nodes=", "hint=", "get-user-env?", "quiet/Q", "verbose/v", "wckey=",
    "extra-node-info/B=", "cores-per-socket=", "tmp=", "contiguous", "power=",
    "delay-boot=", "no-kill/k", "use-min-nodes", "spread-job", "oversubscribe/s",
    "propagate?", "reboot", "cpu-freq=", "ignore-pbs", "container-id=",
) + _other(
    TOLD,
    "ntasks-per-core=", "ntasks-per-socket=", "threads-per-core=", "overcommit/O", "profile=", "gpu-freq=",
) + _other(
    REFUSED,
    "uid=", "gid=", "cluster-constraint=", "bb=", "bbf=", "container=", "het-group=", "jobid=",
    "core-spec/S=", "thread-spec=", "batch=", "network=", "export-file=", "mincpus=",
    "mcs-label=", "container-save=", "container-remap-root", "no-container-remap-root",
    "container-entrypoint", "container-entrypoint-log", "container-readonly", "container-env=",
)  # fmt: skip
ALL = SUPPORTED + UNSUPPORTED

# Slurm's input variables: those that are not named after their options, and those that are
_NAMED_OTHERWISE = {
    "SBATCH_ARRAY_INX": "array", "SBATCH_MEM_PER_NODE": "mem", "SBATCH_TIMELIMIT": "time",
    "SBATCH_REQ_SWITCH": "switches", "SLURM_HINT": "hint",
    "SLURM_CLUSTERS": "clusters",
}  # fmt: skip
_NAMED_SO = (
    "account", "acctg-freq", "batch", "clusters", "constraint", "container", "container-id", "core-spec",
    "cpus-per-gpu", "delay-boot", "distribution", "error", "exclusive", "export", "get-user-env", "gpu-bind",
    "gpu-freq", "gpus", "gpus-per-node", "gpus-per-task", "gres", "gres-flags", "hint", "ignore-pbs", "input",
    "job-name", "mem-bind", "mem-per-cpu", "mem-per-gpu", "network", "no-kill", "no-requeue", "open-mode",
    "output", "overcommit", "partition", "power", "profile", "qos", "requeue", "reservation", "signal",
    "spread-job", "thread-spec", "threads-per-core", "use-min-nodes", "wait", "wait-all-nodes", "wckey",
)  # fmt: skip
SBATCH = "SBATCH_"
VARIABLES = {f"{SBATCH}{name.upper().replace('-', '_')}": name for name in _NAMED_SO} | _NAMED_OTHERWISE
