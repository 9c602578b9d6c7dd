"""sattach inside a job of rm: see, and say, what the tasks of a running step say and hear.

    sattach [OPTIONS] JOB.STEP

A program of the job. The step daemon (rm_stepd.py) passes its connection on to the srun of the step, which
goes on as before. It ends with the step, and with its code.
"""

import getopt
import json
import os
import select
import signal
import socket
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import rm_sockets
from rm_srun_options import Wrong
from rm_srun_terminal import Terminal, line_end
from rm_step_frames import (
    ALL,
    ENDED,
    ERRORS,
    FRAME_BYTES,
    INPUT,
    LOST,
    OUTPUT,
    REQUEST,
    SIGNAL,
    frame,
    frames,
)
from rm_step_output import Output
from rm_step_plan import folded_hosts

LONGS = ("input-filter=", "output-filter=", "error-filter=", "label", "layout", "pty", "quiet", "unbuffered",
         "signal=", "verbose", "help", "usage", "version")  # fmt: skip
OF_LETTER = {"l": "label", "Q": "quiet", "u": "unbuffered", "v": "verbose", "h": "help", "V": "version"}
ANSWER_S = 10.0  # that the srun has to answer who sends a signal
FILTERS = ("input-filter", "output-filter", "error-filter")


def say(text):
    sys.stderr.write("sattach: %s%s" % (text, line_end()))
    sys.stderr.flush()


def main(words):
    try:
        values, step = parsed(words, os.environ)
        if step is None:
            sys.stdout.write("sattach [OPTIONS] JOB.STEP: rm's; docs/interactive.md has its options\n")
            return 0
        return Attached(values, step, connected(step)).run()
    except Wrong as error:
        say("error: %s" % error)
        return 1


def parsed(words, environ):
    """(option -> text, number of the step); no number if only help is wanted."""
    try:
        found, names = getopt.gnu_getopt(words, "".join(OF_LETTER), LONGS)
    except getopt.GetoptError as error:
        raise Wrong("%s; this sattach is rm's." % error) from None
    values = {OF_LETTER.get(flag.lstrip("-"), flag.lstrip("-")): value for flag, value in found}
    if {"help", "usage", "version"} & values.keys():
        return values, None
    if len(names) != 1:
        raise Wrong("Name one step, as in 42.0.")
    for name in FILTERS:
        if name in values and "pty" in values:
            raise Wrong("--%s incompatible with --pty option" % name)
        if name in values and not values[name].isdigit():
            raise Wrong("--%s is '%s': write the number of a task." % (name, values[name]))
    if not (values.get("signal", "0").isdigit() and int(values.get("signal", "0")) < signal.NSIG):
        raise Wrong("--signal is '%s': write the number of a signal; 0 ends the step." % values["signal"])
    job, _, step = names[0].rpartition(".")
    mine = environ.get("SLURM_JOB_ID", ""), "%s_%s" % (
        environ.get("SLURM_ARRAY_JOB_ID"), environ.get("SLURM_ARRAY_TASK_ID"),
    )  # fmt: skip
    if job not in mine or not step.isdigit():
        raise Wrong("'%s' is no step of this job: name one as in %s.0." % (names[0], mine[0]))
    return values, int(step)


def connected(step):
    path = os.environ.get("RM_STEPS")
    if not path:
        raise Wrong("This is not a job whose script runs once: submit it with --launch=batch.")
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.connect(path)
        sock.sendall(json.dumps({"op": "attach", "step": step}).encode() + b"\n")
    except OSError as error:
        raise Wrong("The job's host cannot be asked for a step: %s." % os.strerror(error.errno)) from None
    return sock


class Attached:
    """`sock`: what the step daemon refuses comes as a line of JSON, all else as frames of srun's."""

    def __init__(self, values, step, sock):
        self.values, self.step, self.sock = values, step, sock
        self.inbox, self.outbox = bytearray(), bytearray()
        self.stdin, self.rank = 0, int(values.get("input-filter") or (0 if "pty" in values else ALL))
        self.hello = None
        self.until = time.monotonic() + ANSWER_S if "signal" in values else None
        self.left, self.code = set(), 0

    def run(self):
        """Until all tasks have ended; the largest code."""
        while self.hello is None:
            self._wait()
            self._hear()
        hosts = {int(rank): host for rank, host in self.hello["hosts"].items()}
        if "signal" in self.values:
            return self._send(int(self.values["signal"]))
        if "layout" in self.values:
            sys.stdout.write(layout(hosts))
            return 0
        for name in FILTERS:
            if name in self.values and int(self.values[name]) not in hosts:
                raise Wrong("--%s: the step has no task %s." % (name, self.values[name]))
        self.left, self.code = set(self.hello["left"]), self.hello["code"]
        width, whole = len(str(len(hosts) - 1)), "unbuffered" in self.values or "pty" in self.values
        made = [Output(fd, self.values.get(name, ""), "label" in self.values, width, None, 0, whole)
                for fd, name in ((1, "output-filter"), (2, "error-filter"))]  # fmt: skip
        for output in made:
            output.open(sorted(hosts))
        self.by_kind = {OUTPUT: made[0], ERRORS: made[1]}
        self.sock.setblocking(False)
        if "pty" not in self.values:
            return self._stream()
        try:
            terminal = Terminal()
        except OSError:
            raise Wrong("--pty wants a terminal, and standard input is none.") from None
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        with terminal:
            return self._stream()

    def _send(self, number):
        """A signal to the step, instead of attending it: srun says when it has passed it on."""
        rm_sockets.say(self.sock, bytearray(frame(SIGNAL, number)))  # who is gone says so below
        while True:
            for kind, answer, _ in frames(self.inbox):
                if (kind, answer) == (SIGNAL, number):
                    return 0
            self._wait()
            data = rm_sockets.hear(self.sock, FRAME_BYTES)
            if not data:
                raise Wrong("Step %d has ended, or its srun is of an older agent." % self.step)
            self.inbox += data

    def _wait(self):
        """For what srun says: one that is stopped says nothing for ever."""
        if self.until is None:
            return
        poll = select.poll()
        poll.register(self.sock, select.POLLIN)
        if not poll.poll(max(0.0, self.until - time.monotonic()) * 1000):
            raise Wrong("The srun of step %d does not answer." % self.step)

    def _stream(self):
        self._take()  # what came with the first words
        while self.left:
            poll = select.poll()
            poll.register(self.sock, select.POLLIN | (select.POLLOUT if self.outbox else 0))
            if self.stdin >= 0 and not self.outbox:
                poll.register(self.stdin, select.POLLIN)
            for fd, events in poll.poll():
                if fd == self.stdin:
                    self._read_input()
                    continue
                if events & select.POLLOUT and not rm_sockets.say(self.sock, self.outbox):
                    self.outbox.clear()
                if events & ~select.POLLOUT:
                    self._hear()
        for stream in self.by_kind.values():
            stream.end_all()
        return self.code

    def _read_input(self):
        try:
            data = os.read(self.stdin, FRAME_BYTES // 2)
        except OSError:
            data = b""
        if not data:
            self.stdin = -1
            return
        self.outbox += frame(INPUT, self.rank, data)

    def _hear(self):
        data = rm_sockets.hear(self.sock, 1 << 18)
        if data is None:
            return
        if not data:
            raise Wrong("Step %d has ended, or cannot be attached." % self.step)
        self.inbox += data
        if self.hello is not None:
            self._take()
        elif self.inbox.startswith(b"{"):
            if b"\n" in self.inbox:
                raise Wrong(json.loads(self.inbox.partition(b"\n")[0])["error"])
        else:
            for kind, _, body in frames(self.inbox):
                if kind == REQUEST:
                    self.hello = json.loads(body)
                    return

    def _take(self):
        for kind, rank, body in frames(self.inbox):
            if kind in (OUTPUT, ERRORS):
                self.by_kind[kind].take(rank, body)
            elif kind == LOST:
                say("%d bytes are not shown: they came faster than they were taken" % int(body))
            elif kind == ENDED:
                self._ended(rank, *map(int, body.split()))

    def _ended(self, rank, code, number):
        self.left.discard(rank)
        for stream in self.by_kind.values():
            stream.end(rank)
        self.code = max(self.code, 128 + number if number else code)
        if (code or number) and "quiet" not in self.values:
            how = "was ended by signal %d" % number if number else "exited with exit code %d" % code
            say("error: task %d %s" % (rank, how))


def layout(hosts):
    """As Slurm writes it. `hosts`: rank -> host."""
    by_host = {}
    for rank in sorted(hosts):
        by_host.setdefault(hosts[rank], []).append(rank)
    of = len(hosts), len(by_host), folded_hosts(list(by_host))
    lines = ["Job step layout:", "\t%d tasks, %d nodes (%s)" % of, ""]
    for node, (host, ranks) in enumerate(by_host.items()):
        lines.append("\tNode %d (%s), %d task(s): %s " % (node, host, len(ranks), " ".join(map(str, ranks))))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
