"""`openssl_privatekey`: a private key of a kind and size is in a file."""

from __future__ import annotations

from typing import Any

from rm.playbook.model.problems import BadArgument
from rm.playbook.module import OWNERSHIP, Arg, CompileContext

ARGS = {
    "path": Arg(required=True),
    "state": Arg(choices=("absent", "present"), default="present"),
    "type": Arg(choices=("DSA", "ECC", "Ed25519", "Ed448", "RSA", "X25519", "X448"), default="RSA"),
    "size": Arg("int", default=4096),
    "curve": Arg(),
    "passphrase": Arg(),
    "cipher": Arg(default="auto"),
    "format": Arg(choices=("pkcs1", "pkcs8", "raw", "auto", "auto_ignore"), default="auto_ignore"),
    "regenerate": Arg(
        choices=("never", "fail", "partial_idempotence", "full_idempotence", "always"),
        default="full_idempotence",
    ),
    "force": Arg("bool", default=False),
    "backup": Arg("bool", default=False),
    "return_content": Arg("bool", default=False),
    "select_crypto_backend": Arg(choices=("auto", "cryptography"), default="auto"),
    **OWNERSHIP,
    "mode": Arg("mode", default=0o600),
}


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    if args["state"] == "present" and args["type"] == "ECC" and not args["curve"]:
        raise BadArgument("the type ECC needs 'curve'")
    if args["type"] == "DSA" or args["format"] == "raw":
        raise BadArgument("the type DSA and the format raw are not supported")
    regenerate = "always" if args["force"] else args["regenerate"]
    return {**args, "regenerate": regenerate}
