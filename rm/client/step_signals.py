"""A signal to one step of a job: its `sattach` says it to the `srun` of the step."""

from __future__ import annotations

import os
from collections import deque
from threading import Timer
from typing import TYPE_CHECKING

from rm.client.attending import Session, Streams
from rm.errors import Conflict

if TYPE_CHECKING:
    from collections.abc import Callable

    from rm.arrays import JobId
    from rm.client.client import Client

END = 0  # SIGTERM, and SIGKILL half a minute later
WAIT_S = 30.0  # longer than `sattach` waits for the srun
TELL_S = 3.0  # silence after which it is said what is waited for
PATIENCE_S = 60.0  # with a daemon that went away
SAID_BYTES = 4096
SAID_BY = "sattach: error: "


def signal_step(
    client: Client, job: JobId, step: int, signal: int | None, note: Callable[[str], None]
) -> None:
    """None ends the step. `note` hears what is waited for, perhaps on another thread.

    Raises:
        Conflict: the step does not run, or cannot be reached; any RmError of a session.
    """
    number = client.job(job).id if job.tasks else job.job
    argv = ["sattach", f"--signal={END if signal is None else signal}", f"{number}.{step}"]
    begin = {"argv": argv, "terminal": False, "rows": 0, "columns": 0, "term": ""}
    said: deque[int] = deque(maxlen=SAID_BYTES)  # the last bytes: a host says as much as it likes
    name = os.urandom(10).hex()
    meanwhile = f"Trying again for {PATIENCE_S:g} s."
    session = Session(client.connection.beside, number, "", name, begin, note, PATIENCE_S, meanwhile)
    wakes, late = os.pipe()
    waits = f"Step {number}.{step} has not answered yet: its host or the daemon is silent."
    timers = Timer(TELL_S, note, (waits,)), Timer(WAIT_S, os.write, (late, b"."))
    for timer in timers:
        timer.daemon = True
        timer.start()
    try:
        streams = Streams(-1, -1, -1, wakes, lambda _: False, lambda _, data: said.extend(data))
        ended = session.attend(streams)
    finally:
        for timer in timers:
            timer.cancel()
            timer.join()  # else it may write to what has the number of `late` then
        session.close()
        os.close(wakes)
        os.close(late)
    if ended is None:
        raise Conflict(
            f"The host of step {number}.{step} does not answer.",
            f"`rmx show {number}` says whether the job is suspended.",
        )
    if ended.exit_code:
        told = bytes(said).decode(errors="replace").strip()
        raise Conflict(
            told.partition(SAID_BY)[2] or told or f"Step {number}.{step} was not reached.",
            f"`rmx show {number}` lists the job's steps.",
        )
