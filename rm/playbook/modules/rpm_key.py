"""`rpm_key`: a key that rpm trusts is there, or is not."""

from __future__ import annotations

from typing import Any

from rm.playbook.module import Arg, CompileContext

ARGS = {
    "key": Arg(required=True),
    "state": Arg(choices=("absent", "present"), default="present"),
    "fingerprint": Arg("list"),
    "validate_certs": Arg("bool", default=True),
}


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    marks = [one.replace(" ", "").upper() for one in args["fingerprint"] or ()]
    return {**args, "fingerprint": marks}
