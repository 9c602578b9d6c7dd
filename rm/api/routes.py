"""The routes of the HTTP API: one table, from which OpenAPI and the documentation are made.

A test compares it with what the web registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

from msgspec import Meta

from rm.api import (
    accounts,
    alerts,
    channels,
    hosts,
    job_requests,
    job_steps,
    jobs,
    monitoring,
    network,
    people,
    playbooks,
    reasons,
    reservations,
    sharing,
    status,
    usage,
)
from rm.api.answer import Count, Request


class Who(StrEnum):
    """Who may call a route: the one table of rights (`rm/web/callers/access.py` enforces it)."""

    ANYBODY = "anybody"  # everyone whom the door lets in, also anonymous callers
    PROGRAMS = "programs"  # those whom privacy.metrics allows
    USER = "user"  # with an account
    OWNER = "owner"  # of the job, and operators
    READER = "reader"  # the job's owner, and administrators
    OPERATOR = "operator"
    PLAYBOOKS = "playbooks"  # those whom playbooks.role allows: operators, or administrators alone
    ADMIN = "admin"


JOBS_MOST = 10_000  # in one answer


@dataclass(frozen=True, slots=True)
class Parameter:
    """Of the query, or a header: `kind` is a type whose JSON Schema its value has; `usual` is what it is when
    it is left out."""

    name: str
    kind: Any
    meaning: str
    usual: Any = None
    required: bool = False


@dataclass(frozen=True, slots=True)
class Route:
    """`answer` is a type, or the media type of what is not a JSON object of ours. `errors` are the statuses
    of refusals besides those that any request can meet: 400, 401, 403, 413, 429 and
    500, and 404 where the path names something. `private`: the switches of `[privacy]` with which it is for
    operators alone."""

    method: str
    path: str
    name: str
    meaning: str
    answer: type[Any] | str
    body: type[Request] | None = None
    query: tuple[Parameter, ...] = ()
    headers: tuple[Parameter, ...] = ()
    who: Who = Who.ANYBODY
    status: int = 200
    errors: tuple[int, ...] = ()
    private: frozenset[str] = frozenset()


Flag = Annotated[str, Meta(pattern="^[01]?$")]
Seconds = Annotated[float, Meta(ge=0)]
Indices = Annotated[
    str, Meta(pattern=r"^([0-9]{1,9}(-[0-9]{1,9}(:[0-9]{1,9})?)?(,[0-9]{1,9}(-[0-9]{1,9})?)*)?$")
]
JSON_ERRORS = {
    400: "UsageError: the request is malformed.",
    401: "Unauthenticated: the door needs a valid token.",
    403: "Forbidden: the caller may not do this.",
    404: "NotFound: there is no such job, host or other thing.",
    409: "Conflict: it is in a state that does not allow the request.",
    413: "UsageError: the body is too large.",
    422: "ImpossibleRequest: no state of this cluster could ever satisfy it.",
    429: "LimitReached: the caller is over a limit; see Retry-After.",
    500: "RmError: a defect of the daemon, or of its database.",
    502: "Unreachable: a host did not answer.",
}
ANY_REQUEST = (400, 401, 403, 413, 429, 500)

CONFLICT = (409,)  # or: this daemon does not do such a thing
UNKNOWN = (404, 409)  # what the query or the body names
PATHS: dict[str, Any] = {
    "id": Annotated[int, Meta(ge=0, lt=10**18)],
    "name": Annotated[str, Meta(min_length=1)],
    "host": Annotated[str, Meta(min_length=1)],
    "mesh": Annotated[str, Meta(min_length=1)],
}

ONE = Parameter("array_tasks", Indices, "of an array: the element of this index", "")
SOME = Parameter("array_tasks", Indices, "of an array: only these elements, such as 3-9,12", "")
HOSTS = frozenset({"hosts"})
USED = frozenset({"hosts", "usage"})

JOB_FILTERS = (
    Parameter("state", str, "names or short codes, with commas", ""),
    Parameter("user", str, "of one user", ""),
    Parameter("mine", Flag, "the caller's own", ""),
    Parameter("name", str, "of one name", ""),
    Parameter("limit", Count, f"the newest N, at most {JOBS_MOST}; 0 = at most", 0),
    Parameter("before", Count, "only those with a smaller id: the next page", 0),
    Parameter("all", Flag, "also those that ended before", ""),
)
ROUTES: Sequence[Route] = (
    Route("GET", "/v1/status", "status", "The daemon, its policies, the number of jobs and hosts by state.",
          status.Status),
    Route("GET", "/v1/me", "me", "The caller, with its role.", people.Me),
    # -- jobs
    Route("POST", "/v1/jobs", "submit", "Submit one job, or several; answered only after the commit.",
          jobs.Submitted, job_requests.Submit, status=201, errors=(422,), headers=(
              Parameter("Idempotency-Key", Annotated[str, Meta(max_length=128, pattern=r"^[ -~]*$")],
                        "a submission repeated with the same key gets the first answer", ""),
          ), who=Who.USER),
    Route("POST", "/v1/plan", "plan", "Dry run: where the job would start now, or why it would not.",
          reasons.Plan, job_requests.PlanRequest, errors=(422,), who=Who.USER),
    Route("GET", "/v1/jobs", "jobs", "Jobs, the newest last: unfinished ones and those that ended within "
          "`jobs.recent_s`.", jobs.Jobs, query=JOB_FILTERS),
    Route("GET", "/v1/jobs/rows", "job_rows", "The same jobs as rows of a table, for long lists.",
          jobs.JobRows, query=JOB_FILTERS),
    Route("GET", "/v1/jobs/starts", "starts", "When jobs that wait are expected to start, those that start "
          "first.", reasons.Starts),
    Route("GET", "/v1/jobs/priorities", "priorities",
          "What makes up the priorities of waiting and running jobs.", reasons.Priorities),
    Route("GET", "/v1/jobs/priority-weights", "priority_weights", "What each part of a priority is at most.",
          reasons.PriorityWeights),
    Route("GET", "/v1/jobs/steps", "job_steps", "What `srun` ran of these jobs, by job, attempt and step.",
          job_steps.JobSteps, query=(
              Parameter("jobs", Annotated[str, Meta(pattern="^[0-9]{1,18}(,[0-9]{1,18})*$")],
                        f"their ids, at most {job_steps.STEP_JOBS_MOST}", required=True),
              Parameter("after", Annotated[str, Meta(pattern=r"^([0-9]{1,18}\.[0-9]{1,9}\.[0-9]{1,9})?$")],
                        "only those after this JOB.ATTEMPT.STEP: the next page", ""),
              Parameter("limit", Count, f"the first N, at most {job_steps.STEPS_MOST}; 0 = at most", 0),
          )),
    Route("GET", "/v1/queue", "queue", "Waiting jobs in the queue policy's order as of now; last those that "
          "are held or may not begin yet.", jobs.Jobs, query=(
              Parameter("user", str, "of one user", ""),
              Parameter("limit", Count, "the first N; 0 = all", 0),
          )),
    Route("DELETE", "/v1/jobs", "cancel_all", "Cancel all matching jobs that have not ended.", jobs.Cancelled,
          query=(
              Parameter("user", str, "of one user", ""),
              Parameter("name", str, "of one name", ""),
              Parameter("state", str, "names or short codes, with commas; of an array then the elements "
                        "without jobs of their own, if PENDING is among them", ""),
          ), who=Who.USER),
    Route("GET", "/v1/jobs/{id}", "job", "One job; script, arguments and environment for its owner and "
          "administrators.", jobs.WholeJob, query=(ONE,)),
    Route("DELETE", "/v1/jobs/{id}", "cancel", "Cancel the job, or only send its tasks a signal.",
          jobs.OneJob, query=(
              Parameter("signal", Annotated[int, Meta(ge=0, le=64)], "the signal's number; 0 = cancel", 0),
              Parameter("signal_to", job_requests.SignalTo, "whom it reaches: all but a script that runs "
                        "once, the script's first process, or all", "steps"),
              SOME,
          ), who=Who.OWNER, errors=(409, 502)),
    *(
        Route("POST", f"/v1/jobs/{{id}}/{verb}", verb, meaning, jobs.OneJob, query=(SOME, *more),
              who=Who.OWNER, errors=CONFLICT)
        for verb, meaning, more in (
            ("hold", "Keep the waiting job from starting.",
             (Parameter("uhold", Flag, "as its owner would: the owner may release it", ""),)),
            ("release", "Let the held job start.", ()),
            ("requeue", "Stop the job and let it wait for another start.",
             (Parameter("failed", Flag, "of an array only what failed", ""),
              Parameter("hold", Flag, "keep it from starting until it is released", ""))),
        )
    ),
    Route("POST", "/v1/jobs/{id}/suspend", "suspend", "Let the job that runs stand still, with all that it "
          "holds.", jobs.OneJob, query=(SOME,), who=Who.OPERATOR, errors=CONFLICT),
    Route("POST", "/v1/jobs/{id}/resume", "resume_job", "Let the suspended job go on.", jobs.OneJob,
          query=(SOME,), who=Who.OPERATOR, errors=CONFLICT),
    Route("POST", "/v1/jobs/{id}/array-limit", "limit_array",
          "Change how many elements of the array run at once.", jobs.OneJob, job_requests.ArrayLimit,
          who=Who.OWNER, errors=CONFLICT),
    Route("POST", "/v1/jobs/{id}/update", "update",
          "Change what the job asks for, as far as its state allows.", jobs.OneJob, job_requests.JobUpdate,
          query=(SOME,), who=Who.OWNER, errors=(409, 422)),
    Route("GET", "/v1/jobs/{id}/wait", "wait", "Long poll: answered when the job has ended, or after "
          "`timeout_s`.", jobs.Waited, query=(Parameter("timeout_s", Seconds, "at most 300", 60), ONE)),
    Route("GET", "/v1/jobs/{id}/logs", "logs", "The bytes of a task's log, as they come. The "
          "header `Rm-Note`, percent-encoded, names what is missing. With `pieces` a line with attempt, "
          "offset and number of bytes precedes each piece; after the first one with 0 bytes comes every "
          "10 s.",
          "text/plain",
          query=(
              Parameter("task", Count, "the rank", 0),
              Parameter("stream", Annotated[str, Meta(pattern="^(out|err)$")], "`out` or `err`", "out"),
              Parameter("offset", Count, "from this byte", 0),
              Parameter("tail", Count, "instead: the last N bytes", 0),
              Parameter("lines", Count, "instead: the last N lines", 0),
              Parameter("attempt", Count, "which attempt; 0 = the newest", 0),
              Parameter("follow", Flag, "until the task ends", ""),
              Parameter("from_attempt", Count, "to follow on: `offset` is of that attempt, and all after it "
                        "come, too", 0),
              Parameter("pieces", Flag, "with their attempts and offsets", ""),
              ONE,
          ), who=Who.READER, errors=(409, 502)),
    Route("GET", "/v1/jobs/{id}/session", "session", "A WebSocket to a session: a program that runs in the "
          "job, with somebody at its terminal or its input and output.", "application/octet-stream",
          who=Who.READER, errors=(409, 502)),
    Route("GET", "/v1/jobs/{id}/why", "why", "Why the job waits, or runs where it runs.", reasons.Why,
          query=(ONE,)),
    Route("GET", "/v1/jobs/{id}/iterations", "iterations", "Iteration times against their baseline.",
          jobs.Iterations, query=(Parameter("last", Count, "the newest N; 0 = all", 0), ONE)),
    Route("GET", "/v1/jobs/{id}/used", "used_now", "What the job's script and its steps that run use now, as "
          "its hosts say.", job_steps.UsedNow, who=Who.OWNER),
    # -- hosts
    Route("GET", "/v1/hosts", "hosts", "Hosts with what is free on them and their jobs.", hosts.Hosts,
          query=(Parameter("variables", str, "with their variables, for administrators"),)),
    Route("POST", "/v1/hosts", "add_hosts", "Add hosts, or update them.", hosts.Hosts,
          hosts.AddHosts, who=Who.ADMIN, status=201),
    Route("DELETE", "/v1/hosts/{name}", "remove_host", "Remove the host.", hosts.OneHost, who=Who.ADMIN,
          errors=CONFLICT),
    Route("POST", "/v1/hosts/{name}/drain", "drain", "Let the host finish its jobs and take no new ones.",
          hosts.OneHost, hosts.Drain, who=Who.OPERATOR),
    Route("POST", "/v1/hosts/{name}/resume", "resume", "Let the host take jobs again.", hosts.OneHost,
          who=Who.OPERATOR),
    Route("POST", "/v1/hosts/{name}/adopt", "adopt", "Take the host over from another cluster.",
          hosts.OneHost, hosts.AdoptHost, who=Who.ADMIN, errors=(409, 502)),
    Route("GET", "/v1/hosts/{name}/key", "present_key", "The SSH key that the host presents, and the pinned "
          "one.", hosts.HostKeys, who=Who.ADMIN, errors=(409, 502)),
    Route("POST", "/v1/hosts/{name}/key", "accept_key", "Pin the presented key if it has exactly this "
          "fingerprint.", hosts.HostKeys, hosts.AcceptKey, who=Who.ADMIN, errors=(409, 502)),
    # -- the network
    Route("GET", "/v1/links", "links", "The links with the jobs that share them.", network.Links,
          private=USED),
    Route("GET", "/v1/network", "network", "The newest measurement of each pair.", network.Pairs,
          private=HOSTS),
    Route("POST", "/v1/network/measure", "measure", "Measure now.", network.Measured, network.Measure,
          who=Who.OPERATOR, errors=UNKNOWN),
    Route("GET", "/v1/network/history", "history", "The measurements of one direction.", network.History,
          query=(
              Parameter("source", str, "a host", required=True),
              Parameter("destination", str, "a host", required=True),
              Parameter("since_s", Seconds, "how far back", 86_400),
          ), errors=UNKNOWN, private=HOSTS),
    Route("GET", "/v1/monitor", "meshes", "The meshes and the archives' grids, and maintenance windows.",
          monitoring.Meshes, errors=CONFLICT, private=HOSTS),
    Route("GET", "/v1/monitor/{mesh}", "grid", "The cells of a mesh.", monitoring.Grid, errors=CONFLICT,
          private=HOSTS),
    Route("GET", "/v1/monitor/{mesh}/changes", "changes", "The changes of status.", monitoring.Changes,
          query=(
              Parameter("check", str, "of one check", ""),
              Parameter("source", str, "of one source", ""),
              Parameter("destination", str, "of one destination", ""),
              Parameter("since_s", Seconds, "how far back", 604_800),
              Parameter("limit", Count, "the newest N, at most 10,000", 10_000),
          ), errors=CONFLICT, private=HOSTS),
    Route("POST", "/v1/monitor/{mesh}/run", "run_mesh", "Run the mesh now; answered when it is over.",
          monitoring.OneMesh, monitoring.RunMesh, who=Who.OPERATOR, errors=(409, 502)),
    Route("POST", "/v1/monitor/{mesh}/pause", "pause_mesh", "Pause the mesh.", monitoring.OneMesh,
          who=Who.OPERATOR, errors=CONFLICT),
    Route("POST", "/v1/monitor/{mesh}/resume", "resume_mesh", "Let the paused mesh go on.",
          monitoring.OneMesh, who=Who.OPERATOR, errors=CONFLICT),
    Route("GET", "/v1/sources", "sources", "The archives that are read.", monitoring.Sources,
          errors=CONFLICT, private=HOSTS),
    Route("GET", "/v1/archives", "archives", "The archives that results are sent to.", monitoring.Archives,
          errors=CONFLICT, private=HOSTS),
    Route("POST", "/v1/sources/{name}/read", "read_source", "Read the archive now.", monitoring.OneSource,
          who=Who.OPERATOR, errors=(409, 502)),
    # -- accounts
    Route("GET", "/v1/accounts", "accounts", "Accounts, their shares, who is in them, and QOS "
          "([more](sharing.md)).", sharing.Accounts, private=USED),
    Route("GET", "/v1/shares", "shares", "What accounts and users have used, and their fair share "
          "([more](sharing.md)).", sharing.Shares, private=USED),
    Route("GET", "/v1/usage", "usage", "What jobs used that ended in a time, added up ([more](usage.md)).",
          usage.Usage, query=(
              Parameter("by", str, "account, user, qos and partition, or host; and day; with commas", ""),
              Parameter("since_us", Count, "that ended at or after this instant", 0),
              Parameter("until_us", Count, "that ended before this instant; 0 = now", 0),
              *(Parameter(name, str, f"of one {what}")
                for name, what in (("account", "account"), ("user", "user"), ("qos", "QOS"),
                                   ("partition", "partition"), ("host", "host"))),
          ), private=USED),
    Route("POST", "/v1/accounts", "add_account", "Add an account.", sharing.Accounts, sharing.AccountRequest,
          who=Who.ADMIN, status=201, errors=CONFLICT),
    Route("POST", "/v1/accounts-import", "import_accounts", "Let these be all accounts and members.",
          sharing.Accounts, sharing.AccountsImport, who=Who.ADMIN, errors=CONFLICT),
    Route("POST", "/v1/accounts/{name}", "set_account", "Change an account.", sharing.Accounts,
          sharing.AccountUpdate, who=Who.ADMIN, errors=CONFLICT),
    Route("DELETE", "/v1/accounts/{name}", "remove_account", "Remove an account without users, and without "
          "accounts below it.", sharing.Accounts, who=Who.ADMIN, errors=CONFLICT),
    Route("POST", "/v1/accounts/{name}/members", "put_members", "Let users be in the account, or change what "
          "they have there.", sharing.Accounts, sharing.MemberRequest, who=Who.ADMIN, errors=CONFLICT),
    Route("DELETE", "/v1/accounts/{name}/members/{user}", "remove_member", "Take a user out of the account.",
          sharing.Accounts, who=Who.ADMIN, errors=CONFLICT),
    Route("POST", "/v1/qos", "add_qos", "Add a quality of service.", sharing.Accounts, sharing.QosRequest,
          who=Who.ADMIN, status=201, errors=CONFLICT),
    Route("POST", "/v1/qos/{name}", "set_qos", "Change a QOS.", sharing.Accounts, sharing.QosUpdate,
          who=Who.ADMIN, errors=CONFLICT),
    Route("DELETE", "/v1/qos/{name}", "remove_qos", "Remove a QOS in which no job waits or runs.",
          sharing.Accounts, who=Who.ADMIN, errors=CONFLICT),
    # -- partitions
    Route("GET", "/v1/partitions", "partitions", "What is ruled of partitions ([more](sharing.md)).",
          sharing.Partitions, private=HOSTS),
    Route("POST", "/v1/partitions", "add_partition", "Give a partition rules.", sharing.Partitions,
          sharing.PartitionRequest, who=Who.ADMIN, status=201, errors=CONFLICT),
    Route("POST", "/v1/partitions/{name}", "set_partition", "Change the rules of a partition.",
          sharing.Partitions, sharing.PartitionUpdate, who=Who.ADMIN, errors=CONFLICT),
    Route("DELETE", "/v1/partitions/{name}", "remove_partition", "Take its rules from a partition.",
          sharing.Partitions, who=Who.ADMIN, errors=CONFLICT),
    # -- reservations of hosts
    Route("GET", "/v1/reservations", "reservations", "Those that are open or to come "
          "([more](reservations.md)).", reservations.Reservations, private=HOSTS),
    Route("POST", "/v1/reservations", "create_reservation", "Keep hosts for some users, or for maintenance.",
          reservations.OneReservation, reservations.ReservationRequest, who=Who.OPERATOR, status=201,
          errors=UNKNOWN),
    Route("POST", "/v1/reservations/{name}", "change_reservation", "Change a reservation.",
          reservations.OneReservation, reservations.ReservationUpdate, who=Who.OPERATOR, errors=CONFLICT),
    Route("DELETE", "/v1/reservations/{name}", "delete_reservation", "Delete a reservation, in which no job "
          "runs.", reservations.OneReservation, who=Who.OPERATOR, errors=CONFLICT),
    # -- alerts
    Route("GET", "/v1/alerts", "alerts", "Alerts, silences, rules and channels ([more](alerts.md)).",
          alerts.Alerts, errors=CONFLICT, private=HOSTS),
    Route("POST", "/v1/alerts/acknowledge", "acknowledge", "Acknowledge alerts.",
          alerts.Acknowledged, alerts.Acknowledge, who=Who.OPERATOR, errors=UNKNOWN),
    Route("POST", "/v1/alerts/silences", "silence", "Keep alerts from firing for a while.",
          alerts.OneSilence, alerts.SilenceRequest, who=Who.OPERATOR, errors=CONFLICT),
    Route("DELETE", "/v1/alerts/silences/{id}", "end_silence", "End the silence.", alerts.OneSilence,
          who=Who.OPERATOR, errors=CONFLICT),
    # -- playbooks
    Route("GET", "/v1/playbooks", "playbooks", "Those that may be started "
          "([more](playbooks-on-the-page.md)).", playbooks.ListedPlaybooks, who=Who.PLAYBOOKS,
          errors=CONFLICT),
    Route("GET", "/v1/playbooks/{name}", "survey", "What who starts the playbook is asked.",
          playbooks.Survey, who=Who.PLAYBOOKS, errors=CONFLICT),
    Route("POST", "/v1/playbooks/{name}/start", "start_playbook", "Start the playbook; answered when the "
          "run is recorded.", playbooks.OnePlaybookRun, playbooks.StartPlaybook, who=Who.PLAYBOOKS,
          status=201, errors=CONFLICT),
    Route("GET", "/v1/playbook-runs", "playbook_runs", "Runs of playbooks, the newest first.",
          playbooks.PlaybookRuns, query=(
              Parameter("limit", Count, f"the newest N, at most {playbooks.RUNS_MOST}; 0 = at most", 50),
              Parameter("before", Count, "only those with a smaller id: the next page", 0),
              Parameter("playbook", str, "of one playbook", ""),
          ), who=Who.PLAYBOOKS, errors=CONFLICT),
    Route("POST", "/v1/playbook-runs", "tell_playbook", "Tell of a run that begins in a shell; answered when "
          "it is recorded.", playbooks.OnePlaybookRun, playbooks.TellPlaybook, who=Who.PLAYBOOKS, status=201,
          errors=CONFLICT),
    Route("POST", "/v1/playbook-runs/{id}/progress", "tell_progress", "What a run in a shell of the caller's "
          "has come to.", playbooks.OnePlaybookRun, playbooks.TellProgress, who=Who.PLAYBOOKS,
          errors=CONFLICT),
    Route("GET", "/v1/playbook-runs/{id}", "playbook_run", "One run, while it goes on, too.",
          playbooks.OnePlaybookRun, who=Who.PLAYBOOKS, errors=CONFLICT),
    Route("GET", "/v1/playbook-runs/{id}/outcomes", "outcomes", "What tasks came to on hosts, in order.",
          playbooks.TaskOutcomes, query=(
              Parameter("after", Count, "only those with a larger number: the next page", 0),
              Parameter("limit", Count, f"the first N, at most {playbooks.OUTCOMES_MOST}; 0 = at most", 0),
              Parameter("host", str, "of one host", ""),
              Parameter("status", str, "statuses, with commas", ""),
          ), who=Who.PLAYBOOKS, errors=CONFLICT),
    Route("POST", "/v1/playbook-runs/{id}/stop", "stop_playbook", "Break the run off, as Ctrl-C does.",
          playbooks.OnePlaybookRun, who=Who.PLAYBOOKS, errors=CONFLICT),
    Route("GET", "/v1/playbook-schedules", "playbook_schedules", "Playbooks that are started by cron.",
          playbooks.PlaybookSchedules, who=Who.PLAYBOOKS, errors=CONFLICT),
    Route("POST", "/v1/playbook-schedules", "schedule_playbook", "Start a playbook by cron.",
          playbooks.OnePlaybookSchedule, playbooks.SchedulePlaybook, who=Who.PLAYBOOKS, status=201,
          errors=UNKNOWN),
    Route("DELETE", "/v1/playbook-schedules/{id}", "unschedule_playbook", "Remove the schedule.",
          playbooks.OnePlaybookSchedule, who=Who.PLAYBOOKS, errors=CONFLICT),
    # -- playbook steps
    Route("GET", "/v1/channels", "channels", "The connected agents that take playbook steps.",
          channels.Channels, who=Who.ADMIN, errors=CONFLICT),
    Route("POST", "/v1/channels/{host}/steps", "run_steps", "Run steps on the host; answered when they are "
          "over, and given up when the connection ends. 502: the outcome is unknown.", channels.StepsAnswer,
          channels.StepsRequest, who=Who.ADMIN, errors=(409, 502)),
    # -- people
    Route("GET", "/v1/tokens", "tokens", "The caller's tokens.", accounts.Tokens, query=(
        Parameter("user", str, "of this user, for administrators; `*` = of all", ""),
    ), who=Who.USER),
    Route("POST", "/v1/tokens", "create_token", "Make a token; its text is in this answer only.",
          accounts.NewToken, accounts.TokenRequest, who=Who.USER, status=201, errors=UNKNOWN),
    Route("DELETE", "/v1/tokens/{token}", "revoke_token", "Revoke a token of one's own; administrators, any.",
          accounts.OneToken, who=Who.USER, errors=CONFLICT),
    Route("GET", "/v1/audit", "audit", "The audit log, oldest first: the next `after` is the last `seq`.",
          accounts.Acts, query=(
              Parameter("after", Count, "above this number", 0),
              Parameter("since_us", Count, "at or after this instant", 0),
              Parameter("user", str, "of one user", ""),
              Parameter("limit", Count, "the next N, at most 10,000", 1000),
          ), who=Who.ADMIN),
    # -- for programs
    Route("GET", "/v1/openapi.json", "openapi", "This table as OpenAPI 3.1.", "application/json"),
    Route("GET", "/metrics", "metrics", "[Prometheus](monitoring.md#prometheus-and-grafana).", "text/plain",
          who=Who.PROGRAMS, private=USED),
    *(
        Route("GET", f"/maddash/{path}", f"maddash_{path.count('/')}_{path.split('/')[0]}",
              "[MaDDash's REST API](monitoring.md#maddashs-rest-api), in its own shapes.",
              "application/json", who=Who.PROGRAMS, errors=CONFLICT, private=HOSTS)
        for path in ("dashboards", "events", "grids", "grids/{mesh}", "grids/{mesh}/{source}",
                     "grids/{mesh}/{source}/{destination}", "grids/{mesh}/{source}/{destination}/{check}")
    ),
)  # fmt: skip
