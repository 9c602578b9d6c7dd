"""Alerts to a web address: POST of JSON, signed.

`Rm-Signature: sha256=HEX` is the HMAC-SHA256 (RFC 2104) with the secret, which is the file's content
without the final line break, of what `Rm-Timestamp` says (seconds since the epoch, of this attempt), a
dot and the body's bytes: who checks both cannot be sent an old message again. Neither the secret nor
the address, whose path or query may be one, is ever in an error.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rm.adapters.channels.posting import host_of, post
from rm.core.alerts.channel import NotTold

SIGNATURE = "Rm-Signature"
TIMESTAMP = "Rm-Timestamp"


class WebhookChannel:
    """`address` or the first line of `address_file` is where to; without `secret_file` nothing is signed;
    `ca_file`: certificates to trust, "" = the system's.

    The files are read each time, so that a new secret needs no restart. Redirections are not followed:
    they would carry the message to a place that nobody configured. `timeout_s` is of the whole exchange.
    """

    repeat_s = 0.0

    def __init__(
        self, address: str, address_file: str, secret_file: str, timeout_s: float, ca_file: str = ""
    ) -> None:
        self._address = address
        self._address_file = address_file
        self._secret_file = secret_file
        self._timeout_s = timeout_s
        self._ca_file = ca_file

    def tell(self, notice: Mapping[str, Any]) -> None:
        address = self._address or read_secret(self._address_file).decode(errors="replace").split("\n")[0]
        shown = host_of(address)
        body = json.dumps(notice).encode()
        headers = {}
        if self._secret_file:
            at = str(int(time.time()))
            headers[TIMESTAMP] = at
            headers[SIGNATURE] = signature(read_secret(self._secret_file), at, body)
        post(f"the webhook at {shown}", address.strip(), body, self._timeout_s, self._ca_file, headers)


def signature(secret: bytes, at: str, body: bytes) -> str:
    return "sha256=" + hmac.new(secret, at.encode() + b"." + body, hashlib.sha256).hexdigest()


def read_secret(file: str) -> bytes:
    """The content of a secret's file; raises NotTold."""
    try:
        content = Path(file).read_bytes().rstrip(b"\r\n")
    except OSError as error:
        raise NotTold(f"The file {file} cannot be read: {error.strerror}.") from None
    if not content:
        raise NotTold(f"The file {file} is empty.")
    return content
