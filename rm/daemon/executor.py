"""Carries out intents on the hosts and turns what the hosts say into events.

The plan is already committed when an intent arrives here. An intent stays open until its outcome
is known: one whose channel broke is repeated when the host says hello again, which is safe
because every operation is idempotent for its (job, attempt).
"""

from __future__ import annotations

import base64
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rm.core import events as ev
from rm.core.actions import Collect, Discard, Intent, Launch, Start, Stop
from rm.core.host import Gpu, Host
from rm.core.reconcile import ReportedTask
from rm.errors import Conflict, RmError, Unreachable

log = logging.getLogger(__name__)

CHUNK_BYTES = 256 * 1024
CALL_TIMEOUT_S = 30.0
REPEAT_S = 2.0


class Hosts(Protocol):
    """What the executor needs of the fleet."""

    def call(self, name: str, op: str, timeout_s: float = ..., **args: Any) -> Future[dict[str, Any]]: ...
    def add(self, host: Host) -> None: ...
    def remove(self, name: str) -> None: ...
    def clock_offset_us(self, name: str) -> int | None: ...


@dataclass(frozen=True, slots=True)
class HostReport:
    """Not an event: what a host says after hello, which the leader reconciles with its state."""

    up: ev.HostUp
    tasks: list[ReportedTask]


Post = Callable[[ev.Event | HostReport], None]


class Executor:
    """One per daemon. `submit` is called by the leader; the rest by the fleet's threads.

    Args:
        hosts: the fleet of connected agents.
        post: hands an event to the leader.
        request_of: builds the arguments of a launch; called in the leader's thread.
        logs: folder for collected logs, `<job>.<attempt>/<rank>.out`.
        max_log_bytes: how much of each log comes home; the newest part of a longer one.
        on_iterations: receives iteration reports `(host, message)`.
    """

    def __init__(
        self,
        hosts: Hosts,
        post: Post,
        request_of: Callable[[Launch], dict[str, Any]],
        logs: Path,
        epoch: int,
        max_log_bytes: int,
        on_iterations: Callable[[str, dict[str, Any]], None],
        on_deposed: Callable[[str], None],
    ) -> None:
        self._hosts = hosts
        self._post = post
        self._request_of = request_of
        self._logs = logs
        self._epoch = epoch
        self._max_log_bytes = max_log_bytes
        self._on_iterations = on_iterations
        self._on_deposed = on_deposed
        self._open: dict[str, dict[int, tuple[Intent, dict[str, Any]]]] = {}
        self._up: set[str] = set()
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(8, thread_name_prefix="collect")

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    # -- the leader's side ---------------------------------------------------------------------

    def submit(self, intents: list[Intent]) -> None:
        """Carry out committed intents, per host in order of their ids."""
        for intent in intents:
            host = intent.action.host
            try:
                arguments = self._arguments(intent)
            except RmError as error:  # the job or a host is gone: nothing to carry out
                log.warning("intent %d dropped: %s", intent.id, error)
                self._post(ev.ActionSettled(intent.id))
                continue
            with self._lock:
                self._open.setdefault(host, {})[intent.id] = (intent, arguments)
                connected = host in self._up
            if connected:
                self._send(intent, arguments)

    def open_starts(self, host: str) -> list[Intent]:
        """The launches and starts whose outcome on the host is not known."""
        with self._lock:
            intents = [intent for intent, _ in self._open.get(host, {}).values()]
        return [i for i in intents if isinstance(i.action, Launch | Start)]

    def repeat_open(self, host: str) -> None:
        """Send everything that is open for the host, in order; from now on it is connected."""
        with self._lock:
            self._up.add(host)
            again = [self._open[host][i] for i in sorted(self._open.get(host, {}))]
        for intent, arguments in again:
            self._send(intent, arguments)

    def drop(self, intent: Intent) -> None:
        """Do not repeat it: its outcome came another way, or the state has given it up."""
        self._settle(intent)

    # -- the fleet's side ----------------------------------------------------------------------

    def on_state(self, host: str, up: bool, reason: str) -> None:
        """The channel to a host opened or broke."""
        if up:
            self._pool.submit(self._welcome, host)
            return
        with self._lock:
            self._up.discard(host)
        self._post(ev.HostSilent(host, reason))

    def on_event(self, host: str, message: dict[str, Any]) -> None:
        """A notification of a host's agent."""
        kind = message.get("event")
        if kind == "exit":
            self._post(self._exited(host, message))
            self._retry_collect(host, message["job"], message["attempt"])
        elif kind == "started":
            self._post(
                ev.TasksStarted(
                    message["job"],
                    message["attempt"],
                    host,
                    self._ours(host, message["started_us"]) or 0,
                    (message["rank"],),
                )
            )
        elif kind == "iterations":
            self._on_iterations(host, message)

    # -- within --------------------------------------------------------------------------------

    def _welcome(self, host: str) -> None:
        """A host says hello: learn what it is and what it runs; the leader does the rest."""
        try:
            facts = self._hosts.call(host, "facts").result(CALL_TIMEOUT_S)
            tasks = self._hosts.call(host, "tasks").result(CALL_TIMEOUT_S)["tasks"]
        except (RmError, TimeoutError) as error:
            log.warning("host %s said hello and fell silent: %s", host, error)
            return
        up = self._up_event(host, facts)
        self._post(HostReport(up, [self._reported(host, t) for t in tasks]))

    def _up_event(self, host: str, facts: dict[str, Any]) -> ev.HostUp:
        interfaces = facts.get("interfaces", [])
        named = next((i for i in interfaces if i.get("primary")), interfaces[0] if interfaces else {})
        return ev.HostUp(
            host,
            facts.get("boot_id", ""),
            facts.get("agent_version", ""),
            facts.get("cpus", 0),
            facts.get("mem_bytes", 0),
            tuple(
                Gpu(g["index"], g.get("uuid", ""), g.get("model", ""), g.get("mem_bytes", 0))
                for g in facts.get("gpus", [])
            ),
            named.get("name", ""),
            named.get("speed_bps") or 0,
        )

    def _arguments(self, intent: Intent) -> dict[str, Any]:
        action = intent.action
        common = {"job": action.job, "attempt": action.attempt, "epoch": self._epoch}
        match action:
            case Launch():
                return {**self._request_of(action), **common, "hold": action.hold}
            case Stop():
                return {**common, "grace_us": action.grace_us, "why": action.why}
            case _:
                return common

    def _send(self, intent: Intent, arguments: dict[str, Any]) -> None:
        action = intent.action
        if isinstance(action, Collect):
            self._pool.submit(self._collect, intent, action)
            return
        future = self._hosts.call(action.host, action.kind, timeout_s=CALL_TIMEOUT_S, **arguments)
        future.add_done_callback(lambda f: self._answered(intent, f))

    def _answered(self, intent: Intent, future: Future[dict[str, Any]]) -> None:
        action = intent.action
        error = future.exception()
        code = getattr(error, "code", "")
        if isinstance(error, Unreachable | TimeoutError):
            # outcome unknown: repeated now if the host still answers, or after its next hello
            timer = threading.Timer(REPEAT_S, self._repeat, [intent])
            timer.daemon = True
            timer.start()
            return
        if code == "stale-epoch":
            self._on_deposed(str(error))
            return
        if error is not None:
            if isinstance(action, Launch | Start):
                self._post(ev.LaunchFailed(action.job, action.attempt, action.host, code, str(error)))
            elif code != "no-such-attempt":
                log.warning("%s of job %d on %s: %s", action.kind, action.job, action.host, error)
        elif isinstance(action, Launch | Start):
            self._launched(action, future.result())
        self._settle(intent)

    def _repeat(self, intent: Intent) -> None:
        host = intent.action.host
        with self._lock:
            entry = self._open.get(host, {}).get(intent.id) if host in self._up else None
        if entry is not None:
            self._send(*entry)

    def _launched(self, action: Launch | Start, result: dict[str, Any]) -> None:
        tasks = result["tasks"]
        notes = tuple((t["rank"], t["note"]) for t in tasks if t.get("note"))
        if isinstance(action, Launch) and action.hold:
            self._post(ev.TasksPrepared(action.job, action.attempt, action.host, notes))
            return
        started = [t["started_us"] for t in tasks if t.get("started_us")]
        self._post(
            ev.TasksStarted(
                action.job,
                action.attempt,
                action.host,
                self._ours(action.host, min(started, default=None)) or 0,
                tuple(t["rank"] for t in tasks),
                notes,
            )
        )

    def _settle(self, intent: Intent) -> None:
        with self._lock:
            self._open.get(intent.action.host, {}).pop(intent.id, None)
        self._post(ev.ActionSettled(intent.id))

    def _collect(self, intent: Intent, action: Collect) -> None:
        """Logs home, then the host forgets. A host that fell silent is asked again later."""
        try:
            for rank in action.ranks:
                for stream in ("out", "err"):
                    self._fetch_log(action, rank, stream)
            self._hosts.call(
                action.host, "discard", job=action.job, attempt=action.attempt, epoch=self._epoch
            ).result(CALL_TIMEOUT_S)
        except (Unreachable, TimeoutError):
            return
        except Conflict:
            return  # still stopping there: its exit will bring us back
        except RmError as error:
            if getattr(error, "code", "") == "still-running":
                return
            if getattr(error, "code", "") != "no-such-attempt":
                log.warning("logs of job %d on %s: %s", action.job, action.host, error)
        except OSError as error:
            log.error("cannot keep the logs of job %d: %s", action.job, error)
            return
        self._settle(intent)

    def _fetch_log(self, action: Collect, rank: int, stream: str) -> None:
        path = log_path(self._logs, action.job, action.attempt, rank, stream)
        offset, chunks = 0, 0
        part = path.with_suffix(".part")
        while True:
            answer = self._hosts.call(
                action.host,
                "logs",
                job=action.job,
                attempt=action.attempt,
                rank=rank,
                stream=stream,
                offset=offset,
                limit=CHUNK_BYTES,
            ).result(CALL_TIMEOUT_S)
            if offset == 0 and answer["size"] > self._max_log_bytes:
                offset = answer["size"] - self._max_log_bytes
                continue
            data = base64.b64decode(answer["data"])
            if not data:
                break
            if chunks == 0:
                path.parent.mkdir(parents=True, exist_ok=True)
            with part.open("ab" if chunks else "wb") as file:
                file.write(data)
            offset, chunks = answer["offset"], chunks + 1
        if chunks:
            part.replace(path)

    def _retry_collect(self, host: str, job: int, attempt: int) -> None:
        with self._lock:
            waiting = [
                intent
                for intent, _ in self._open.get(host, {}).values()
                if isinstance(intent.action, Collect | Discard)
                and (intent.action.job, intent.action.attempt) == (job, attempt)
            ]
        for intent in waiting:
            self._send(intent, self._arguments(intent))

    def _ours(self, host: str, at_us: int | None) -> int | None:
        """A time of the host's clock on ours."""
        return None if at_us is None else at_us - (self._hosts.clock_offset_us(host) or 0)

    def _exited(self, host: str, m: dict[str, Any]) -> ev.TaskExited | ev.TasksLost:
        if m["code"] is None and m["signal"] is None:  # the agent does not know how it ended
            return ev.TasksLost(m["job"], m["attempt"], host, (m["rank"],), m.get("why", ""))
        return ev.TaskExited(
            m["job"],
            m["attempt"],
            host,
            m["rank"],
            m["code"],
            m["signal"],
            self._ours(host, m.get("started_us")),
            self._ours(host, m["ended_us"]) or 0,
            bool(m.get("oom")),
            m.get("why", ""),
        )

    def _reported(self, host: str, t: dict[str, Any]) -> ReportedTask:
        return ReportedTask(
            t["job"],
            t["attempt"],
            t["rank"],
            t["state"],
            self._ours(host, t.get("started_us")),
            self._ours(host, t.get("ended_us")),
            t.get("code") or 0,
            t.get("signal") or 0,
            bool(t.get("oom")),
            t.get("why") or "",
        )


def log_path(logs: Path, job: int, attempt: int, rank: int, stream: str) -> Path:
    """Where a collected log lies."""
    return logs / f"{job}.{attempt}" / f"{rank}.{stream}"
