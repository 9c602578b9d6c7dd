"""What the daemon asks for, checked: launch requests and users."""

import os
import pwd
import signal
import time

from rm_container import checked as checked_container
from rm_fence import checked_settings
from rm_lease import alive_us
from rm_spool import SpoolError

LARGEST = 1 << 53  # of any number: a time in microseconds, a size in bytes
PROGRAMS = "/etc/rm/"  # of the administrator of the host


class User:
    def __init__(self, entry):
        self.name, self.uid, self.gid = entry.pw_name, entry.pw_uid, entry.pw_gid
        self.home, self.shell = entry.pw_dir or "/", entry.pw_shell or "/bin/sh"
        self.groups = None  # as they were read, for many tasks; None: each task reads them


def name_of(request):
    job, attempt = request.get("job"), request.get("attempt")
    return number(job, "job"), number(attempt, "attempt")


def number(value, name):
    """A time, a size or a count; ValueError says which one is none."""
    if type(value) is not int or not 0 <= value <= LARGEST:
        raise ValueError("%s is not a number from 0 to 2^53" % name)
    return value


def heard_of(heard_us):
    """When the daemon was heard, by this host's clock since its boot, from the request."""
    if heard_us > alive_us():
        raise ValueError("heard_us is in the future")
    return heard_us


def not_too_late(request):
    """Refuse what has been under way for too long (this host was frozen, say): it may be given up by now, and
    have run elsewhere."""
    until = request.get("not_after_us")
    late_us = time.time_ns() // 1000 - until if isinstance(until, int) else 0
    if late_us > 0:
        raise SpoolError("too-late", "The request came %.1f s too late." % (late_us / 1e6))


def keep_to_jobs(request):
    """Of an agent that does nothing as root for its callers: no request, also of a slice, launches a job of
    root, or a program of root but one that the host's administrator has put into PROGRAMS."""
    for launch in (request, request.get("first")):
        if not isinstance(launch, dict):
            continue
        launch.pop("allow_root", None)
        for key in ("prolog", "epilog"):
            path = launch.get(key) or PROGRAMS
            if not str(path).startswith(PROGRAMS) or ".." in str(path).split("/"):
                host = os.uname().nodename
                said = "The agents of %s are kept to jobs: their %s lies in %s, unlike %.200s."
                raise SpoolError("not-permitted", said % (host, key, PROGRAMS, path))


def checked_launch(request):
    """A complete, well-typed launch request; ValueError says which field is wrong."""
    result = {}
    for key, kind, default in (
        ("user", str, None), ("script", str, ""), ("batch", str, ""), ("args", list, []),
        ("chdir", str, ""), ("env", dict, {}),
        ("chdir_required", bool, False), ("output", str, ""), ("error", str, ""), ("tasks", list, None),
        ("mem_bytes_per_task", int, 0), ("mem_bytes", int, 0), ("time_limit_us", int, 0),
        ("grace_us", int, 30_000_000), ("hold", bool, False), ("allow_root", bool, False),
        ("cpus_per_task", int, 1), ("cpus", int, 0), ("fence", dict, {}), ("master_port", bool, False),
        ("log_bytes", int, 64 << 20), ("log_reserve_bytes", int, 0), ("open_mode", str, "truncate"),
        ("lease_us", int, 0), ("heard_us", int, 0), ("allocation", list, []), ("place", int, 0),
        ("warn_signal", int, 0), ("warn_before_us", int, 0), ("warn_batch", bool, False),
        ("prolog", str, ""), ("epilog", str, ""), ("program_us", int, 60_000_000),
        ("container", dict, {}),
    ):  # fmt: skip
        value = request.get(key)
        value = default if value is None else value
        if not isinstance(value, kind):
            raise ValueError("%s is missing or is not a %s" % (key, kind.__name__))
        result[key] = number(value, key) if kind is int else value
    for key in ("prolog", "epilog"):
        if result[key] and (not result[key].startswith("/") or "\0" in result[key]):
            raise ValueError("%s is an absolute path" % key)
    for key in ("uid", "gid"):
        result[key] = None if request.get(key) is None else number(request[key], key)
    if result["open_mode"] not in ("truncate", "append"):
        raise ValueError("open_mode is truncate or append")
    if result["warn_signal"] >= signal.NSIG:
        raise ValueError("warn_signal is no signal")
    result["heard_us"] = heard_of(result["heard_us"])
    result["container"] = checked_container(result["container"])
    result["fence"] = checked_settings(result["fence"])
    if not result["tasks"]:
        raise ValueError("there is no task")
    if bool(result["script"]) == bool(result["batch"]):
        raise ValueError("there is a script, or a batch in its place")
    once = bool(result["batch"])
    result["script"] = result["script"] or result["batch"]
    result["allocation"] = [_allocated(host) for host in result["allocation"]]
    if once and result["place"] >= len(result["allocation"]):
        raise ValueError("place is not in the allocation")
    tasks, ranks = [], set()
    for task in result["tasks"]:
        if not isinstance(task, dict) or number(task.get("rank"), "rank") in ranks:
            raise ValueError("every task has a rank of its own")
        if not isinstance(task.get("env") or {}, dict) or not isinstance(task.get("gpus") or [], list):
            raise ValueError("a task's env is an object and its gpus are a list")
        ranks.add(task["rank"])
        idle = once and task["rank"] != 0
        tasks.append({
            "rank": task["rank"], "idle": idle, "env": task.get("env") or {},
            "gpus": [str(gpu) for gpu in task.get("gpus") or []],
            "output": "" if idle else task.get("output") or result["output"],
            "error": "" if idle else task.get("error") or result["error"],
            "input": "" if idle else task.get("input") or "",
        })  # fmt: skip
    result["tasks"] = tasks
    paths = (task[key] for task in tasks for key in ("output", "error", "input"))
    texts = [result["chdir"], *result["args"], *paths]
    for env in [result["env"], *(task["env"] for task in tasks)]:
        texts += [*env, *env.values()]
    if not all(isinstance(text, str) and "\0" not in text for text in texts):
        raise ValueError("arguments, environment and paths are strings without NUL bytes")
    return result


def _allocated(host):
    """What the attempt has on one of its hosts."""
    if not isinstance(host, dict) or not isinstance(host.get("host"), str):
        raise ValueError("a host of the allocation has a name")
    counts = {key: number(host.get(key, 0), key) for key in ("tasks", "cpus", "gpus")}
    return dict(counts, host=host["host"], address=str(host.get("address", "")))


def user_of(request):
    host = os.uname().nodename
    try:
        user = User(pwd.getpwnam(request["user"]))
    except (KeyError, ValueError):
        raise SpoolError("no-such-user", "There is no user %r on %s." % (request["user"], host)) from None
    if os.getuid() != 0 and user.uid != os.getuid():
        raise SpoolError("not-permitted", "The agent on %s runs as user id %d and cannot start tasks of %s."
                         % (host, os.getuid(), user.name))  # fmt: skip
    wanted = [user.uid if request["uid"] is None else request["uid"],
              user.gid if request["gid"] is None else request["gid"]]  # fmt: skip
    if wanted != [user.uid, user.gid]:
        raise SpoolError("uid-mismatch", "User %s has the ids %d:%d (uid:gid) where the daemon runs, %d:%d "
                         "on %s. Make them the same, or set fence.check_ids = false in rm.toml."
                         % (user.name, *wanted, user.uid, user.gid, host))  # fmt: skip
    if user.uid == 0 and not request["allow_root"]:
        raise SpoolError(
            "root-refused", "Jobs of root are not run; submit as another user, or allow it in rm.toml."
        )
    return user
