"""`apt`: Debian packages are installed, up to date, or gone."""

from __future__ import annotations

from typing import Any

from rm.playbook.model.problems import BadArgument
from rm.playbook.module import Arg, CompileContext

ARGS = {
    "name": Arg("list", aliases=("package", "pkg")),
    "state": Arg(choices=("present", "latest", "absent", "build-dep", "fixed"), default="present"),
    "update_cache": Arg("bool", aliases=("update-cache",)),
    "update_cache_retries": Arg("int", default=5),
    "update_cache_retry_max_delay": Arg("int", default=12),
    "cache_valid_time": Arg("int", default=0),
    "purge": Arg("bool", default=False),
    "default_release": Arg(aliases=("default-release",)),
    "install_recommends": Arg("bool", aliases=("install-recommends",)),
    "force": Arg("bool", default=False),
    "allow_unauthenticated": Arg("bool", default=False, aliases=("allow-unauthenticated",)),
    "allow_downgrade": Arg(
        "bool", default=False, aliases=("allow-downgrade", "allow_downgrades", "allow-downgrades")
    ),
    "allow_change_held_packages": Arg("bool", default=False),
    "upgrade": Arg(choices=("dist", "full", "no", "safe", "yes", "True", "False"), default="no"),
    "dpkg_options": Arg(default="force-confdef,force-confold"),
    "deb": Arg(),
    "autoremove": Arg("bool", default=False),
    "autoclean": Arg("bool", default=False),
    "clean": Arg("bool", default=False),
    "policy_rc_d": Arg("int"),
    "only_upgrade": Arg("bool", default=False),
    "fail_on_autoremove": Arg("bool", default=False),
    "force_apt_get": Arg("bool", default=False),
    "lock_timeout": Arg("int", default=60),
    "auto_install_module_deps": Arg("bool", default=True),
}
EXECUTOR = "package"


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    if args["policy_rc_d"] is not None:
        raise BadArgument("'policy_rc_d' is not supported: a run that is cut short would leave it behind")
    upgrade = {"True": "yes", "False": "no"}.get(args["upgrade"], args["upgrade"])
    if sum(map(bool, (args["name"], args["deb"], upgrade != "no"))) > 1:
        raise BadArgument("give only one of 'name', 'deb' and 'upgrade'")
    if args["deb"] and args["state"] != "present":
        raise BadArgument("'deb' knows only the state 'present'")
    for name in args["name"] or ():
        if name.count("=") > 1:
            raise BadArgument(f"'{name}' is not a package")
    return {
        **args,
        "use": "apt",
        "upgrade": upgrade,
        "update_cache": args["update_cache"] or bool(args["cache_valid_time"]),
    }
