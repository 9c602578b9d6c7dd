"""`rmx forward`: a port of a job's host, on this machine."""

from __future__ import annotations

import os
import socket
import threading

import click

from rm.cli.jobs.attended import Signals
from rm.cli.jobs.enter import one_number
from rm.cli.output import note
from rm.cli.session import Session, completes
from rm.client.forwarding import Forwarding
from rm.errors import Conflict, NotFound, RmError, UsageError
from rm.units import number_of

WAIT_S = 10.0  # one question for the job's end


def ports(word: str) -> tuple[int, int]:
    """(port of the host, port here) of PORT or PORT:LOCAL; 0 here is any free one.

    Raises:
        UsageError: they are no ports.
    """
    there, colon, here = word.partition(":")
    words = (there, here if colon else there)
    numbers = [-1 if (number := number_of(text)) is None else number for text in words]
    if not (1 <= numbers[0] <= 65535 and 0 <= numbers[1] <= 65535):
        raise UsageError(
            f"'{word}' names no port.",
            "Write PORT or PORT:LOCAL, numbers up to 65535; LOCAL 0 is any free one.",
        )
    return numbers[0], numbers[1]


def listening(address: str, port: int) -> socket.socket:
    """A socket that listens there.

    Raises:
        UsageError: it cannot be had.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        return socket.create_server((address, port), family=family)
    except OSError as error:
        raise UsageError(
            f"Port {port} of {address} cannot be listened at: {os.strerror(error.errno or 0)}.",
            "Name another one behind a colon, as in 8888:9999; 0 takes any free one.",
        ) from None


@click.command()
@click.option("--host", metavar="HOST", default="", help="Of the job's hosts; its first one if not given.")
@click.option(
    "--bind",
    metavar="ADDRESS",
    default="127.0.0.1",
    show_default=True,
    help="Where to listen here.",
)
@click.argument("job", shell_complete=completes("jobs"))
@click.argument("port", metavar="PORT[:LOCAL]")
@click.pass_obj
def forward(session: Session, /, host: str, bind: str, job: str, port: str) -> int:
    """Let programs of this machine connect to PORT of a host of the running JOB, until the job ends.

    They connect to LOCAL here, which is the same number if it is not given.
    """
    number, (there, here) = one_number(session, job), ports(port)
    found = session.client.job(number)
    if found.state != "RUNNING":
        raise Conflict(f"Job {number} does not run: it is {found.state}.", f"`rmx show {number}` tells more.")
    host = host or found.hosts[0]
    if host not in found.hosts:
        raise NotFound(f"Job {number} does not run on {host}.", f"It runs on {', '.join(found.hosts)}.")
    with listening(bind, here) as listener, Signals() as signals:
        at = listener.getsockname()
        shown = f"[{at[0]}]" if ":" in at[0] else at[0]
        note(f"{shown}:{at[1]} is port {there} of {host} in job {number}, until it ends or Ctrl-C.")
        told, tells = os.pipe()
        ended: list[str] = []
        threading.Thread(target=_until_ended, args=(session, number, ended, tells), daemon=True).start()
        forwarding = Forwarding(session.new_connection, listener, number, host, there, note)
        forwarding.run((told, signals.wake), lambda: bool(ended or signals.ending()))
    if ended:
        note(f"Job {number} ended {ended[0]}: nothing is forwarded any more.")
        return 0
    return 128 + signals.ending()


def _until_ended(session: Session, job: int, ended: list[str], tells: int) -> None:
    pause = threading.Event()
    while not ended:
        try:
            with session.new_client() as client:
                found = client.wait(job, WAIT_S)
        except NotFound:
            ended.append("and is forgotten")
        except (RmError, OSError):  # not yet, or the daemon is away
            pause.wait(0.5)
        else:
            ended.append(found.state)
    os.write(tells, b".")
