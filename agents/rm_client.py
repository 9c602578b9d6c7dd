"""squeue, sbatch and Slurm's other commands inside a job of rm: the daemon runs them for the job's user.

    rm_client.py NAME [WORDS...]

A program of the job. It waits at the step daemon (rm_step_asks.py) for a connection to the daemon, says what
it was called with, and does there what the command does here: writes its output, reads its files and its
standard input, all with the rights of this program. Source of the frames: rm/protocol/clients.py.
"""

import errno
import json
import os
import select
import signal
import socket
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from rm_sockets import write
from rm_step_attached import line
from rm_step_frames import REQUEST_BYTES, frame, frames

REQUEST, ANSWER = b"R", b"A"  # this program says
OUTPUT, ERRORS, ENDED, AGAIN = b"O", b"X", b"D", b"Z"  # the daemon says, and what it asks for:
READ, HEAR, IS_FILE, WRITE = b"F", b"N", b"K", b"W"
ANSWER_S = 60.0  # that the daemon has to come
SILENCE_S = 120.0  # of a daemon that has come: it gives a command less
PIECE_BYTES = 64 << 10
RUN_HERE = ("salloc",)  # whose command is of this host: it needs rm's own programs, which a host may have
RMS = b"written by `rmx slurm-shims`"  # rm/cli/program_files.py writes it
LOCALTIME, ZONES = "/etc/localtime", "zoneinfo/"


class NoAnswer(Exception):
    """There is no way to the daemon. The message is a sentence."""


def end_by_signals():
    """As programs do that are not Python's: in silence."""
    for number in (signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)


def main(words):
    end_by_signals()
    try:
        if words[0] in RUN_HERE:
            another(words[0], words[1:], RMS)
        return run(words[0], words[1:])
    except NoAnswer as error:
        sys.stderr.write("%s: error: %s\n" % (words[0], error))
        return 1


def run(name, words):
    """The exit code of the command.

    Raises:
        NoAnswer: see there.
    """
    waits_s = 0  # where the command looks again and again, it goes on when the daemon is back
    while True:
        try:
            number, again = once(name, words)
        except NoAnswer:
            if not waits_s:
                raise
        else:
            if again is None:
                return number
            waits_s, words = number, again
        time.sleep(waits_s)


def once(name, words):
    """(exit code, None), or (seconds until it is to be asked again, the words of that)."""
    sock, inbox = connection(os.environ.get("RM_STEPS")), bytearray()
    kept = []  # what the command has written: who reads it slowly keeps no place at the daemon
    asked = {"program": name, "words": words, "env": environment(), "cwd": here()}
    try:
        sock.sendall(frame(REQUEST, 0, json.dumps(asked).encode()))
        while True:
            data = sock.recv(PIECE_BYTES)
            if not data:
                raise NoAnswer("The connection to the daemon was lost before it had answered.")
            inbox += data
            for kind, number, said in frames(inbox):
                if kind in (OUTPUT, ERRORS):
                    kept.append((1 if kind == OUTPUT else 2, said))
                    continue
                while kept:
                    write(*kept.pop(0))
                if kind in (ENDED, AGAIN):
                    return number, json.loads(said) if kind == AGAIN else None
                sock.sendall(frame(ANSWER, *done(kind, number, said)))
    except (OSError, ValueError) as error:
        raise NoAnswer("The connection to the daemon was lost: %s." % error) from None


def connection(path):
    """To the daemon, once it has come."""
    if not path:
        raise NoAnswer("This is not a job whose script runs once: submit it with --launch=batch.")
    control, passed = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM), []
    try:
        control.connect(path)
        control.sendall(b'{"op": "ask"}\n')
        control.settimeout(ANSWER_S)
        said = line(control, bytearray(), passed)
    except socket.timeout:
        raise NoAnswer("The daemon does not answer within %d s." % ANSWER_S) from None
    except OSError as error:
        raise NoAnswer("The job's host cannot be asked: %s." % os.strerror(error.errno)) from None
    if not passed:
        told = json.loads(said) if said else {"error": "The job ends."}
        raise NoAnswer(told.get("error", "The connection to the daemon could not be passed on."))
    passed[0].settimeout(SILENCE_S)
    return passed[0]


def environment():
    environ = dict(os.environ)
    if "TZ" not in environ:
        zone = os.path.realpath(LOCALTIME).partition(ZONES)[2]
        if zone:
            environ["TZ"] = zone
    return environ


def here():
    try:
        return os.getcwd()
    except OSError:
        return ""


def done(kind, number, said):
    """What the daemon asks for: (error number or 0, data)."""
    path, _, content = said.partition(b"\0")
    try:
        if kind == READ:
            with open(path, "rb") as file:
                return 0, file.read(min(number, REQUEST_BYTES))
        if kind == HEAR:
            select.select([0], [], [])  # who started this may have made it one that does not wait
            return 0, os.read(0, min(number, PIECE_BYTES))
        if kind == IS_FILE:
            return 0, b"1" if os.path.isfile(path) and os.access(path, os.R_OK) else b""
        if kind == WRITE:
            with open(path, "wb") as file:
                file.write(content)
            return 0, b""
    except OSError as error:
        return error.errno or errno.EIO, b""
    except ValueError:  # a path with a zero byte
        return errno.EINVAL, b""
    return errno.ENOSYS, b""


def another(name, words, mark=b""):
    """Become the next program of that name in PATH that is not a job's own, and that begins with the mark in
    its text; returns where there is none."""
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        program = os.path.join(folder, name)
        try:
            if os.access(program, os.X_OK) and is_other(program, mark):
                os.execv(program, [name, *words])
        except OSError as error:  # such as one of a shared directory, whose interpreter this host lacks
            sys.stderr.write("%s: %s cannot be started here: %s.\n" % (name, program, error.strerror))


def is_other(program, mark):
    """A job's own only starts a module of this folder: see rm_stream_hub.PROGRAM."""
    with open(program, "rb") as file:
        start = file.read(4096)
    return mark in start and b"import rm_" not in start


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
