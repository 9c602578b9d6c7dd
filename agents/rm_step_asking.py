"""What srun says to the step daemon of its job: that it wants a step, and how that ended."""

import json
import os
import socket

from rm_srun_options import Wrong
from rm_step_attached import line

TELL_S = 5.0
LINE_BYTES = 4096


def connected(path):
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.connect(path)
    except OSError as error:
        raise Wrong("The job's host cannot be asked for a step: %s." % os.strerror(error.errno)) from None
    return sock


def create(sock, step, immediate, tell):
    """Ask for the step, and wait until it has its hosts: the answer, and who attends it already. `tell` hears
    that it waits."""
    asked = {"op": "create", "step": step, "immediate": immediate, "attachable": True}
    sock.sendall(json.dumps(asked).encode() + b"\n")
    waited, rest, attached = False, bytearray(), []
    while True:
        said = line(sock, rest, attached)
        if not said:
            raise Wrong("The job ends; there is no step.")
        answer = json.loads(said)
        if "error" in answer:
            wrong = Wrong("Unable to create step: %s" % answer["error"])
            wrong.immediate = bool(answer.get("busy"))
            raise wrong
        if "waits" in answer:
            waited = True
            if tell:
                tell("Job step creation temporarily disabled, retrying (Requested nodes are busy)")
            continue
        if waited and tell:
            tell("Step created for job %s" % os.environ.get("SLURM_JOB_ID"))
        return answer, attached


def tell_end(control, made):
    """For the job's accounting, before the end of the job's script can end the one who keeps it."""
    code, number = made.how
    ended = {"code": code, "signal": number, "why": made.why if made.code else ""}
    try:
        control.settimeout(TELL_S)
        control.sendall(json.dumps({"ended": ended}).encode() + b"\n")
        control.recv(LINE_BYTES)
    except OSError:
        pass  # then nobody knows how it ended
