"""Steps with a time limit, and steps that nobody waits for (`async` with `poll: 0`) with `async_status`.

A step in the background is a process of its own, without the connection and without a parent; its result
is a file of its user's, until it is asked for with `mode: cleanup`, or for a day.
"""

import contextlib
import json
import os
import signal

from rm_steps_base import StepFailed
from rm_steps_private import private_folder

KEEP_S = 86_400
_NAME = "0123456789j."


class TimedOut(BaseException):
    """Not an Exception: what a step catches on its way must not keep it."""


@contextlib.contextmanager
def time_limit(seconds):
    """What runs longer is broken off; a program that it waits for is killed."""

    def over(*_):
        raise TimedOut

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    except TimedOut:
        said = "Timed out after %g second(s)." % seconds
        raise StepFailed(said, timedout={"period": seconds}) from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def folder():
    return private_folder("async")


def _sweep():
    import time

    for name in os.listdir(folder()):
        path = os.path.join(folder(), name)
        with contextlib.suppress(OSError):
            if os.stat(path).st_mtime < time.time() - KEEP_S:
                os.unlink(path)


def _keep(path, said):
    fd = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(fd, "w") as file:
        json.dump(said, file)
    os.rename(path + ".new", path)


def start(run_step, run, step):
    """Start a step in the background; answers what `async_status` can be asked for."""
    _sweep()
    job = "j%d.%d" % (int.from_bytes(os.urandom(5), "big"), os.getpid())
    path = os.path.join(folder(), job)
    said = {"ansible_job_id": job, "started": True, "finished": False, "results_file": path}
    _keep(path, said)
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return dict(said, changed=True)
    try:
        os.setsid()
        if os.fork() == 0:
            _work(run_step, run, step, path, said)
    finally:
        os._exit(0)


def _work(run_step, run, step, path, said):
    """In the background: nothing of the connection is kept open."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    os.closerange(3, 4096)
    step = {key: value for key, value in step.items() if key not in ("async", "user")}
    result = run_step(run, step)
    _keep(path, dict(result, **dict(said, finished=True)))


def do_async_status(run, args):
    job = args["jid"]
    missing = {"ansible_job_id": job, "started": True, "finished": True}
    if not job or set(job) - set(_NAME):
        raise StepFailed("could not find job", **missing)
    path = os.path.join(folder(), job)
    try:
        with open(path) as file:
            found = json.load(file)
    except FileNotFoundError:
        raise StepFailed("could not find job", **missing) from None
    if args["mode"] == "cleanup":
        if not run.check:
            os.unlink(path)
            with contextlib.suppress(OSError):  # others may still be there
                os.rmdir(os.path.dirname(path))
        return {"ansible_job_id": job, "erased": path, "changed": False}
    return dict({"changed": False}, **found)
