"""The host agent: JSON request lines on standard input, replies and notifications on standard output.

    python3 -S -E rm_agent.py --serve [--jobs-only]
    python3 -S -E rm_agent.py --attend [--jobs-only]    (one session of a job: rm_attend.py)

One thread, one loop. Jobs are run by supervisors (rm_task.py) that outlive this process; their states are in
the spool (rm_spool.py), so that the next agent finds them. The operations of the sibling programs are
answered here too: quick ones at once, slow ones in a forked child. See docs/agent-protocol.md.
"""

import errno
import gc
import hashlib
import importlib
import json
import os
import selectors
import signal
import sys
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
if sys.version_info < (3, 8):  # this file alone can be read by it
    sys.exit(
        "its Python is %d.%d, and rm needs 3.8 or newer: name one in ansible_python_interpreter"
        % sys.version_info[:2]
    )

import rm_admission
import rm_attend
import rm_container
import rm_facts
import rm_spawn
from rm_cgroup import DEFAULT_STATE, Group, Hierarchy
from rm_channel import Channel, refusal
from rm_fence import Fences
from rm_gpu_used import GpuWatch
from rm_lease import alive_us
from rm_news import now_us
from rm_operations import Operations
from rm_request import keep_to_jobs
from rm_room import TROUBLES, Room
from rm_slow_operations import SlowOperations
from rm_spool import Spool, SpoolError, boot_id, sentence_of
from rm_stream_hub import StreamHub, programs

PROTOCOL = 1
SIBLINGS = ("rm_shape", "rm_path", "rm_pause", "rm_probe", "rm_latencybg", "rm_steps")
UMASK = 0o022  # a job's user enters its folders, and only root writes there
OUTSIDE = {"steps"}  # what they leave running is not part of us, and must not end with us; their child stays
CHANGES = {
    "launch",
    "slice",
    "start",
    "stop",
    "limit",
    "freeze",
    "signal",
    "renew",
    "discard",
    "forget",
    "schedule",
    "stream",
    "admission",
    "admit",
    "hold",
}


class Agent:
    def __init__(self, state, jobs_only=False, login_umask=UMASK):
        self.jobs_only = jobs_only  # neither playbook steps nor jobs of root, for any caller
        self.login_umask = login_umask  # files of playbooks are made with the login's umask
        self.selector = selectors.PollSelector()
        self.channel = Channel(self.selector)
        self.hierarchy = Hierarchy(state)
        self.fences = Fences(self.hierarchy)
        self.attempts = Operations(Spool(state), self.hierarchy, self.fences, self.channel.send)
        self.gpus = GpuWatch(self.attempts, lambda: rm_facts.program("nvidia-smi"))
        self.streams = StreamHub(self.selector, self.channel.send, self.channel.behind)
        self.attempts.streams = self.streams
        self.admission = rm_admission.Admission(self.selector, self.channel.send)
        self.attempts.admissions = self.admission
        self.attempts.on_steps = lambda attempt: self.streams.connect(attempt.folder)
        self.room = Room(state, lambda: self.channel.send({"event": "room"}))
        self.ops, self.slow_ops = {}, {"facts": self._facts}
        self.cluster, self.over = "", False  # of the daemon; is this channel to end?
        self.installed, self.version = installed(), version()
        self.slow = SlowOperations(self.selector, self.channel)
        self.features = {"nft": rm_facts.program("nft") != "", "htb": False, "missing": [],
                         "containers": rm_container.found()[0]}  # fmt: skip
        self._load_siblings()

    def _facts(self, request):
        return rm_facts.gather(
            self.attempts.spool.state, [str(name) for name in request.get("towards") or ()]
        )

    def _load_siblings(self):
        here = os.path.dirname(os.path.abspath(__file__))
        for name in SIBLINGS:
            if self.jobs_only and name == "rm_steps":
                continue
            if not os.path.exists(os.path.join(here, name + ".py")):
                continue
            try:
                module = importlib.import_module(name)
                self.ops.update(module.OPS)
                self.slow_ops.update(module.SLOW_OPS)
                found = module.features() if hasattr(module, "features") else {}
            except Exception:
                # one broken sibling must not take the host away; its operations are then unknown
                sys.stderr.write("%s cannot be used:\n%s" % (name, traceback.format_exc()))
                found = {"missing": [name]}
            self.features["missing"] += found.pop("missing", [])
            self.features.update(found)

    def hello(self):
        enforced = self.fences.enforced()
        self.features.update(cgroup=self.hierarchy.kind, freezer=self.hierarchy.freezer, enforced=enforced)
        if not enforced["memory"]:
            self.features["missing"].append("memory limits")
        spool = self.attempts.spool
        self.cluster, led_at = spool.cluster()
        return {
            "event": "hello", "version": self.version, "protocol": PROTOCOL, "host": os.uname().nodename,
            "boot_id": boot_id(), "pid": os.getpid(), "uid": os.getuid(), "now_us": now_us(),
            "alive_us": alive_us(), "epoch": spool.epoch(), "cluster": self.cluster, "led_at": led_at,
            "known_as": spool.known_as(), "newest_job": spool.newest_job(), "features": self.features,
            "room": self.room.due is None,
        }  # fmt: skip

    def serve(self):
        self.hierarchy.adopt_agent()
        self.selector.register(self.attempts.events, selectors.EVENT_READ, ("events", None))
        self.attempts.find()
        if not self.room.is_there():
            self.room.wait()
        else:
            programs(self.attempts.spool.state)
        self.channel.send(self.hello())
        self.channel.listen()
        rm_spawn.code()
        gc.collect()
        gc.freeze()  # forked supervisors then share these pages for good
        while self.channel.flush() and not self.over:
            if not os.path.exists(self.attempts.fifo):  # nobody hears the supervisors any more
                sys.stderr.write("The folder %s was deleted.\n" % self.attempts.spool.state)
                break
            for key, events in self.selector.select(self._timeout_s()):
                kind, data = key.data
                if kind == "requests":
                    lines = self.channel.read()
                    if lines is None:
                        self._end()
                        return
                    self.channel.unanswered.extend(lines)
                elif kind == "events":
                    self.attempts.hear()
                elif kind == "child":
                    self.slow.forward(data)
                elif kind == "stream":
                    self.streams.serve(data, events)
                elif kind == "admission":
                    self.admission.serve(data)
            if (
                self.channel.is_silent()
            ):  # whatever is at work: the daemon has given it up as at a connection's end
                sys.stderr.write("The daemon has said nothing for minutes: it is gone, or was cut off.\n")
                break
            self.streams.look()
            while self.channel.unanswered and not self.channel.behind():
                self._answer(self.channel.unanswered.popleft())
            self.channel.listen()
            self.attempts.tick()
            self.slow.tick()
            self.admission.look()
            self.gpus.tick()
            self.room.look()
        self._end()

    def _timeout_s(self):
        times = [
            self.channel.timeout_s(),
            self.attempts.timeout_s(),
            self.room.timeout_s(),
            self.streams.timeout_s(),
            self.admission.timeout_s(),
            self.slow.timeout_s(),
        ]
        return min((time_s for time_s in times if time_s is not None), default=None)

    def _end(self):
        self.admission.close()
        self.attempts.close()
        self.slow.end()

    # requests

    def _answer(self, line):
        number = None
        try:
            request = json.loads(line)
            if not isinstance(request, dict):
                raise SpoolError("bad-request", "A request is a JSON object.")
            number, op = request.get("id"), request.get("op")
            result = self._carry_out(number, op, request)
        except Exception as error:
            self._refuse(number, error)
            return
        if result is not None:
            self.channel.send({"id": number, "ok": True, "result": result})

    def _refuse(self, number, error):
        reply = refusal(number, error)
        self.channel.send(reply)
        if reply["code"] in TROUBLES:
            self.room.wait()

    def _carry_out(self, number, op, request):
        """The result, or None when the reply comes later."""
        if op == "ping":
            self._look_whose()
            self._look_whether_replaced()
            return {"now_us": now_us()}
        if op == "adopt":
            result = self.attempts.adopt(request)
            self.cluster = self.attempts.spool.cluster()[0]
            return result
        if self.jobs_only:
            keep_to_jobs(request)
        if op in CHANGES or "epoch" in request:
            epoch = request.get("epoch")
            if not isinstance(epoch, int):
                raise SpoolError("bad-request", "The operation %s needs the leader's epoch." % op)
            self.attempts.spool.check_cluster(request.get("cluster"))
            self.attempts.spool.check_epoch(epoch)
        if op == "logs":
            found = self.attempts.logs(request)
            if callable(found):
                self.slow.begin(number, found, request, Group(""), UMASK)
                return None
            return found
        if op == "job-steps":
            return self.attempts.job_steps(request)
        if op == "used-now":
            self.slow.begin(number, self.attempts.used_now(request), request, Group(""), UMASK)
            return None
        if op in CHANGES or op == "tasks":
            return getattr(self.attempts, op)(request, self._later(number))
        if op == "cancel":
            return self.slow.cancel(request)
        if op in self.ops or op in self.slow_ops:
            if op in self.ops:
                return self.ops[op](request)
            outside = op in OUTSIDE
            group = Group(self.hierarchy.login if outside else "")
            umask = self.login_umask if outside else UMASK
            self.slow.begin(number, self.slow_ops[op], request, group, umask, stays=outside)
            return None
        raise SpoolError(
            "no-such-op", "The agent on %s does not know the operation %s." % (os.uname().nodename, op)
        )

    def _look_whose(self):
        """End when the host has changed its cluster: the next hello says so."""
        cluster, led_at = self.attempts.spool.cluster()
        if self.cluster not in ("", cluster):
            sys.stderr.write("the host was taken over by cluster %s (led at %s)\n" % (cluster, led_at))
            self.over = True

    def _look_whether_replaced(self):
        """End when other agents were installed completely, and nothing slow goes on: the daemon then starts
        them. What supervisors run is not touched."""
        if self.slow.go_on() or installed() == self.installed:
            return
        self.installed = installed()
        if version() != self.version:
            sys.stderr.write("other agents were installed\n")
            self.over = True

    def _later(self, number):
        def reply(result, error=None):
            if error is not None:
                self._refuse(number, error)
            else:
                self.channel.send({"id": number, "ok": True, "result": result})

        return reply


def version():
    """The agent's files by their content: two agents are the same if and only if they say the same."""
    here, sums = os.path.dirname(os.path.abspath(__file__)), hashlib.sha256()
    for name in sorted(name for name in os.listdir(here) if name.endswith(".py")):
        with open(os.path.join(here, name), "rb") as file:
            sums.update(name.encode() + b"\0" + file.read())
    return sums.hexdigest()[:12]


def installed():
    """Changes when a playbook has installed agents: it writes the file VERSION last. None: there is none."""
    try:
        found = os.stat(os.path.join(os.path.dirname(os.path.abspath(__file__)), "VERSION"))
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def _forget_inherited_signals():
    """What our sshd was started with is nothing to what is started here: no signal ignored, none blocked."""
    own = {signal.SIGPIPE, signal.SIGXFSZ}  # Python's
    for number in signal.valid_signals() - own:
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def main(arguments):
    if arguments[:1] not in (["--serve"], ["--attend"]) or arguments[1:] not in ([], ["--jobs-only"]):
        sys.stderr.write("usage: rm_agent.py --serve|--attend [--jobs-only]\n")
        return 2
    _forget_inherited_signals()
    login_umask = os.umask(UMASK)  # sshd's may be anything
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    state = os.environ.get("RM_AGENT_STATE") or DEFAULT_STATE
    if arguments[0] == "--attend":
        return rm_attend.main(os.path.abspath(state))
    try:
        agent = Agent(os.path.abspath(state), "--jobs-only" in arguments, login_umask)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC):
            raise
        sys.stderr.write("The agent cannot use its state directory: %s\n" % sentence_of(error)[1])
        return 1
    agent.serve()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
