"""What limits are called in sentences, and the codes of the reasons that they are.

Source of the codes: Slurm's documentation, "Job Reason Codes". Slurm has none of its own for a user's part of
an account's resources: a group's is taken. Those of partitions are the QOS's, as in Slurm with a partition's
QOS, but for the two that slurm.conf limits itself: MaxTime and MaxNodes.
"""

from __future__ import annotations

from rm.core.model.reasons import ReasonCode as Code
from rm.core.sharing.limits import USED
from rm.core.sharing.tally import Key

NOUNS = {
    "running": "running jobs",
    "submitted": "submitted jobs",
    "cpus": "processors",
    "gpus": "GPUs",
    "hosts": "hosts",
    "mem_gib": "GiB of memory",
    "gpu_minutes_running": "GPU minutes",
    USED: "billing minutes",
    "minutes": "minutes of run time",
    "elements": "elements of an array",
}
_ASSOC = {
    "running": Code.ASSOC_JOBS,
    "submitted": Code.ASSOC_SUBMIT,
    "cpus": Code.ASSOC_CPUS,
    "gpus": Code.ASSOC_GPUS,
    "hosts": Code.ASSOC_HOSTS,
    "mem_gib": Code.ASSOC_MEM,
    "gpu_minutes_running": Code.ASSOC_GPU_MINUTES,
    USED: Code.ASSOC_BILLING,
}
_ASSOC_EACH = _ASSOC | {"running": Code.ASSOC_USER_JOBS, "submitted": Code.ASSOC_USER_SUBMIT}
_ASSOC_JOB = {
    "minutes": Code.ASSOC_JOB_WALL,
    "cpus": Code.ASSOC_JOB_CPUS,
    "gpus": Code.ASSOC_JOB_GPUS,
    "hosts": Code.ASSOC_JOB_HOSTS,
    "mem_gib": Code.ASSOC_JOB_MEM,
    "gpu_minutes_running": Code.ASSOC_JOB_GPU_MINUTES,
}
_QOS = {
    "running": Code.QOS_JOBS,
    "submitted": Code.QOS_SUBMIT,
    "cpus": Code.QOS_CPUS,
    "gpus": Code.QOS_GPUS,
    "hosts": Code.QOS_HOSTS,
    "mem_gib": Code.QOS_MEM,
    "gpu_minutes_running": Code.QOS_GPU_MINUTES,
}
_QOS_USER = _QOS | {
    "running": Code.QOS_USER_JOBS,
    "submitted": Code.QOS_USER_SUBMIT,
    "cpus": Code.QOS_USER_CPUS,
    "gpus": Code.QOS_USER_GPUS,
    "hosts": Code.QOS_USER_HOSTS,
    "mem_gib": Code.QOS_USER_MEM,
}
_QOS_ACCOUNT = _QOS | {
    "running": Code.QOS_ACCOUNT_JOBS,
    "submitted": Code.QOS_ACCOUNT_SUBMIT,
    "cpus": Code.QOS_ACCOUNT_CPUS,
    "gpus": Code.QOS_ACCOUNT_GPUS,
    "hosts": Code.QOS_ACCOUNT_HOSTS,
    "mem_gib": Code.QOS_ACCOUNT_MEM,
}
_QOS_JOB = {
    "minutes": Code.QOS_JOB_WALL,
    "cpus": Code.QOS_JOB_CPUS,
    "gpus": Code.QOS_JOB_GPUS,
    "hosts": Code.QOS_JOB_HOSTS,
    "mem_gib": Code.QOS_JOB_MEM,
    "gpu_minutes_running": Code.QOS_JOB_GPU_MINUTES,
}
_PARTITION_JOB = _QOS_JOB | {"minutes": Code.PARTITION_TIME, "hosts": Code.PARTITION_HOSTS}


def code_of(key: Key, measure: str) -> Code:
    """Of a limit of what is in use or submitted under a key."""
    if key.kind in ("qos", "partition"):
        table = _QOS if not key.each else _QOS_ACCOUNT if key.by_account else _QOS_USER
    else:
        table = _ASSOC_EACH if key.each else _ASSOC
    return table[measure]


def code_of_job(key: Key, measure: str) -> Code:
    """Of a limit of each job."""
    tables = {"qos": _QOS_JOB, "partition": _PARTITION_JOB}
    return tables.get(key.kind, _ASSOC_JOB)[measure]
