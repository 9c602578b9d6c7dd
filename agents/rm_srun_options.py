"""The options of srun, from its command line and its input variables, to what a step is asked for. Pure.

Source: srun(1) of Slurm 22.05. Options without effect on a step of rm are passed over with a word;
one that would change the meaning of a step is refused.
"""

import getopt
import re

import rm_cpu_bind
import rm_gpu_bind
import rm_srun_layout
from rm_step_plan import TASKS_MAX, expanded


def _table(text):
    """`name/L=`: long name, letter, and `=` when it takes a value, `?` when it may; -> {"name=": "L:"}."""
    found = {}
    for word in text.split():
        suffix = word[-1] if word[-1] in "=?" else ""
        name, _, letter = word.rstrip("=?").partition("/")
        found[name + suffix] = letter + ":" if letter and suffix == "=" else letter
    return found


TAKEN = _table("""
    ntasks/n= nodes/N= ntasks-per-node= cpus-per-task/c= gpus-per-task= gpus-per-node= gpus/G= gres=
    gpu-bind= exact exclusive? overlap overcommit/O nodelist/w= nodefile/F= exclude/x= label/l
    output/o= error/e= input/i= open-mode= chdir/D= export= kill-on-bad-exit/K? multi-prog job-name/J=
    distribution/m= jobid= immediate/I? quiet/Q time/t= mpi= unbuffered/u cpu-bind= pty? relative/r=
    ntasks-per-gpu= container-image= container-name= container-mounts= container-workdir=
    container-mount-home task-prolog= task-epilog= bcast? clusters/M=
    propagate? wait/W=
""")
IGNORED = _table("""
    verbose/v no-kill/k mem= mem-per-cpu= mem-per-gpu= mem-bind= hint=
    threads-per-core= ntasks-per-core= ntasks-per-socket= extra-node-info/B= gres-flags= cpu-freq=
    gpu-freq= account/A= partition/p= qos/q= comment= profile= acctg-freq= cores-per-socket=
    sockets-per-node= whole cpus-per-gpu= use-min-nodes wckey= deadline= msg-timeout= max-exit-timeout=
    tmp= mincpus= contiguous spread-job switches= delay-boot= slurmd-debug= accel-bind= interactive
    disable-status/X mail-type= mail-user= begin= reboot priority= nice? time-min= oversubscribe/s
    no-container-mount-home no-container-entrypoint container-writable
    threads/T= reservation= signal= hold/H power= prefer= quit-on-interrupt resv-ports? compress?
    send-libs? bcast-exclude= dependency/d= licenses/L=
""")
REFUSED = _table("""
    het-group= constraint/C= preserve-env/E container= uid= gid= x11? core-spec/S= test-only
    network= prolog= epilog= no-allocate/Z array= gpus-per-socket=
    thread-spec= mcs-label= bb= bbf= cluster-constraint=
    container-save= container-remap-root no-container-remap-root
    container-entrypoint container-entrypoint-log container-readonly container-env=
""")
SILENT = {
    "verbose",
    "quiet",
    "mem-bind",
    "hint",
    "no-kill",
    "threads-per-core",
    "interactive",
    "disable-status",
    "no-container-mount-home",
    "no-container-entrypoint",
    "container-writable",
}
# Slurm's input variables; those of the job's own shape are no more than a default, but for a number of tasks
# that the script has changed
VARIABLES = {
    "SRUN_CPUS_PER_TASK": "cpus-per-task", "SLURM_GPUS_PER_TASK": "gpus-per-task", "SLURM_OVERLAP": "overlap",
    "SLURM_EXACT": "exact", "SLURM_LABELIO": "label", "SLURM_STDOUTMODE": "output",
    "SLURM_STDERRMODE": "error", "SLURM_STDINMODE": "input", "SLURM_KILL_BAD_EXIT": "kill-on-bad-exit",
    "SLURM_EXPORT_ENV": "export", "SRUN_EXPORT_ENV": "export", "SLURM_STEP_GRES": "gres",
    "SLURM_OVERCOMMIT": "overcommit", "SLURM_EXCLUSIVE": "exclusive", "SLURM_IMMEDIATE": "immediate",
    "SLURM_REMOTE_CWD": "chdir", "SLURM_DISTRIBUTION": "distribution", "SLURM_OPEN_MODE": "open-mode",
    "SLURM_MPI_TYPE": "mpi", "SLURM_UNBUFFEREDIO": "unbuffered",
    "SLURM_TASK_PROLOG": "task-prolog", "SLURM_TASK_EPILOG": "task-epilog", "SLURM_BCAST": "bcast",
    "SLURM_PROPAGATE": "propagate", "SLURM_WAIT": "wait",
    "SLURM_CPU_BIND": "cpu-bind", "SLURM_GPU_BIND": "gpu-bind", "SLURM_DIST_PLANESIZE": "plane-size",
}  # fmt: skip
OFF = ("0", "no")
DIGITS = 7  # of a number
VERBOSE = "verbose,"
# what follows a comma of --export that is no part of a value: a name, an assignment, a quote, or nothing
NEXT = re.compile(r"(?:[A-Za-z_]\w*)?(?:,|\Z)|[^,='\"]*=|['\"]", re.ASCII)
NAME = re.compile(r"[A-Za-z_]\w*\Z", re.ASCII)


class Wrong(Exception):
    """What the user wrote cannot be done; the message is a sentence. `immediate`: not at once. `code` is
    Slurm's of such a mistake, where the user may choose none."""

    immediate = False
    code = 0


class Unread(Wrong):
    """An option that there is not, or that lacks its value."""

    code = 255


def code_of(wrong, environ):
    """What srun ends with: as in Slurm, a variable with the value 0 has no effect."""
    if wrong.code:
        return wrong.code
    code = environ.get("SLURM_EXIT_IMMEDIATE" if wrong.immediate else "SLURM_EXIT_ERROR", "")
    return int(code) & 255 or 1 if code.isdecimal() and len(code) <= DIGITS else 1


def parsed(words, environ, tell):
    """(option -> text, "" for one without a value; the command). `tell` hears of options without effect."""
    every = {**TAKEN, **IGNORED, **REFUSED}
    letters, longs, of_letter = "+h", ["help", "version", "usage"], {}
    for spelling, letter in every.items():
        name = spelling.rstrip("=?")
        longs.append(name + ("=" if spelling.endswith("=") else ""))
        letters += letter
        if letter:
            of_letter["-" + letter[0]] = name
    may = {spelling[:-1] for spelling in every if spelling.endswith("?")}
    words, given = _split_maybe(words, may, every)
    try:
        found, command = getopt.getopt(words, letters, longs)
    except getopt.GetoptError as error:
        raise Unread("%s; this srun is rm's, and docs/slurm.md lists its options." % error) from None
    if ":" in command:
        raise Wrong("A ':' joins the parts of a heterogeneous step, which rm has not. Write the programs of "
                    "the tasks into a file for --multi-prog, or start steps side by side.")  # fmt: skip
    values = {}
    for variable, name in VARIABLES.items():
        flag = name in TAKEN or name + "?" in TAKEN
        if environ.get(variable) and not (flag and environ[variable] in OFF):
            values[name] = environ[variable]
    if environ.get("SLURM_NTASKS") and environ["SLURM_NTASKS"] != environ.get("SLURM_NPROCS"):
        values["ntasks"] = environ["SLURM_NTASKS"]
    for flag, value in found:
        values[of_letter.get(flag, flag.lstrip("-"))] = value
    values.update(given)
    own = "ntasks-per-gpu" in values or "gpus-per-task" in values
    if environ.get("SLURM_NTASKS_PER_GPU", "").isdecimal() and not own:  # the job's tasks share its GPUs so
        values.setdefault("gpu-bind", "single:" + environ["SLURM_NTASKS_PER_GPU"])
    refused = sorted(name.rstrip("=?") for name in REFUSED if name.rstrip("=?") in values)
    if refused:
        raise Wrong(
            "--%s is not supported in a step of rm, which would do something else without it." % refused[0]
        )
    _count(values, "wait")
    if values.get("kill-on-bad-exit", "").lower() not in ("", "0", "1", "yes", "no"):
        raise Wrong("--kill-on-bad-exit is '%s': write 0 or 1." % values["kill-on-bad-exit"])
    own = environ.get("SLURM_CLUSTER_NAME", "")
    for name in filter(None, values.get("clusters", "").split(",")):
        if name.lower() not in (own.lower(), "all"):
            raise Wrong("No cluster '%s' known by database. This job's cluster is '%s'." % (name, own))
    for spelling in IGNORED:
        name = spelling.rstrip("=?")
        if name in values and name not in SILENT:
            tell("--%s has no effect in a step of rm." % name)
    note = rm_srun_layout.without_effect(values.get("distribution", ""))
    if note:
        tell(note)
    return values, command


def _respelled(word):
    """Options that Slurm also reads as they were written before, and one by its other name."""
    name, equals, value = word.partition("=")
    if name in ("--cpu_bind", "--mem_bind"):
        name = name.replace("_", "-")
    return ("--ntasks-per-node" if name == "--tasks-per-node" else name) + equals + value


def _split_maybe(words, may, every):
    """`--name=value` of options that may have one, and the other words: getopt knows no such options."""
    takes = {s.rstrip("=?") for s in every if s.endswith("=")} | {"h"}
    letters = {letter[0] for letter in every.values() if letter.endswith(":")}
    with_number = {
        letter: spelling[:-1] for spelling, letter in every.items() if spelling[-1] == "?" and letter
    }
    given, rest, n = {}, [], 0
    while n < len(words):
        word = _respelled(words[n])
        if word == "--" or not word.startswith("-") or word == "-":
            break
        name, equals, value = word[2:].partition("=")
        if word.startswith("--") and equals and name in may:
            given[name] = value
        elif word[1] in with_number and word[2:].isdecimal():  # -K1
            given[with_number[word[1]]] = word[2:]
        else:
            rest.append(word)
            alone = word[2:] in takes if word.startswith("--") else len(word) == 2 and word[1] in letters
            if alone and n + 1 < len(words):
                n += 1
                rest.append(words[n])
        n += 1
    return rest + words[n:], given


def step_of(values):
    """What rm_step_plan.layout is asked for."""
    per_node = _positive(values, "ntasks-per-node")
    nodes = values.get("nodes", "")
    found = re.fullmatch(r"(\d+)(?:-(\d+))?", nodes or "0")
    if not found or (nodes and not int(found.group(1))):
        raise Wrong("--nodes is '%s': write a number of hosts, or a range." % nodes)
    named = _hosts(values, "nodelist")
    hosts = int(found.group(1))
    ntasks = _positive(values, "ntasks")
    if ntasks and per_node and not hosts:
        hosts = -(-ntasks // per_node)
    if named and not hosts:
        hosts = len(set(named))
    gpus_per_task = _gpus(values, "gpus-per-task")
    gpus_per_host = _gpus(values, "gpus-per-node")
    if gpus_per_host is None:
        gpus_per_host = _gpus(values, "gres")
    if gpus_per_host is None and "gpus" in values:
        every = _gpus(values, "gpus")
        if every % max(1, hosts or 1):
            raise Wrong("--gpus=%s cannot be shared equally by %d hosts." % (values["gpus"], hosts))
        hosts = hosts or 1
        gpus_per_host = every // hosts
    try:
        layout = rm_srun_layout.asked_of(
            values.get("distribution") or "block", values.get("plane-size", ""), named
        )
    except ValueError as error:
        raise Wrong(str(error)) from None
    if layout["each_on"]:
        hosts = 0  # as many as are listed
    bind = values.get("gpu-bind", "")
    bind = bind[len(VERBOSE) :] if bind.startswith(VERBOSE) else bind
    per_gpu = _positive(values, "ntasks-per-gpu")
    if per_gpu:
        if not ntasks and "gpus" not in values:
            raise Wrong("--ntasks-per-gpu needs --ntasks or --gpus as well.")
        ntasks = ntasks or per_gpu * _gpus(values, "gpus")
        bind = bind or "single:%d" % per_gpu
    if not rm_gpu_bind.is_known(bind):
        raise Wrong("--gpu-bind=%s is not supported: %s." % (bind, rm_gpu_bind.KNOWN))
    return {
        "ntasks": ntasks, "hosts": hosts, "ntasks_per_node": per_node,
        "cpus_per_task": _positive(values, "cpus-per-task"), "gpus_per_task": gpus_per_task or 0,
        "gpus_per_host": gpus_per_host, "gpu_bind": bind, "overlap": "overlap" in values,
        "near": bind == "closest" and not gpus_per_task,
        "exact": "exact" in values or "exclusive" in values,
        "overcommit": "overcommit" in values, "nodelist": named, "exclude": _hosts(values, "exclude"),
        "relative": _count(values, "relative"),
        **layout,
    }  # fmt: skip


def cpu_bind_of(values):
    """What rm_cpu_bind.chosen is asked for."""
    step = step_of(values)
    try:
        return rm_cpu_bind.asked_of(values.get("cpu-bind", ""), not (step["exact"] or step["overlap"]))
    except ValueError as error:
        raise Wrong(str(error)) from None


def seconds(text):
    """Slurm's times: M, M:S, H:M:S, D-H, D-H:M, D-H:M:S."""
    days, dash, rest = text.rpartition("-")
    try:
        numbers = [int(word) for word in rest.split(":")]
        if dash:
            hours, minutes, secs = (*numbers, 0, 0)[:3]
            return ((int(days) * 24 + hours) * 60 + minutes) * 60 + secs
        if len(numbers) == 3:
            return (numbers[0] * 60 + numbers[1]) * 60 + numbers[2]
        return numbers[0] * 60 + (numbers[1] if len(numbers) == 2 else 0)
    except (ValueError, IndexError):
        raise Wrong("--time is '%s': write minutes, or H:M:S." % text) from None


def _count(values, name):
    text = values.get(name) or "0"
    if not text.isdecimal() or len(text) > DIGITS:
        raise Wrong("--%s is '%s': write a whole number." % (name, text))
    return int(text)


def _positive(values, name):
    """0: not said."""
    count = _count(values, name)
    if values.get(name) and not count:
        raise Wrong("--%s is '%s', and must be a whole number of at least 1." % (name, values[name]))
    return count


def _gpus(values, name):
    """N, or TYPE:N; of --gres gpu[:TYPE][:N]. None: not said."""
    if name not in values:
        return None
    text = values[name]
    if text in ("none", "NONE"):
        return 0
    words = text.split(":")
    if name == "gres":
        if words[0] != "gpu" or "," in text:
            raise Wrong("--gres=%s is not supported: gpu[:TYPE]:N, or none." % text)
        words = words[1:] or ["1"]
        if not words[-1].isdecimal():
            words.append("1")
    if not words[-1].isdecimal() or len(words[-1]) > DIGITS or len(words) > 2:
        raise Wrong("--%s is '%s': write a number of GPUs." % (name, text))
    return int(words[-1])


def _hosts(values, name):
    try:
        return expanded(values.get(name, ""))
    except ValueError as error:
        raise Wrong("--%s: %s." % (name, error)) from None


def environment(values, environ):
    """What the tasks inherit, by --export."""
    text = values.get("export", "ALL")
    parts = [part for part in _split_export(text) if part]
    kept = {}
    slurm = {name: value for name, value in environ.items() if name.startswith(("SLURM_", "RM_"))}
    for part in parts:
        name, equals, value = part.partition("=")
        if part.upper() in ("ALL", "NONE", "NIL"):
            kept = {**environ, **kept} if part.upper() == "ALL" else kept
        elif equals and name and "," not in name:
            kept[name] = value
        elif equals or not NAME.match(name):
            raise Wrong(
                "--export=%s: '%s' is not a variable name. Write ALL, NONE, NAME or NAME=VALUE."
                % (text, part)
            )
        elif name in environ:
            kept[name] = environ[name]
    base = {name: environ[name] for name in ("PATH",) if name in environ}
    return {**base, **slurm, **kept}


def _split_export(text):
    """At commas before a name or the end, but not inside quotes, which sbatch takes away likewise."""
    parts, quote = [""], ""
    for at, char in enumerate(text):
        if char == quote:
            quote = ""
        elif not quote and char in "'\"":
            quote = char
        elif char == "," and not quote and NEXT.match(text, at + 1):
            parts.append("")
        else:
            parts[-1] += char
    return parts


TASK, OFFSET = "\0t", "\0o"  # which no line has


def programs(text, ntasks, more=()):
    """The commands of the ranks by a file of --multi-prog: lines of `RANKS PROGRAM ARGUMENTS`; `more` are
    arguments for all of them."""
    import shlex

    commands = [None] * ntasks
    named = set()
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("#"):  # elsewhere it is an argument
            continue
        try:
            words = shlex.split(_marked(line))
        except ValueError as error:
            raise Wrong("Line %d of the file of programs cannot be read: %s." % (number, error)) from None
        if not words:
            continue
        ranks = range(ntasks) if words[0] == "*" else _ranks(words[0], number)
        if words[0] != "*":
            _check_ranks(ranks, ntasks, named, number)
        for offset, rank in enumerate(ranks):
            if words[0] != "*" or commands[rank] is None:
                commands[rank] = [w.replace(TASK, str(rank)).replace(OFFSET, str(offset)) for w in words[1:]]
                commands[rank] += more
    missing = [rank for rank, command in enumerate(commands) if not command]
    if missing:
        raise Wrong("The file of programs names no program for task %d." % missing[0])
    return commands


def _marked(line):
    """With marks for `%t` and `%o`, but between single quotes, where they stay, as in Slurm."""
    pieces = re.split(r"""(\\.|"(?:\\.|[^"\\])*"|'[^']*')""", line)
    return "".join(
        piece if piece.startswith("'") else piece.replace("%t", TASK).replace("%o", OFFSET)
        for piece in pieces
    )


def _check_ranks(ranks, ntasks, named, number):
    for rank in ranks:
        if rank >= ntasks:
            raise Wrong("Line %d of the file of programs names task %d, and the step has %d: their ranks "
                        "begin with 0." % (number, rank, ntasks))  # fmt: skip
        if rank in named:
            raise Wrong("Line %d of the file of programs names task %d once more." % (number, rank))
        named.add(rank)


def _ranks(text, number):
    ranks = []
    for part in text.split(","):
        low, dash, high = part.partition("-")
        if not low.isdecimal() or (dash and not high.isdecimal()):
            raise Wrong(
                "Line %d of the file of programs begins with '%s', which is not a task." % (number, text)
            )
        if len(low) > DIGITS or len(high) > DIGITS or int(high or low) >= TASKS_MAX:
            raise Wrong("Line %d of the file of programs names task %.20s: a step has at most %d."
                        % (number, high or low, TASKS_MAX))  # fmt: skip
        if dash and int(high) < int(low):
            raise Wrong("Line %d of the file of programs has the range '%s': the smaller number comes first."
                        % (number, part))  # fmt: skip
        ranks += range(int(low), int(high if dash else low) + 1)
    return ranks


def file_name(pattern, values):
    """%t %n %N %s %j %J %A %a %x %u %%, with a width as in %4t; a backslash keeps all of them as they are."""
    if "\\" in pattern:
        return re.sub(r"\\(.?)", r"\1", pattern)

    def replaced(found):
        width, key = found.group(1), found.group(2)
        if key == "%":
            return "%"
        value = values.get(key)
        if value is None:
            return found.group(0)
        return str(value).zfill(min(int(width), 10)) if width and str(value).isdecimal() else str(value)

    return re.sub(r"%(\d*)([A-Za-z%])", replaced, pattern)
