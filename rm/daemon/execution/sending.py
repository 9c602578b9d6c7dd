"""What is asked of a host for an action, and how it is sent."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import msgspec

from rm.core.jobs import events as ev
from rm.core.jobs.actions import Discard, Freeze, Launch, SetLimit, Start, Stop
from rm.core.ports import Clock
from rm.daemon.agents import Hosts
from rm.daemon.execution.agent_news import sentence
from rm.daemon.execution.greeting import CALL_TIMEOUT_S
from rm.protocol import attempts as wire
from rm.protocol.codes import AgentError, Code, NotSent, code_of
from rm.protocol.request import Request

TOO_OLD_TO_FENCE = (
    "The agent on {host} has a version without leases: it cannot run a job with --fence. Deploy "
    "this one: rmx playbook run agents --limit {host}"
)

# the types of rm/protocol have checked it, so only an agent of another version finds fault with it
OTHER_VERSION = (
    "The agent on {host} does not understand the launch, as agents of another version do not. Deploy this "
    "daemon's: rmx playbook run agents --limit {host} (It said: {said})"
)


def failed(action: Launch | Start, code: Code, error: BaseException) -> ev.LaunchFailed:
    said = str(error)
    if code is Code.BAD_REQUEST and not isinstance(error, NotSent):
        said = OTHER_VERSION.format(host=action.host, said=said)
    return ev.LaunchFailed(action.job, action.attempt, action.host, code, sentence(said))


def request_of(action: Start | Stop | Discard | SetLimit | Freeze, epoch: int) -> Request[Any]:
    job, attempt = action.job, action.attempt
    match action:
        case Start():
            port = action.master_port
            return wire.Start(job=job, attempt=attempt, epoch=epoch, not_after_us=0, master_port=port)
        case Stop():
            grace_us, warn_us, why = action.grace_us, action.warn_us, action.why
            return wire.Stop(
                job=job, attempt=attempt, epoch=epoch, grace_us=grace_us, why=why, warn_us=warn_us
            )
        case SetLimit():
            limit_us = action.time_limit_us
            return wire.SetLimit(job=job, attempt=attempt, epoch=epoch, time_limit_us=limit_us)
        case Freeze():
            frozen, order = action.frozen, action.order
            return wire.Freeze(
                job=job, attempt=attempt, epoch=epoch, frozen=frozen, order=order, lends=action.lends
            )
        case Discard():
            return wire.Discard(job=job, attempt=attempt, epoch=epoch)


class Sender:
    """`launch_within_us`: how long a launch or start may be under way."""

    def __init__(self, *, hosts: Hosts, clock: Clock, epoch: int, launch_within_us: int) -> None:
        self._hosts = hosts
        self._clock = clock
        self._epoch = epoch
        self._launch_within_us = launch_within_us

    def send(self, host: str, request: Request[Any]) -> Future[Any]:
        """The answer, or why there is none."""
        try:
            if isinstance(request, wire.Launch | wire.Start):
                request = msgspec.structs.replace(request, not_after_us=self._until_us(host))
            elif isinstance(request, wire.Slice):
                first = msgspec.structs.replace(request.first, not_after_us=self._until_us(host))
                request = msgspec.structs.replace(request, first=first)
            if isinstance(request, wire.Launch) and request.lease_us:
                return self._launch_leased(host, request)
            return self._hosts.call(host, request, CALL_TIMEOUT_S)
        except Exception as error:
            failed: Future[Any] = Future()
            failed.set_exception(error)
            return failed

    def _until_us(self, host: str) -> int:
        """When something that is sent now may begin at last, by the host's clock."""
        return self._clock.now_us() + self._launch_within_us + (self._hosts.clock_offset_us(host) or 0)

    def _launch_leased(self, host: str, request: wire.Launch) -> Future[Any]:
        """Ask the host what time it is by its own clock, and then launch: the lease counts from there."""
        launched: Future[Any] = Future()

        def pass_on(answer: Future[Any]) -> None:
            if (error := answer.exception()) is not None:
                launched.set_exception(error)
            else:
                launched.set_result(answer.result())

        def launch(answer: Future[wire.Renewed]) -> None:
            try:
                if code_of(answer.exception()) is Code.NO_SUCH_OP:
                    raise AgentError(Code.NOT_ENFORCED, TOO_OLD_TO_FENCE.format(host=host))
                leased = msgspec.structs.replace(request, heard_us=answer.result().alive_us)
                self._hosts.call(host, leased, CALL_TIMEOUT_S).add_done_callback(pass_on)
            except Exception as error:
                launched.set_exception(error)

        self._hosts.call(host, wire.Renew(epoch=self._epoch), CALL_TIMEOUT_S).add_done_callback(launch)
        return launched
