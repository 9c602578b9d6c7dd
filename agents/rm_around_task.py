"""The user's programs around a task of a step: srun's --task-prolog before it, --task-epilog after it.

They run on the task's host as its user, in its control group and with its environment.

Source: srun(1) of Slurm 22.05, and what its slurmstepd does with the prolog's output and either exit code.
"""

import contextlib
import os
import signal
import subprocess

from rm_become import PR_SET_PDEATHSIG, prctl

EPILOG_S = 5.0  # after which it is killed
PROLOG_BYTES = 1 << 20  # of what it prints
CONTEXT = "SLURM_SCRIPT_CONTEXT"
# of an agent that does not know these programs; the task ends with 1
REFUSAL = 'echo "srun: error: the agent of $(uname -n) does not know $1: upgrade it." >&2; exit 1'
SETTABLE = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}


def asking(asked, around):
    """What srun asks of a step's part, with one or both programs around its tasks. An agent from before them
    would run the tasks without: so what it reads as the command refuses, and the true one is in `around`."""
    given = [name for name in ("task_prolog", "task_epilog") if around[name]]
    names = " and ".join("--" + name.replace("_", "-") for name in given)
    told = dict(around, argv=asked["argv"], commands=asked.get("commands"))
    refusal = ["/bin/sh", "-c", REFUSAL, "srun", names]
    return dict(asked, argv=refusal, commands=None, around=told)


def asked_for(asked):
    """The same, as a part that knows of such programs reads it; an srun from before them sends none."""
    return dict(asked, **asked.get("around", {}))


def surrounded(asked, environ, host, rank, alone):
    """The environment of the task, after its prolog; it runs in this process, or in a new one if it has an
    epilog. Ends the process where the prolog failed. `alone`: signals reach this process, but no child."""

    def tell(words):
        with contextlib.suppress(OSError):
            os.write(2, ("srun: error: %s: task %d: %s\n" % (host, rank, words)).encode(errors="replace"))

    prolog, epilog = asked.get("task_prolog"), asked.get("task_epilog")
    if epilog:
        followed(epilog, environ, alone, tell)
        environ = dict(environ, SLURM_TASK_PID=str(os.getpid()))
    if not prolog:
        return environ
    try:
        environ, code = prepared(prolog, environ, lambda data: os.write(1, data))
    except OSError as error:
        tell("--task-prolog could not be started: %s: %s" % (prolog, os.strerror(error.errno or 0)))
        os._exit(1)
    if code:
        tell("--task-prolog failed status=%d" % code)
        os._exit(code)
    return environ


def prepared(path, environ, said):
    """The task's environment after the prolog: None, and its exit code, where it failed. `said` writes bytes
    to the task's output. OSError: it could not be started."""
    found = dict(environ, **{CONTEXT: "prolog_task"})
    with subprocess.Popen([path], env=found, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as run:
        printed = run.stdout.read(PROLOG_BYTES)
    if run.returncode:
        return None, run.returncode if run.returncode > 0 else 1
    return changed(found, printed.decode("utf-8", "surrogateescape"), said), 0


def changed(environ, printed, said):
    """The environment after the lines `export NAME=value` and `unset NAME`; `print TEXT` is said. Pure."""
    environ = dict(environ)
    for line in printed.split("\n"):
        word, blank, rest = line.partition(" ")
        rest = rest.lstrip()
        if not blank:
            continue
        if word == "print":
            said((rest + "\n").encode("utf-8", "surrogateescape"))
        elif word == "export":
            name, equals, value = rest.partition("=")
            if equals and name.rstrip() and "\0" not in rest:
                environ[name.rstrip()] = value
        elif word == "unset":
            environ.pop(rest.rstrip(), None)
    return environ


def followed(path, environ, passes_signals, tell):
    """Returns in a new process, which becomes the task. This one waits for it, runs the epilog and ends as
    the task did. `passes_signals`: signals reach this process alone. `tell` says a sentence to the user."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    pid = os.fork()
    if pid == 0:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return
    status = 1 << 8
    try:
        for number in SETTABLE:
            with contextlib.suppress(OSError, ValueError):
                signal.signal(number, (lambda n, _: os.kill(pid, n)) if passes_signals else signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        _let_go()
        _, status = os.waitpid(pid, 0)
        why = _run(path, dict(environ, **{CONTEXT: "epilog_task"}))
        if why:
            tell("--task-epilog %s" % why)
    finally:
        _end_as(status)


def _let_go():
    """Of what is the task's, and of what the part of the step holds for others: only output is ours."""
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    for word in os.listdir("/proc/self/fd"):
        if int(word) > 2:
            with contextlib.suppress(OSError):
                os.close(int(word))


def _run(path, environ):
    """Why the epilog failed, or ""."""
    try:
        run = subprocess.Popen(
            [path], env=environ, stdin=subprocess.DEVNULL, stdout=2, start_new_session=True,
            preexec_fn=lambda: [signal.signal(number, signal.SIG_DFL) for number in SETTABLE],
        )  # fmt: skip
    except OSError as error:
        return "could not be started: %s: %s" % (path, os.strerror(error.errno or 0))
    try:
        run.wait(EPILOG_S)
    except subprocess.TimeoutExpired:
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
        return "was killed after %d s" % EPILOG_S
    return "failed status=%d" % run.returncode if run.returncode else ""


def _end_as(status):
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status) if os.WIFEXITED(status) else 1)
