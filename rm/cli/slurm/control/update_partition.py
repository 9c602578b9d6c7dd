"""The fields that `scontrol update PartitionName=` changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

from rm.errors import UsageError
from rm.units import number_of, parse_time_limit_us

if TYPE_CHECKING:
    from rm.client import Client

MINUTE_US = 60_000_000
UNLIMITED = "UNLIMITED"
NUMBERS = {"prioritytier": "tier", "priorityjobfactor": "priority"}
LISTS = {"allowaccounts": "accounts", "allowqos": "qos"}
KNOWN = "AllowAccounts, AllowQos, DefaultTime, MaxNodes, MaxTime, PriorityJobFactor, PriorityTier and State"


def update_partition(client: Client, name: str, fields: dict[str, str]) -> None:
    """Change what is named; a partition without rules gets them.

    Raises:
        UsageError: a field cannot be changed, or not so.
    """
    changes, limits = dict[str, Any](), dict[str, int | None]()
    for key, value in fields.items():
        if key == "state":
            changes["state"] = _state(value)
        elif key in NUMBERS:
            changes[NUMBERS[key]] = _number(key, value)
        elif key in LISTS:
            changes[LISTS[key]] = [] if value.upper() == "ALL" else [one for one in value.split(",") if one]
        elif key == "defaulttime":
            changes["default_minutes"] = 0 if value.upper() == "NONE" else _minutes(value) or 0
        elif key == "maxtime":
            limits["job.minutes"] = _minutes(value)
        elif key == "maxnodes":
            limits["job.hosts"] = None if value.upper() == UNLIMITED else _number(key, value)
        else:
            raise UsageError(
                f"Update of this parameter is not supported: {key}={value}.", f"{KNOWN} can be changed."
            )
    if limits:
        changes["limits"] = limits
    if not changes:
        raise UsageError(
            "The request changes nothing.", "Write: scontrol update PartitionName=gpu State=DOWN."
        )
    if all(one.name != name for one in client.sharing.partitions()):
        if all(name not in host.partitions for host in client.hosts()):
            raise UsageError(f"Invalid partition name specified: {name}.", "`sinfo` lists the partitions.")
        changes["limits"] = {limit: value for limit, value in limits.items() if value is not None}
        client.sharing.add_partition(name, **changes)
    else:
        client.sharing.set_partition(name, **changes)


def _state(value: str) -> str:
    from rm.api.sharing import PartitionState  # what few commands need

    states = get_args(PartitionState)
    if value.lower() not in states:
        listed = ", ".join(states).upper()
        raise UsageError(f"Invalid input: State={value}.", f"Acceptable State values are {listed}.")
    return value.lower()


def _number(key: str, value: str) -> int:
    number = number_of(value)
    if number is None:
        raise UsageError(f"{key} is '{value:.80}'.", "Write a whole number.")
    return number


def _minutes(value: str) -> int | None:
    limit_us = parse_time_limit_us(value)
    return None if limit_us is None else max(1, -(-limit_us // MINUTE_US))
