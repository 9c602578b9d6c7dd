"""Who runs the epilog of an attempt whose supervisor is gone: a process that holds the attempt's folder, as a
supervisor does, so that for every agent the attempt lives until its epilog is over."""

import os
import select
import traceback

import rm_epilog
import rm_job_program
from rm_task import detach, woken_by_children


def begin(folder, control):
    """The process id of who runs it; 0: it is not to be run, or somebody does. Orders of agents come to the
    fifo `control`, and are not followed: nothing is left that could be stopped."""
    lock = folder.lock()
    if lock is None:
        return 0
    pid = os.fork()
    if pid:
        os.close(lock)
        return pid
    try:
        os.setsid()
        inbox = os.open(control, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC) if os.path.exists(control) else -1
        detach({lock, inbox})
        _run(folder)
    except BaseException:
        with open(folder.at("supervisor.err"), "a") as file:
            file.write(traceback.format_exc())
    finally:
        os._exit(0)


def _run(folder):
    if not rm_epilog.take(folder):
        return
    what = rm_epilog.taken(folder)
    wake, _ = woken_by_children()

    def wait(left_s):
        if select.select([wake], [], [], left_s)[0]:
            os.read(wake, 4096)

    run = rm_job_program.Run("epilog", what["path"], what["environ"], folder, what["within_us"] / 1e6)
    rm_epilog.end(folder, run.to_its_end(wait))
