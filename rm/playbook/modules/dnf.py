"""`dnf`, `yum`: RPM packages are installed, up to date, or gone."""

from __future__ import annotations

from typing import Any

from rm.playbook.model.problems import BadArgument
from rm.playbook.module import Arg, CompileContext

ARGS = {
    "name": Arg("list", aliases=("pkg",)),
    "state": Arg(choices=("present", "installed", "latest", "absent", "removed")),
    "enablerepo": Arg("list"),
    "disablerepo": Arg("list"),
    "exclude": Arg("list"),
    "autoremove": Arg("bool", default=False),
    "disable_gpg_check": Arg("bool", default=False),
    "install_weak_deps": Arg("bool", default=True),
    "allowerasing": Arg("bool", default=False),
    "update_cache": Arg("bool", default=False, aliases=("expire-cache",)),
    "update_only": Arg("bool", default=False),
    "allow_downgrade": Arg("bool", default=False),
    "skip_broken": Arg("bool", default=False),
    "nobest": Arg("bool", default=False),
    "best": Arg("bool"),
    "cacheonly": Arg("bool", default=False),
    "security": Arg("bool", default=False),
    "bugfix": Arg("bool", default=False),
    "disable_excludes": Arg(),
    "enable_plugin": Arg("list"),
    "disable_plugin": Arg("list"),
    "download_only": Arg("bool", default=False),
    "download_dir": Arg(),
    "sslverify": Arg("bool", default=True),
    "validate_certs": Arg("bool", default=True),
    "installroot": Arg(),
    "releasever": Arg(),
    "conf_file": Arg(),
    "lock_timeout": Arg("int", default=30),
    "use_backend": Arg(choices=("auto", "yum", "yum4", "dnf4", "dnf5"), default="auto"),
}
EXECUTOR = "package"


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    if not (args["name"] or args["autoremove"] or args["update_cache"]):
        raise BadArgument("give 'name', 'update_cache' or 'autoremove'")
    state = args["state"] or ("absent" if args["autoremove"] else "present")
    state = {"installed": "present", "removed": "absent"}.get(state, state)
    if args["download_dir"] and not args["download_only"]:
        args = {**args, "download_dir": None}
    if args["best"] is not None:
        args = {**args, "nobest": not args["best"]}
    return {**args, "only_upgrade": args["update_only"], "use": "dnf", "state": state}
