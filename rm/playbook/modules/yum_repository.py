"""`yum_repository`: a repository of RPM packages is known to the host, or is not."""

from __future__ import annotations

from typing import Any

from rm.playbook.model.problems import BadArgument
from rm.playbook.module import OWNERSHIP, Arg, CompileContext

_TEXTS = (
    "bandwidth", "cost", "deltarpm_metadata_percentage", "deltarpm_percentage", "description", "gpgcakey",
    "include", "metadata_expire", "metalink", "mirrorlist", "mirrorlist_expire", "password", "priority",
    "proxy", "proxy_password", "proxy_username", "retries", "throttle", "timeout", "ui_repoid_vars",
    "username",
)  # fmt: skip
_SWITCHES = (
    "async", "countme", "enabled", "enablegroups", "gpgcheck", "keepalive", "module_hotfixes", "protect",
    "repo_gpgcheck", "s3_enabled", "skip_if_unavailable", "ssl_check_cert_permissions",
)  # fmt: skip
_OURS = ("state", "name", "description", "file", "reposdir", *OWNERSHIP)
ARGS = {
    "name": Arg(required=True),
    "state": Arg(choices=("present", "absent"), default="present"),
    "file": Arg(),
    "reposdir": Arg(default="/etc/yum.repos.d"),
    **{name: Arg() for name in _TEXTS},
    **{name: Arg("bool") for name in _SWITCHES},
    "baseurl": Arg("list"),
    "gpgkey": Arg("list"),
    "exclude": Arg("list", aliases=("excludepkgs",)),
    "includepkgs": Arg("list"),
    "failovermethod": Arg(choices=("roundrobin", "priority")),
    "http_caching": Arg(choices=("all", "packages", "none")),
    "ip_resolve": Arg(choices=("4", "6", "IPv4", "IPv6", "whatever")),
    "keepcache": Arg(choices=("0", "1")),
    "metadata_expire_filter": Arg(
        choices=("never", "read-only:past", "read-only:present", "read-only:future")
    ),
    "sslcacert": Arg(aliases=("ca_cert",)),
    "sslclientcert": Arg(aliases=("client_cert",)),
    "sslclientkey": Arg(aliases=("client_key",)),
    "sslverify": Arg("bool", aliases=("validate_certs",)),
    **OWNERSHIP,
}


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    if args["state"] == "present":
        if not any(args[name] for name in ("baseurl", "mirrorlist", "metalink")):
            raise BadArgument("state 'present' needs one of 'baseurl', 'mirrorlist' and 'metalink'")
        if args["description"] is None:
            raise BadArgument("state 'present' needs 'description'")
    options = {name: _text(name, value) for name, value in args.items()
               if name not in _OURS and value is not None}  # fmt: skip
    if args["description"] is not None:
        options["name"] = args["description"]
    rest = {name: args[name] for name in ("name", "state", "reposdir", *OWNERSHIP)}
    return {**rest, "file": args["file"] or args["name"], "options": options}


def _text(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, list):
        return ("\n" if name in ("baseurl", "gpgkey") else " ").join(value)
    return str(value)
