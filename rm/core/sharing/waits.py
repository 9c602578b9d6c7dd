"""For what jobs waited, in the few kinds that the account of usage adds up."""

from __future__ import annotations

from rm.core.model.reasons import ReasonCode as Code
from rm.core.model.waited import Waited

LIMITS = ("Assoc", "QOS")  # how the codes of their limits begin
KIND_OF: dict[str, str] = {
    Code.RESOURCES: "resources",
    Code.HOST_NOT_AVAILABLE: "resources",
    Code.PRIORITY: "priority",
    Code.DEPENDENCY: "dependency",
    Code.DEPENDENCY_NEVER: "dependency",
    Code.HELD_USER: "held",
    Code.HELD_ADMIN: "held",
    Code.BEGIN_TIME: "begin",
    Code.ARRAY_LIMIT: "limits",
    Code.ACCOUNT_NOT_ALLOWED: "limits",
    Code.PARTITION_TIME: "limits",
    Code.PARTITION_HOSTS: "limits",
    Code.LICENSES: "licenses",
    Code.ZONE: "network",
    Code.BANDWIDTH: "network",
    Code.CONTENTION: "network",
    Code.DEPENDENCY_LOOP: "network",
    Code.BAD_NETWORK: "network",
}


def kind_of(code: str) -> str:
    """Limits are those of accounts, users, QOS, partitions and job arrays."""
    if code.startswith(LIMITS):
        return "limits"
    return KIND_OF.get(code, "other")


def by_kind(waited: Waited) -> dict[str, int]:
    """By the name of the sum, microseconds."""
    found: dict[str, int] = {}
    for code, us in waited:
        name = f"waited_{kind_of(code)}_us"
        found[name] = found.get(name, 0) + us
    return found
