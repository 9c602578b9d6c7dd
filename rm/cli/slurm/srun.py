"""`srun`: inside a job the job's own, which its host provides; in an allocation of `rmx alloc` a step of it
from here; outside of both `rmx run`."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Mapping, Sequence

from rm.errors import UsageError
from rm.submission import directives
from rm.submission.options import FLAG, MAYBE, Option
from rm.submission.typed import submit_line

OWN = {
    "pty": Option("pty", ("pty",), takes=FLAG),
    "label": Option("label", ("label",), "l", takes=FLAG),
    "unbuffered": Option("unbuffered", ("unbuffered",), "u", takes=FLAG),
    "kill-on-bad-exit": Option("kill_on_bad_exit", ("kill-on-bad-exit",), "K", takes=MAYBE),
    "immediate": Option("immediate", ("immediate",), "I", takes=MAYBE),
    "exact": Option("exact", ("exact",), takes=FLAG),
    "overlap": Option("overlap", ("overlap",), takes=FLAG),
    "multi-prog": Option("multi_prog", ("multi-prog",), takes=FLAG),
    "mpi": Option("mpi", ("mpi",)),
    "relative": Option("relative", ("relative",), "r"),
    "task-prolog": Option("task_prolog", ("task-prolog",)),
    "task-epilog": Option("task_epilog", ("task-epilog",)),
    "bcast": Option("bcast", ("bcast",), takes=MAYBE),
    # what has no effect on a step
    "disable-status": Option("disable_status", ("disable-status",), "X", takes=FLAG),
    "threads": Option("threads", ("threads",), "T"),
    "msg-timeout": Option("msg_timeout", ("msg-timeout",)),
    "max-exit-timeout": Option("max_exit_timeout", ("max-exit-timeout",)),
    "slurmd-debug": Option("slurmd_debug", ("slurmd-debug",)),
    "accel-bind": Option("accel_bind", ("accel-bind",)),
    "quit-on-interrupt": Option("quit_on_interrupt", ("quit-on-interrupt",), takes=FLAG),
}  # fmt: skip
# of a new job those that are its step's alone; its files lie on the job's first host
OF_STEP = (
    "exact", "overlap", "multi_prog", "mpi", "relative", "cpu_bind", "output", "error", "input", "open_mode",
    "task_prolog", "task_epilog", "bcast",
)  # fmt: skip
# input variables of a new job and its step; of two for one option the second is the stronger. Source: srun(1)
# of Slurm 22.05, "INPUT ENVIRONMENT VARIABLES"
OF_ENVIRONMENT = {
    **{f"SLURM_{name.upper().replace('-', '_')}": name for name in (
        "account", "bcast", "clusters", "constraint", "core-spec", "cpu-bind", "cpus-per-gpu", "dependency",
        "distribution", "exclusive", "gpu-bind", "gpus", "gpus-per-node", "gpus-per-task", "gres",
        "immediate", "mem-per-cpu", "mem-per-gpu", "network", "ntasks-per-gpu", "ntasks-per-node",
        "open-mode", "partition", "qos", "reservation", "signal", "task-epilog", "task-prolog",
        "thread-spec",
    )},
    "SLURM_BURST_BUFFER": "bb", "SLURM_EXACT": "exact", "SLURM_EXPORT_ENV": "export",
    "SRUN_EXPORT_ENV": "export", "SLURM_JOB_NAME": "job-name", "SLURM_KILL_BAD_EXIT": "kill-on-bad-exit",
    "SLURM_LABELIO": "label", "SLURM_MEM_PER_NODE": "mem", "SLURM_MPI_TYPE": "mpi",
    "SLURM_JOB_NUM_NODES": "nodes", "SLURM_NPROCS": "ntasks",
    "SLURM_NTASKS": "ntasks", "SLURM_OVERLAP": "overlap", "SLURM_REQ_SWITCH": "switches",
    "SLURM_STDERRMODE": "error", "SLURM_STDINMODE": "input", "SLURM_STDOUTMODE": "output",
    "SLURM_TIMELIMIT": "time", "SLURM_UNBUFFEREDIO": "unbuffered", "SLURM_WORKING_DIR": "chdir",
    "SRUN_CONTAINER": "container", "SRUN_CPUS_PER_TASK": "cpus-per-task",
}  # fmt: skip
NO_VALUE = ("exact", "label", "overlap", "unbuffered")
OCTAL = frozenset("01234567")
UMASK, WAITS = "SLURM_UMASK", "SLURM_WAIT"
WITHOUT_EFFECT = (
    "disable_status", "threads", "msg_timeout", "max_exit_timeout", "slurmd_debug", "accel_bind",
    "quit_on_interrupt",
)  # fmt: skip
JOB, WAIT = "--jobid", "--wait"


def run(words: Sequence[str]) -> int:
    named, rest = _job_named(words)
    job = named or os.environ.get("SLURM_JOB_ID", "")
    inside = os.environ.get("RM_STEPS") and job == os.environ.get("SLURM_JOB_ID")
    if job and not inside and (named or os.environ.get("RM_ALLOCATION") == job):
        return _in_allocation(job, rest)
    if not job:
        return _in_new_job(words)
    # a script that puts our directory before the job's own comes here
    ours = os.path.dirname(os.path.realpath(sys.argv[0]))
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        program = os.path.join(folder, "srun")
        if os.access(program, os.X_OK) and os.path.dirname(os.path.realpath(program)) != ours:
            os.execv(program, ["srun", *words])
    raise UsageError(
        "This job's host has no srun.", "Its agent provides it: upgrade the agents of the hosts."
    )


def _job_named(words: Sequence[str]) -> tuple[str, list[str]]:
    """The job of --jobid, where that is among the first options, and the words without it."""
    for at, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name == JOB and equals:
            return value, [*words[:at], *words[at + 1 :]]
        if name == JOB and at + 1 < len(words):
            return words[at + 1], [*words[:at], *words[at + 2 :]]
        if not word.startswith("-"):
            break
    return "", list(words)


def _in_new_job(words: Sequence[str]) -> int:
    from rm.cli.jobs.run import How, run_command, seconds_of
    from rm.cli.session import Session
    from rm.cli.slurm.refusals import no_parts, refused

    own_words, wait_s = _without_wait(words)
    wait_s = wait_s or os.environ.get(WAITS, "")
    set_words = _of_environment(os.environ)
    given, _ = directives.leading_options(set_words, "a variable of the environment", OWN)
    of_line, command = directives.leading_options(own_words, "a flag", OWN, abbreviated=True)
    no_parts(command)
    given += of_line  # which are the stronger ones
    mask = os.environ.get(UMASK, "")
    if mask and OCTAL.issuperset(mask):
        os.umask(int(mask, 8) & 0o777)
    flags = {option.key: value for option, value in given}
    for key in WITHOUT_EFFECT:
        flags.pop(key, None)
    options = [
        f"--{key.replace('_', '-')}" + ("" if value is True else f"={value}")
        for key in OF_STEP
        if (value := flags.pop(key, None)) is not None
    ]
    options += [f"{WAIT}={wait_s}"] if wait_s else []
    kills, immediate = flags.pop("kill_on_bad_exit", None), flags.pop("immediate", None)
    how = How(
        terminal=bool(flags.pop("pty", False)) and _has_terminal(),
        label=bool(flags.pop("label", False)),
        kill_on_bad_exit=kills is not None and kills not in ("0", "no"),
        quiet=bool(flags.pop("quiet", False)),
        unbuffered=bool(flags.pop("unbuffered", False)),
        options=options,
        line=submit_line("srun", words),
        immediate_s=None if immediate is None else seconds_of(immediate),
    )
    with refused("Unable to allocate resources", submits=False):
        return run_command(Session(None, None), flags, how, command, "")


def _of_environment(environment: Mapping[str, str]) -> list[str]:
    """The options that variables set, as words. Of those without a value 0 is none."""
    words = []
    for variable, name in OF_ENVIRONMENT.items():
        value = environment.get(variable, "")
        if name in NO_VALUE:
            words += [f"--{name}"] if value not in ("", "0", "no") else []
        elif value:
            words.append(f"--{name}={value}")
    return words


def _has_terminal() -> bool:
    """Without one --pty has no effect, in Slurm's words."""
    from rm.cli.jobs.attended import shows_terminal
    from rm.cli.output import note

    if shows_terminal():
        return True
    note(f"error: ioctl(TIOCGWINSZ): {os.strerror(errno.ENOTTY)}")
    note("error: Not using a pseudo-terminal, disregarding --pty option")
    return False


def _without_wait(words: Sequence[str]) -> tuple[list[str], str]:
    """The words without --wait, before the command, and its value: of `srun` it has a number of seconds."""
    kept, rest, value = list[str](), list(words), ""
    while rest and rest[0].startswith("-") and rest[0] not in ("-", "--"):
        word = rest.pop(0)
        if word in ("-W", WAIT):
            value = rest.pop(0) if rest else ""
        elif word.startswith(f"{WAIT}="):
            value = word.partition("=")[2]
        elif word.startswith("-W") and word[2:].isdecimal():
            value = word[2:]
        else:
            kept.append(word)
            if (word[2:] in VALUES if word.startswith("--") else word[1:] in LETTERS) and rest:
                kept.append(rest.pop(0))
    return kept + rest, value


def _in_allocation(job: str, words: Sequence[str]) -> int:
    """A step of a job that runs, from outside of its hosts: its own `srun`, with our streams."""
    from rm.cli.jobs.attended import Attendance, Signals, beginning, shows_terminal
    from rm.cli.jobs.enter import one_number
    from rm.cli.session import Session

    session = Session(None, None)
    number = one_number(session, job)
    spec = session.client.job(number).spec
    argv = there(words, os.environ, dict(getattr(spec, "env", ())), os.getcwd(), spec.chdir)
    terminal = asks_for_terminal(words) and shows_terminal()  # else the far `srun` says what is missing
    begin = beginning(argv, terminal, outside=True)  # where a step without an image runs
    with Signals() as signals:
        name = os.urandom(10).hex()
        return Attendance(session, number, "", name, begin, terminal=terminal, interrupts=not terminal).run(
            signals
        )


# the options of a step that take the next word as their value: the job's own `srun` reads them
_TAKING = """
    accel-bind account acctg-freq array bb bbf bcast-exclude begin chdir cluster-constraint clusters comment
    constraint container container-env
    container-image container-mounts container-name container-save container-workdir core-spec
    cores-per-socket cpu-bind cpu-freq cpus-per-gpu cpus-per-task deadline delay-boot dependency
    distribution epilog error exclude export extra-node-info gid gpu-bind gpu-freq gpus gpus-per-node
    gpus-per-task gres gres-flags het-group hint input job-name jobid licenses mail-type mail-user
    gpus-per-socket max-exit-timeout mcs-label mem mem-bind mem-per-cpu mem-per-gpu mincpus mpi msg-timeout
    network nodefile nodelist nodes ntasks ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket
    open-mode output partition power prefer priority profile prolog qos relative reservation signal
    slurmd-debug sockets-per-node switches task-epilog task-prolog thread-spec threads threads-per-core time
    time-min tmp uid wait wckey
"""
VALUES = frozenset(_TAKING.split())
LETTERS = frozenset("ABCDFGJLMNSTWcdeimnopqrtwx")


def asks_for_terminal(words: Sequence[str]) -> bool:
    """Is --pty among the options, before the command, whose own words are its own?"""
    rest = iter(words)
    for word in rest:
        if word in ("-", "--") or not word.startswith("-"):
            return False
        if word == "--pty" or word.startswith("--pty="):
            return True
        letters = "" if word.startswith("--") else word[1:]
        takes = next((at for at, letter in enumerate(letters, 1) if letter in LETTERS), 0)
        if word[2:] in VALUES if not letters else takes == len(letters):
            next(rest, "")
    return False


# of this machine, this login or this process: another machine has its own
_NOT_PASSED = frozenset({
    "HOME", "USER", "LOGNAME", "SHELL", "PWD", "OLDPWD", "SHLVL", "_", "HOSTNAME", "TERM", "TMPDIR",
    "DISPLAY", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "LD_PRELOAD", "PATH", "PYTHONPATH",
})  # fmt: skip
_NOT_PASSED_BEGIN = ("SLURM_", "RM_", "SSH_", "SBATCH_", "SALLOC_", "BASH_FUNC_")
# the job's own programs stay first, as its `srun` is one of them
_WITH_PATHS = 'export PATH="${PATH%%:*}:$1" PYTHONPATH="${2:+$2:}$PYTHONPATH"; shift 2; exec srun "$@"'


def there(
    words: Sequence[str], own: Mapping[str, str], known: Mapping[str, str], cwd: str, chdir: str
) -> list[str]:
    """The command that runs `srun` with these words in the job, as if it was run here: with what has changed
    in the environment `own` since it was `known` at the submission, and in the directory `cwd`, where that
    is not the job's `chdir`."""

    def passed(name: str) -> bool:
        return name not in _NOT_PASSED and not name.startswith(_NOT_PASSED_BEGIN)

    news = [f"{n}={v}" for n, v in own.items() if passed(n) and known.get(n) != v]
    gone = [word for n in known if passed(n) and n not in own for word in ("-u", n)]
    where = [] if cwd == chdir else ["--chdir", cwd]
    command = ["srun", *where, *words]
    path = own.get("PATH", "")
    if "RM_ALLOCATION" in own:  # whose `srun` is first in it
        path = path.partition(":")[2]
    paths = path, own.get("PYTHONPATH", "")
    if paths != (known.get("PATH", ""), known.get("PYTHONPATH", "")):
        command = ["sh", "-c", _WITH_PATHS, "srun", *paths, *command[1:]]
    return ["env", *gone, *news, *command] if gone or news else command
