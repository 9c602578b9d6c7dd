"""`/v1/status`: the daemon itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from rm.api.answer import Answer


class Daemon(msgspec.Struct, frozen=True, kw_only=True):
    """`agents` is the `agent_version` of the agents that come with this rm."""

    version: str
    agents: str
    pid: int
    started_us: int
    epoch: int


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Of rm.toml: the name that jobs find in their environment, the partition of jobs that name none, how
    many indices a job array may have, how long jobs that have ended are listed, and how long and how many of
    them are kept; 0: not told."""

    cluster_name: str = ""
    partition: str = ""
    array_size: int = 0
    recent_s: float = 0
    keep_days: float = 0
    keep_finished: int = 0


class License(msgspec.Struct, frozen=True, kw_only=True):
    """How many of a licence the cluster has, and how many jobs hold; null for callers who may not know."""

    name: str
    total: int
    used: int | None = None


class Status(Answer, frozen=True, kw_only=True):
    """How many jobs and hosts are in each state, and the policies by kind.

    `waiting` says that the daemon waits for its database, and why; it knows of no job or host then.
    `set_aside` has a sentence for each damaged row of the database that the daemon does without, and
    `policy_faults` one for each policy that failed by a defect of its own. `other_agents` names the hosts
    whose agents are not of this rm.
    """

    daemon: Daemon
    jobs: Mapping[str, int]
    hosts: Mapping[str, int]
    policies: Mapping[str, str]
    waiting: str = ""
    set_aside: Sequence[str] = ()
    policy_faults: Sequence[str] = ()
    other_agents: Sequence[str] = ()
    settings: Settings = Settings()
    licenses: Sequence[License] = ()
