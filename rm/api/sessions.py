"""Sessions of jobs: what begins one, and which one is attended."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, structs

from rm.api.answer import Request

Word = Annotated[str, Meta(max_length=32_768)]


class Begin(Request, frozen=True):
    """How a session begins. Without `argv` it is the user's shell; `releases` ends the job with it; `keep`
    lets it go on when who attends it has gone. One on the job's first host with a name as a `step` stands in
    the job's accounting. One `in_step` runs beside the tasks that this step has on the host. No session
    begins in a container; one `outside` begins on the host of a job whose script runs in one."""

    argv: Annotated[tuple[Word, ...], Meta(max_length=4_096)] = ()
    terminal: bool = False
    keep: bool = False
    releases: bool = False
    term: Annotated[str, Meta(max_length=64, pattern=r"^[\w.+-]*$")] = ""
    rows: Annotated[int, Meta(ge=0, le=65_535)] = 0
    columns: Annotated[int, Meta(ge=0, le=65_535)] = 0
    step: Annotated[str, Meta(max_length=200)] = ""
    in_step: Annotated[int, Meta(ge=0, le=1_000_000_000)] | None = None
    outside: bool = False


class SessionRequest(Request, frozen=True):
    """The first message: the session's name, which the client chooses; the host of the job, "" = its first;
    and how it begins, or null to attend one that began."""

    session: str
    host: str = ""
    begin: Begin | None = None

    def begin_fields(self) -> dict[str, Any] | None:
        return structs.asdict(self.begin) if self.begin is not None else None
