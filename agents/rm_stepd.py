"""The step daemon of one attempt on one host: started by the first word that comes to the attempt's socket.

srun, a program of the job, connects to it. On the job's first host it says which hosts and tasks a step gets
(rm_step_plan.py), and keeps what the steps hold. It forks the part of a step that is on this host
(rm_step_part.py) and carries the streams of the parts on other hosts (rm_step_link.py): through the agent,
the daemon, and the agent and step daemon there. The agent connects to the same socket.
"""

import contextlib
import json
import os
import selectors
import signal
import socket
import struct
import time

import rm_sockets
from rm_become import PR_SET_PDEATHSIG, prctl
from rm_step_asks import Asks
from rm_step_attached import pass_on
from rm_step_bounds import Bounds, open_many
from rm_step_frames import REQUEST_BYTES
from rm_step_link import CHUNK_BYTES, Link
from rm_step_part import Part
from rm_step_peer import Peer
from rm_step_plan import Busy, Refused, checked, folded_hosts, layout
from rm_step_records import Records, how_ended
from rm_step_sessions import Sessions
from rm_step_uses import Uses, teller

LINE_BYTES = 64 << 10
CONNECTIONS = 2048  # at once; more wait
PARTS = 256  # of steps on this host at once
MEMORY_BYTES = 1 << 30
AHEAD_BYTES = 64 << 10  # said to the agent, and not yet taken
TICK_S = 0.5
ENTERING_S = 0.05  # between two looks whether a step that somebody enters runs here now
CREDENTIALS = struct.Struct("3i")


NOT_UNDERSTOOD = (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError, RecursionError)


class StepDaemon(Sessions, Uses, Asks):
    def __init__(self, listener, folder, group, request, user, fence, say):
        self.listener, self.folder, self.group = listener, folder, group
        self.request, self.user, self.fence, self.say = request, user, fence, say
        self.allocation = request["allocation"]
        self.place = request["place"]
        self.selector = selectors.DefaultSelector()
        self.peers = {}  # descriptor -> Peer
        self.waiting = []  # peers whose step has to wait for others
        self.held = {}  # step -> {place: (cpus, gpus)}
        self.owners = {}  # step -> peer
        self.links = {}  # (other host's place, name) -> Peer
        self.known = set()  # links that were ever opened from elsewhere: none is opened twice
        self.records = Records(folder)
        self.next_step = self.records.next
        self.parts = {}  # process -> step
        self.parts_over = set()  # steps whose part here has ended
        self.agent = None
        self.knocked_at = 0.0
        self.deaf_until = None  # descriptors have run out: it listens again then
        self.freed = False  # a step has ended: others may have what it held
        self.bounds = Bounds()
        Sessions.__init__(self)
        Uses.__init__(self)
        Asks.__init__(self)

    def run(self):
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        wake, wake_in = os.pipe()
        for fd in (wake, wake_in):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(wake_in, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        open_many()
        self.bounds.impose(MEMORY_BYTES)
        self.selector.register(self.listener, selectors.EVENT_READ, "listen")
        self.selector.register(wake, selectors.EVENT_READ, "wake")
        while True:
            ticks = self.links or self.deaf_until or self.news_at
            patience_s = ENTERING_S if self.entering else TICK_S if ticks else None
            for key, events in self.selector.select(self._at_most(patience_s)):
                if key.data == "listen":
                    self._accept()
                elif key.data == "wake":
                    with contextlib.suppress(BlockingIOError):
                        os.read(wake, 4096)
                    self._reap()
                elif key.data == "used":
                    self._hear_uses()
                elif key.data.sock.fileno() in self.peers:
                    if events & selectors.EVENT_READ:
                        self._read(key.data)
                    if events & selectors.EVENT_WRITE:
                        self._flush(key.data)
            self._enter()
            self._carry()
            while self.freed:
                self._grant()
            self._listen()
            self._say_news()
            self._say_asking()
            for peer in list(self.peers.values()):
                self._watch(peer)

    # who comes and goes

    def _accept(self):
        try:
            sock, _ = self.listener.accept()
        except BlockingIOError:
            return
        except OSError:  # epoll would report it again at once
            self.deaf_until = time.monotonic() + TICK_S
            return
        _, uid, _ = CREDENTIALS.unpack(
            sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
        )
        if uid not in (self.user.uid, os.getuid()):
            sock.close()
            return
        sock.setblocking(False)
        self._add(Peer(sock, uid))

    def _listen(self):
        """As long as there is room for one more."""
        if self.deaf_until is not None and time.monotonic() >= self.deaf_until:
            self.deaf_until = None
        hears = len(self.peers) < CONNECTIONS and self.deaf_until is None
        if hears != (self.listener in self.selector.get_map()):
            if hears:
                self.selector.register(self.listener, selectors.EVENT_READ, "listen")
            else:
                self.selector.unregister(self.listener)

    def _add(self, peer):
        self.peers[peer.sock.fileno()] = peer
        self.selector.register(peer.sock, selectors.EVENT_READ, peer)

    def _watch(self, peer):
        """Listen as long as what it says can be passed on."""
        listens = not peer.ended and (peer.link is None or peer.link.room() > 0)
        events = (selectors.EVENT_READ if listens else 0) | (selectors.EVENT_WRITE if peer.outbox else 0)
        try:
            known = self.selector.get_key(peer.sock).events
        except KeyError:
            known = 0
        if events != known:
            if known:
                self.selector.unregister(peer.sock)
            if events:
                self.selector.register(peer.sock, events, peer)

    def _drop(self, peer):
        with contextlib.suppress(KeyError, ValueError):
            self.selector.unregister(peer.sock)
        self.peers.pop(peer.sock.fileno(), None)
        peer.sock.close()
        if peer is self.agent:
            self.agent = None
        if peer in self.waiting:
            self.waiting.remove(peer)
        if peer.step is not None:
            self.owners.pop(peer.step, None)
            self.held.pop(peer.step, None)
            self._recorded(self.records.ended, peer.step, peer.how)
            peer.step, self.freed = None, True

    def _read(self, peer):
        most = 1 << 16 if peer.link is None else min(1 << 16, max(1, peer.link.room()))
        data = rm_sockets.hear(peer.sock, most)
        if data is None:
            return
        if peer.link is not None:
            self._hear_uses((int(peer.name),))  # what it used is said before its end
            if data:
                peer.link.write(data)
            else:
                peer.ended = True
                peer.link.close()
            return
        if not data:
            self._drop(peer)
            return
        peer.inbox += data
        if len(peer.inbox) > (REQUEST_BYTES if peer.kind == "agent" else LINE_BYTES):
            self._drop(peer)
            return
        self._take(peer)

    def _take(self, peer):
        """Takes what the peer has said. A program of the user says one line. After the line of `carry` all
        belongs to the stream; after the line of `create` the program says how its step ended."""
        if not peer.kind and b"\n" in peer.inbox:
            line, _, rest = bytes(peer.inbox).partition(b"\n")
            peer.inbox = bytearray(rest)
            try:
                self._obey(peer, json.loads(line))
            except NOT_UNDERSTOOD as error:
                self._tell(peer, {"error": "The request cannot be understood: %s." % error})
                self._drop(peer)
                return
        if peer.kind == "agent":
            *lines, peer.inbox = peer.inbox.split(b"\n")
            for line in lines:
                with contextlib.suppress(*NOT_UNDERSTOOD):  # another host's words
                    self._hear(json.loads(line))
        elif peer.kind == "create":
            self._hear_end(peer)

    def _hear_end(self, peer):
        """How its step ended, as srun says just before it ends; whatever else it says is passed over."""
        *lines, peer.inbox = peer.inbox.split(b"\n")
        for line in lines:
            with contextlib.suppress(*NOT_UNDERSTOOD):
                how = how_ended(json.loads(line)["ended"])
                if peer.step is not None and peer.how is None:
                    peer.how = how
                    self._hear_uses((peer.step,))
                    self._recorded(self.records.ended, peer.step, how)
                    self._tell(peer, {"recorded": True})

    def _flush(self, peer):
        if rm_sockets.say(peer.sock, peer.outbox):
            return
        peer.outbox.clear()
        if peer.link is None:
            self._drop(peer)
        else:
            peer.ended = True
            peer.link.close()

    def _tell(self, peer, message):
        peer.outbox += json.dumps(message).encode() + b"\n"
        self._flush(peer)

    # requests

    def _obey(self, peer, asked):
        op = asked["op"]
        if op == "agent" and peer.uid == os.getuid():
            peer.kind = "agent"
            if self.agent is not None:
                self._drop(self.agent)
            self.agent = peer
        elif op == "create":
            step = checked(asked["step"], self.allocation)
            name = str(asked["step"].get("name", ""))
            peer.kind = "create"
            immediate, typed = bool(asked.get("immediate")), str(asked["step"].get("typed", ""))
            peer.asked = {"step": step, "immediate": immediate, "name": name, "typed": typed}
            peer.attachable = bool(asked.get("attachable"))
            self._create(peer)
        elif op == "carry":
            peer.kind = "carry"
            self._part(peer, int(asked["step"]), int(asked["place"]))
        elif op == "attach":
            peer.kind = "asks"
            self._attach(peer, int(asked["step"]))
        elif op == "ask":
            peer.kind = "asks"
            self._queue(peer)
        elif op == "answer" and peer.uid == os.getuid():
            self._answer(peer)
        elif op == "session" and peer.uid == os.getuid():
            peer.kind = "asks"
            self._begin_session(peer, str(asked["session"]), dict(asked["begin"]))
        elif op == "release" and peer.uid == os.getuid():
            peer.kind = "asks"
            self._release(int(asked["code"]))
        elif op == "session-ended" and peer.uid == os.getuid():
            peer.kind = "asks"
            self._hear_used_there(0, asked["step"], asked.get("used"))
            self._recorded(self.records.ended, int(asked["step"]), how_ended(asked["ended"]))
            self._tell(peer, {"recorded": True})
        elif op == "hold":
            peer.kind = "hold"
            if self.released is not None:
                self._tell(peer, {"release": self.released})
        else:
            raise ValueError("there is no %.20r" % op)

    def _create(self, peer):
        if self.place != 0 or not self.allocation:
            first = self.allocation[0]["host"] if self.allocation else "another one"
            self._tell(peer, {"error": "srun works on the job's first host, which is %s." % first})
            return
        if not self._try(peer):
            if peer.asked["immediate"]:
                self._tell(peer, {"error": "Other steps of the job hold what this one needs.", "busy": True})
                return
            self.waiting.append(peer)
            self._tell(peer, {"waits": True})

    def _try(self, peer):
        """Give it its step, or refuse it; False while it has to wait."""
        held = {}
        for places in self.held.values():
            for place, (cpus, gpus) in places.items():
                before = held.get(place, (0, []))
                held[place] = (before[0] + cpus, before[1] + list(gpus))
        try:
            found = layout(peer.asked["step"], self.allocation, held)
        except Busy:
            return False
        except Refused as error:
            self._tell(peer, {"error": str(error)})
            return True
        peer.step, self.next_step = self.next_step, self.next_step + 1
        self._recorded(
            self.records.begun, peer.step, found, folded_hosts, peer.asked["name"], peer.asked["typed"]
        )
        self.held[peer.step] = {part["place"]: part.pop("holds") for part in found}
        self.owners[peer.step] = peer
        for part in found:
            part["address"] = self.allocation[part["place"]]["address"]
        self._tell(peer, {"step": peer.step, "parts": found, "job_port": self.request["port"],
                          "job_address": self.allocation[0]["address"], "hears_end": True})  # fmt: skip
        return True

    def _grant(self):
        self.freed = False
        for peer in list(self.waiting):
            if peer in self.waiting and self._try(peer):
                self.waiting = [other for other in self.waiting if other is not peer]

    # the parts of steps

    def _part(self, peer, step, place):
        owner = self.owners.get(step)
        if owner is None or owner.step != step or place not in self.held.get(step, {}):
            self._tell(peer, {"error": "There is no such step."})
            return
        if place == self.place:
            if len(self.parts) >= PARTS:
                self._tell(peer, {"error": "%d steps run on this host: no more can." % PARTS})
                return
            sock, rest = peer.sock, bytes(peer.inbox)
            self.selector.unregister(sock)
            del self.peers[sock.fileno()]
            self._fork(sock, step, rest)
            sock.close()
            return
        peer.link, peer.name = Link(), str(step)
        peer.link.write(bytes(peer.inbox))
        peer.inbox.clear()
        self.links[place, peer.name] = peer

    def _attach(self, peer, step):
        """The connection goes on to the step's srun."""
        why = pass_on(peer.sock, step, self.owners.get(step))
        if why:
            self._tell(peer, {"error": why})
        self._drop(peer)

    def _fork(self, sock, step, rest=b""):
        try:
            told, says = os.pipe()
            pid = os.fork()
        except OSError:
            return  # srun hears that its part is lost
        if pid:
            os.close(says)
            self.parts[pid] = step
            self._listen_to(told, step)
            return
        try:
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            keep = sock.detach()
            for peer in self.peers.values():
                peer.sock.close()
            self.listener.close()
            self.selector.close()
            group = self.group.below("step_%d" % step)
            what = (group, self.request, self.user, self.fence, self.folder, self.bounds)
            part = Part(socket.socket(fileno=keep), *what, teller(says))
            part.inbox += rest
            part.run()
        finally:
            os._exit(0)

    def _reap(self):
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in self.parts:
                self.parts_over.add(self.parts.pop(pid))
            self._session_ended(pid)

    # the way to other hosts

    def _hear(self, message):
        """From another host's step daemon, through its agent, the daemon and ours."""
        key = int(message["place"]), str(message["stream"])
        self._hear_used_there(*key, message.get("used"))
        peer = self.links.get(key)
        if peer is None:
            if message.get("gone"):
                return
            unwanted = key in self.known or message["offset"] != 0 or not message["data"] or key[0] != 0
            if unwanted or len(self.parts) >= PARTS:
                self._send(key, {"offset": 0, "data": "", "ack": 0, "end": False, "gone": True})
                return
            self.known.add(key)
            mine, its = socket.socketpair()
            self._fork(its, int(key[1]))
            its.close()
            mine.setblocking(False)
            peer = Peer(mine)
            peer.kind, peer.link, peer.name = "carry", Link(), key[1]
            self._add(peer)
            self.links[key] = peer
        peer.link.take(message)

    def _send(self, key, message):
        if self.agent is not None:
            text = json.dumps(dict(message, place=key[0], stream=key[1]))
            self.agent.outbox += text.encode() + b"\n"

    def _carry(self):
        now = time.monotonic()
        for key, peer in list(self.links.items()):
            link = peer.link
            if link.inbox and len(peer.outbox) < CHUNK_BYTES:
                peer.outbox += link.inbox
                link.consume(len(link.inbox))
                self._flush(peer)
            if (link.ended or link.gone) and not link.inbox and not peer.outbox and peer.sock.fileno() >= 0:
                if link.gone:
                    peer.ended = True
                    link.close()
                with contextlib.suppress(OSError):
                    peer.sock.shutdown(socket.SHUT_WR)
            while self.agent is not None and len(self.agent.outbox) < AHEAD_BYTES and link.due(now):
                self._send(key, link.message(now))
            if link.over() and not peer.outbox:
                del self.links[key]
                self._drop(peer)
        if self.agent is not None:
            self._flush(self.agent)
        elif self.links and now >= self.knocked_at + TICK_S:
            self.knocked_at = now
            self.say({"event": "steps"})  # an agent hears it, and connects
