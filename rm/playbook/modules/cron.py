"""`cron`: a job or variable in a user's table, or in a file of /etc/cron.d."""

from __future__ import annotations

from typing import Any

from rm.playbook.model.problems import BadArgument
from rm.playbook.module import Arg, CompileContext

SPECIAL = ("reboot", "yearly", "annually", "monthly", "weekly", "daily", "hourly")
ARGS = {
    "name": Arg(required=True),
    "job": Arg(aliases=("value",)),
    "state": Arg(choices=("present", "absent"), default="present"),
    "user": Arg(),
    "cron_file": Arg(),
    "minute": Arg(default="*"),
    "hour": Arg(default="*"),
    "day": Arg(default="*", aliases=("dom",)),
    "month": Arg(default="*"),
    "weekday": Arg(default="*", aliases=("dow",)),
    "special_time": Arg(choices=SPECIAL),
    "disabled": Arg("bool", default=False),
    "env": Arg("bool", default=False),
    "insertafter": Arg(),
    "insertbefore": Arg(),
    "backup": Arg("bool", default=False),
}
TIMES = ("minute", "hour", "day", "month", "weekday")


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    if args["state"] == "present" and args["job"] is None:
        raise BadArgument("state 'present' needs 'job'")
    if args["special_time"] and any(args[name] != "*" for name in TIMES):
        raise BadArgument("give either 'special_time' or minute, hour, day, month and weekday")
    if args["cron_file"] and not args["user"] and args["state"] == "present":
        raise BadArgument("'cron_file' needs 'user': the account that runs the job")
    if (args["insertafter"] or args["insertbefore"]) and not args["env"]:
        raise BadArgument("'insertafter' and 'insertbefore' are for 'env'")
    if "\n" in f"{args['name']}{args['job'] or ''}".rstrip("\n"):
        raise BadArgument("'name' and 'job' are one line each")
    return {**args, "job": (args["job"] or "").rstrip("\n")}
