"""`apt`: Debian packages are installed, up to date, or gone."""

from __future__ import annotations

from typing import Any

from rm.playbook.module import Arg, BadArgument, CompileContext

ARGS = {
    "name": Arg("list", aliases=("package", "pkg")),
    "state": Arg(choices=("present", "latest", "absent", "build-dep", "fixed"), default="present"),
    "update_cache": Arg("bool", default=False, aliases=("update-cache",)),
    "update_cache_retries": Arg("int"),
    "update_cache_retry_max_delay": Arg("int"),
    "cache_valid_time": Arg("int", default=0),
    "purge": Arg("bool", default=False),
    "default_release": Arg(aliases=("default-release",)),
    "install_recommends": Arg("bool", aliases=("install-recommends",)),
    "force": Arg("bool", default=False),
    "allow_unauthenticated": Arg("bool", default=False, aliases=("allow-unauthenticated",)),
    "allow_downgrade": Arg("bool", default=False, aliases=("allow-downgrade", "allow_downgrades")),
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
LATER = ("autoclean", "clean", "fail_on_autoremove")


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    if args["state"] in ("build-dep", "fixed"):
        raise BadArgument(f"the state '{args['state']}' is not supported")
    for name in LATER:
        if args[name]:
            raise BadArgument(f"'{name}' is not supported; run apt-get by 'command'")
    if args["policy_rc_d"] is not None:
        raise BadArgument("'policy_rc_d' is not supported")
    upgrade = {"True": "yes", "False": "no"}.get(args["upgrade"], args["upgrade"])
    update = args["update_cache"] or bool(args["cache_valid_time"])
    if not (args["name"] or update or upgrade != "no" or args["deb"] or args["autoremove"]):
        raise BadArgument("give 'name', 'deb', 'upgrade', 'update_cache' or 'autoremove'")
    kept = {k: v for k, v in args.items() if k not in LATER}
    return {**kept, "use": "apt", "upgrade": upgrade, "update_cache": update}
