"""srun inside a job of rm: run a step on the job's hosts, and be its standard input, output and exit code.

    srun [OPTIONS] COMMAND [ARGUMENTS...]

A program of the job, with the rights of its user. The step daemon of the attempt (rm_stepd.py) says where the
tasks go; on each of these hosts a part (rm_step_part.py) runs them, with which this program talks in frames.
"""

import contextlib
import json
import os
import select
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import rm_pmi
import rm_srun_container
import rm_srun_layout
import rm_srun_options
import rm_srun_terminal
import rm_step_limits
from rm_srun_environment import step_environment
from rm_srun_input import Input, sources_of
from rm_srun_options import Wrong
from rm_srun_part import Nonsense, Part
from rm_step_asking import connected, create, tell_end
from rm_step_attached import Audience
from rm_step_bounds import open_many
from rm_step_frames import (
    ENDED,
    ERRORS,
    OUTPUT,
    PMI,
    REQUEST,
    SIGNAL,
    TAKEN,
    WINDOW,
    frame,
)
from rm_step_output import Output

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2,
             signal.SIGALRM)  # fmt: skip
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGKILL)
ABORT_S = 1.0  # a second SIGINT within this time kills
SLURM = "slurm 22.05.8"  # with which it was compared
LINE = 1000  # characters of what was typed that the step daemon hears
GRACE_S = 30.0  # from SIGTERM to SIGKILL


def say(text):
    sys.stderr.write("srun: %s%s" % (text, rm_srun_terminal.line_end()))
    sys.stderr.flush()


class Step:
    """`terminal` is ours, where task 0 is to have one."""

    def __init__(self, values, created, parts, environ, terminal=None):
        self.terminal = terminal
        self.audience = None  # who attends the step beside us
        self.values, self.parts, self.environ = values, parts, environ
        self.hosts = {rank: part.host for part in parts for rank in part.left}
        self.ranks = sorted(self.hosts)
        self.name = "%s.%s" % (environ.get("SLURM_JOB_ID", "?"), created["step"])
        self.part_of = {rank: part for part in parts for rank in part.left}
        self.pmi = None
        if values.get("mpi") == "pmi2":
            places = {rank: n for n, part in enumerate(parts) for rank in part.left}
            self.pmi = rm_pmi.Pmi([places[rank] for rank in self.ranks])
        self.code = 0
        self.how = (0, 0)  # the code and the signal by which the task ended that made the code
        self.why = ""  # the step was ended early
        self.quiet = "quiet" in values
        self.interrupted_at = 0.0
        self.kill_at = None
        self.ends = False  # all tasks got SIGTERM from here
        self.rest_s = int(values.get("wait") or 0)  # for which others may go on once a task has ended
        self.rest_ends_at = None
        kill = values.get("kill-on-bad-exit")
        self.kills = kill is not None and kill not in ("0", "no")
        width, label = len(str(len(self.ranks) - 1)), "label" in values
        appends = values.get("open-mode", "truncate").startswith("a")
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (os.O_APPEND if appends else os.O_TRUNC)
        nodes = {part.host: n for n, part in enumerate(parts)}

        def name_of(pattern, rank):
            known = {"t": rank, "n": nodes[self.hosts[rank]], "N": self.hosts[rank], "s": created["step"],
                     "j": environ.get("SLURM_JOB_ID", ""), "J": self.name, "u": environ.get("USER", ""),
                     "x": environ.get("SLURM_JOB_NAME", ""), "A": environ.get("SLURM_ARRAY_JOB_ID"),
                     "a": environ.get("SLURM_ARRAY_TASK_ID")}  # fmt: skip
            return os.path.join(values.get("chdir") or os.getcwd(), rm_srun_options.file_name(pattern, known))

        out, err = ("0", "0") if terminal else (values.get("output", ""), values.get("error", ""))
        unbuffered = "unbuffered" in values
        self.out = Output(1, out, label, width, name_of, flags, unbuffered)
        merged = not err and out not in ("", "all", "none") and not out.isdecimal()
        self.err = self.out if merged else Output(2, err, label, width, name_of, flags, unbuffered)
        try:
            sources = sources_of("0" if terminal else values.get("input", "all"), self.ranks, name_of)
        except OSError as error:
            raise Wrong("The file %s cannot be read: %s." % (error.filename, error.strerror)) from None
        self.input = Input(self.part_of, sources)

    def run(self):
        """Until all tasks have ended; the exit code."""
        self.out.open(self.ranks)
        self.err.open(self.ranks)
        limit = rm_srun_options.seconds(self.values["time"]) if self.values.get("time") else None
        ends_at = None if limit is None else time.monotonic() + limit
        for number in FORWARDED:
            signal.signal(number, self._forward)
        if self.terminal:
            signal.signal(signal.SIGWINCH, self._resize)
            self._resize()  # it may have changed before we looked
        self.input.begin()
        while any(part.left for part in self.parts):
            now = time.monotonic()
            if ends_at is not None and now >= ends_at:
                say("Job step %s CANCELLED DUE TO TIME LIMIT" % self.name)
                ends_at, self.why = None, "timeout"
                self._terminate()
            if self.rest_ends_at is not None and now >= self.rest_ends_at:
                say("First task exited %ds ago\nsrun: Terminating StepId=%s" % (self.rest_s, self.name))
                self.rest_s, self.rest_ends_at = 0, None
                self._terminate()
            if self.kill_at is not None and now >= self.kill_at:
                self.kill_at = None
                self._signal(signal.SIGKILL)
            self._turn([at for at in (ends_at, self.kill_at, self.rest_ends_at) if at is not None])
        for stream in (self.out, self.err):
            stream.end_all()
        return self.code

    def _turn(self, deadlines):
        poll = select.poll()
        by_fd = {}
        for part in self.parts:
            if part.left:
                by_fd[part.sock.fileno()] = part
                hears = select.POLLIN if part.hears() else 0
                poll.register(part.sock, hears | (select.POLLOUT if part.outbox else 0))
        self.input.watch(poll)
        wait_ms = None
        if deadlines:
            wait_ms = max(0, min(deadlines) - time.monotonic()) * 1000 + 1
        self.audience.watch(poll, self.input.hears())
        for fd, events in poll.poll(wait_ms):
            typed = self.audience.serve(fd, events)
            if fd in self.input.sources:
                self.input.read(fd)
            elif typed is not None:
                for rank, data in typed:
                    self.input.type(rank, data)
            elif events & select.POLLOUT:
                by_fd[fd].send()
            if fd in by_fd and events & ~select.POLLOUT:
                self._hear(by_fd[fd])

    def told_to_others(self):
        """The step, at this moment, for who attends it beside us."""
        left = sorted(rank for part in self.parts for rank in part.left)
        return {"name": self.name, "hosts": self.hosts, "left": left, "code": self.code}

    # what the parts say

    def _hear(self, part):
        try:
            for kind, rank, said in part.heard():
                self._take(part, kind, rank, said)
        except EOFError:
            self._lost(part)
        except Nonsense:
            say("error: %s: it says what no part of a step says" % part.host)
            self._lost(part)

    def _take(self, part, kind, rank, said):
        if kind in (OUTPUT, ERRORS):
            self.audience.tell(kind, rank, said)
            (self.out if kind == OUTPUT else self.err).take(rank, said)
        elif kind == TAKEN:
            self.input.taken(rank, said)
        elif kind == PMI and self.pmi is not None:
            self._pmi(rank, said)
        elif kind == ENDED:
            self._ended(part, rank, *said)

    def _pmi(self, rank, data):
        try:
            for other, answer in self.pmi.hear(rank, data):
                self.part_of[other].send(frame(PMI, other, answer))
        except rm_pmi.Wrong as error:
            say("error: task %d: %s" % (rank, error))
            self.pmi.aborted = 1
        if self.pmi.aborted is not None and not self.ends:
            self.code = max(self.code, self.pmi.aborted)
            self.how = (self.code & 255, 0)
            self._terminate()

    def _worse(self, code, how):
        if code > self.code:
            self.code, self.how = code, how

    def _lost(self, part):
        say("error: %s: its part of step %s is lost" % (part.host, self.name))
        for rank in part.left:
            self.audience.tell(ENDED, rank, b"1 0")
        part.leave()
        self._worse(1, (1, 0))
        self._signal(signal.SIGKILL)

    def _ended(self, part, rank, code, number):
        part.left.discard(rank)
        self.audience.tell(ENDED, rank, b"%d %d" % (code, number))
        for stream in (self.out, self.err):
            stream.end(rank)
        if self.rest_s and self.rest_ends_at is None:
            self.rest_ends_at = time.monotonic() + self.rest_s
        if not (code or number):
            return
        if self.pmi is None or self.pmi.aborted is None:  # else that rank's code is the step's
            self._worse(128 + number if number else code, (code, number))
        if not self.quiet:
            how = signal.strsignal(number) if number else "Exited with exit code %d" % code
            say("error: %s: task %d: %s" % (part.host, rank, how))
        if self.kills:
            self.kills = False
            say("Terminating StepId=%s" % self.name)
            self._terminate()

    # signals

    def _signal(self, number):
        for part in self.parts:
            if part.left:
                part.send(frame(SIGNAL, number))

    def _resize(self, *_):
        self.part_of[0].send(frame(WINDOW, 0, self.terminal.size()))

    def _terminate(self):
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)
        if not self.ends:  # who asks again does not put SIGKILL off
            self.ends, self.kill_at = True, time.monotonic() + GRACE_S

    def told_by_others(self, number):
        """Who attends the step sends it a signal; 0: it is to end, as Slurm's scancel of a step says."""
        if number in ENDING or not number:
            self.why = self.why or "cancelled"
        if number:
            self._signal(number)
            return
        if not self.ends:
            say("Job step %s CANCELLED" % self.name)
        self._terminate()

    def _forward(self, number, _frame):
        now = time.monotonic()
        if number == signal.SIGINT and now - self.interrupted_at < ABORT_S:
            number = signal.SIGKILL
        self.interrupted_at = now if number == signal.SIGINT else self.interrupted_at
        if number in ENDING:
            self.why = self.why or "cancelled"
        self._signal(number)


def main(words):
    environ = dict(os.environ)
    try:
        values, command = rm_srun_options.parsed(words, environ, say)
        if "version" in values:
            sys.stdout.write("%s by rm\n" % SLURM)
            return 0
        if {"help", "usage", "h"} & values.keys():
            sys.stdout.write("srun [OPTIONS] COMMAND [ARGUMENTS...]: rm's; docs/slurm.md has its options\n")
            return 0
        if values.get("mpi") == "list":
            sys.stdout.write("MPI plugin types are...\n\tnone\n\tpmi2\n")
            return 0
        job = environ.get("SLURM_JOB_ID", "")
        if values.get("jobid", job) != job:
            from rm_client import RMS, another  # few steps need it

            another("srun", words, RMS)
        return run(values, command, environ, " ".join(["srun", *words]))
    except Wrong as error:
        say("error: %s" % error)
        return rm_srun_options.code_of(error, environ)


def program_of(values, option):
    """The absolute path of a program around the tasks; "" for none."""
    path = values.get(option, "")
    return os.path.abspath(path) if path not in ("", "none") else ""


def run(values, command, environ, typed):
    if not command:
        raise Wrong("no command given to execute.")
    path = environ.get("RM_STEPS")
    if not path:
        raise Wrong("This is not a job whose script runs once: submit it with --launch=batch.")
    job = environ.get("SLURM_JOB_ID", "")
    if values.get("jobid", job) != job:
        raise Wrong("--jobid=%s is not this job, which is %s." % (values["jobid"], job))
    if values.get("mpi", "none") not in ("none", "openmpi", "pmi2"):
        raise Wrong("--mpi=%s is not supported: pmi2, or start MPI programs by mpirun." % values["mpi"])
    try:
        values = rm_srun_layout.with_files(values, environ)
        limits = rm_step_limits.own(rm_step_limits.named(values.get("propagate") or ""))
        open_many()  # a connection for each host, and with %t in names files for each rank
        container = rm_srun_container.asked_of(values, values.get("chdir") or os.getcwd())
    except ValueError as error:
        raise Wrong(str(error)) from None
    if "bcast" in values and "multi-prog" in values:
        raise Wrong("--bcast copies one program; --multi-prog has several.")
    where = os.path.abspath(values.get("chdir") or os.getcwd())
    terminal = rm_srun_terminal.near(values, say)
    control = connected(path)
    bind = rm_srun_options.cpu_bind_of(values)
    step = rm_srun_options.step_of(values)
    step["name"] = values.get("job-name") or os.path.basename(command[0])
    step["typed"] = typed[:LINE]
    created, attached = create(control, step, "immediate" in values, None if "quiet" in values else say)
    count = sum(len(part["ranks"]) for part in created["parts"])
    commands = None
    if "multi-prog" in values:
        try:
            with open(command[0]) as file:
                commands = rm_srun_options.programs(file.read(), count, command[1:])
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or "it is not text"
            raise Wrong("The file of programs %s cannot be read: %s." % (command[0], why)) from None
    if "bcast" in values:
        from rm_srun_broadcast import broadcast  # loads what few steps need

        commands = broadcast(values["bcast"], command, created, where, environ)
    mask = os.umask(0o022)
    os.umask(mask)
    around = {name: program_of(values, name.replace("_", "-")) for name in ("task_prolog", "task_epilog")}
    shared = {"argv": command, "env": rm_srun_options.environment(values, environ), "umask": mask,
              "chdir": where, "pmi": count if values.get("mpi") == "pmi2" else 0, "cpu_bind": bind,
              "terminal": terminal is not None, "container": container, "near": step["near"],
              "limits": limits, "hears_left": True,
              "step_env": step_environment(created, environ, values)}  # fmt: skip
    parts = []
    for node, part in enumerate(created["parts"]):
        sock = connected(path)
        asked = dict(shared, node=node, ranks=part["ranks"], gpus=part["gpus"])
        if commands:
            asked["commands"] = [commands[rank] for rank in part["ranks"]]
        if any(around.values()):
            from rm_around_task import asking  # loads what few steps need

            asked = asking(asked, around)
        sock.sendall(
            json.dumps({"op": "carry", "step": created["step"], "place": part["place"]}).encode() + b"\n"
        )
        made = Part(sock, part["host"], part["ranks"])
        sock.setblocking(False)
        made.send(frame(REQUEST, 0, json.dumps(asked).encode()))
        parts.append(made)
    made = Step(values, created, parts, environ, terminal)
    made.audience = Audience(control, made.told_to_others, attached, made.told_by_others)
    with terminal or contextlib.nullcontext():
        code = made.run()
    if created.get("hears_end"):
        tell_end(control, made)
    made.audience.close()
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
