"""`x509_certificate`: a certificate for a request, signed by its own key or by the admin's authority."""

from __future__ import annotations

import re
from typing import Any

from rm.playbook.model.problems import BadArgument
from rm.playbook.module import OWNERSHIP, Arg, CompileContext

ARGS = {
    "path": Arg(required=True),
    "provider": Arg(choices=("selfsigned", "ownca", "acme", "entrust", "assertonly")),
    "state": Arg(choices=("absent", "present"), default="present"),
    "csr_path": Arg(),
    "csr_content": Arg(),
    "privatekey_path": Arg(),
    "privatekey_content": Arg(),
    "privatekey_passphrase": Arg(),
    "selfsigned_digest": Arg(default="sha256"),
    "selfsigned_version": Arg("int", default=3),
    "selfsigned_not_before": Arg(default="+0s", aliases=("selfsigned_notBefore",)),
    "selfsigned_not_after": Arg(default="+3650d", aliases=("selfsigned_notAfter",)),
    "ownca_path": Arg(),
    "ownca_content": Arg(),
    "ownca_privatekey_path": Arg(),
    "ownca_privatekey_content": Arg(),
    "ownca_privatekey_passphrase": Arg(),
    "ownca_digest": Arg(default="sha256"),
    "ownca_version": Arg("int", default=3),
    "ownca_not_before": Arg(default="+0s", aliases=("ownca_notBefore",)),
    "ownca_not_after": Arg(default="+3650d", aliases=("ownca_notAfter",)),
    "ignore_timestamps": Arg("bool", default=True),
    "force": Arg("bool", default=False),
    "backup": Arg("bool", default=False),
    "return_content": Arg("bool", default=False),
    "select_crypto_backend": Arg(choices=("auto", "cryptography"), default="auto"),
    **OWNERSHIP,
}
_SECONDS = {"w": 604_800, "d": 86_400, "h": 3600, "m": 60, "s": 1}


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    provider = args["provider"]
    if args["state"] == "absent":
        return {**args, "days": 0}
    if provider not in ("selfsigned", "ownca"):
        raise BadArgument("'provider' must be selfsigned or ownca; others are not supported")
    if not args["ignore_timestamps"]:
        raise BadArgument("'ignore_timestamps: false' is not supported")
    if args["csr_path"] is None and args["csr_content"] is None and provider == "ownca":
        raise BadArgument("the provider ownca needs 'csr_path' or 'csr_content'")
    needed = ("privatekey",) if provider == "selfsigned" else ("ownca", "ownca_privatekey")
    for name in needed:
        if (args[f"{name}_path"] is None) == (args[f"{name}_content"] is None):
            raise BadArgument(f"give either '{name}_path' or '{name}_content'")
    if _seconds(args[f"{provider}_not_before"]) != 0:
        raise BadArgument(f"'{provider}_not_before' other than now is not supported")
    days, rest = divmod(_seconds(args[f"{provider}_not_after"]), _SECONDS["d"])
    if days < 1 or rest:
        raise BadArgument(f"'{provider}_not_after' must be a whole number of days such as '+365d'")
    return {**args, "days": days}


def _seconds(text: str) -> int:
    match = re.fullmatch(r"\+?((?:\d+[wdhms])+)", text)
    if match is None:
        raise BadArgument(f"'{text}' is not relative to now, such as '+365d'")
    return sum(int(n) * _SECONDS[unit] for n, unit in re.findall(r"(\d+)([wdhms])", match[1]))
