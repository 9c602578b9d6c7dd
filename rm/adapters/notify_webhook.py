"""Alerts to a web address: POST of JSON, signed.

`Rm-Signature: sha256=HEX` is the HMAC-SHA256 (RFC 2104) of the body's bytes with the secret, which is
the file's content without the final line break. Neither the secret nor the address, whose path
or query may be one, is ever in an error.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from email.message import Message
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from rm.core.alert_channel import NotTold

HEADER = "Rm-Signature"


class WebhookChannel:
    """`address` or the first line of `address_file` is where to; without `secret_file` nothing is signed.

    The files are read each time, so that a new secret needs no restart. Redirections are not followed.
    """

    def __init__(self, address: str, address_file: str, secret_file: str, timeout_s: float) -> None:
        self._address = address
        self._address_file = address_file
        self._secret_file = secret_file
        self._timeout_s = timeout_s
        self._opener = urllib.request.build_opener(_NoRedirection)

    def tell(self, notice: Mapping[str, Any]) -> None:
        address = self._address or read_secret(self._address_file).decode(errors="replace")
        shown = host_of(address)
        body = json.dumps(notice).encode()
        headers = {"Content-Type": "application/json", "User-Agent": "rm"}
        if self._secret_file:
            headers[HEADER] = signature(read_secret(self._secret_file), body)
        try:
            request = urllib.request.Request(address, body, headers, method="POST")
            with self._opener.open(request, timeout=self._timeout_s):
                return
        except urllib.error.HTTPError as error:
            error.close()
            again = error.code >= 500 or error.code in (408, 425, 429)
            raise NotTold(f"The webhook at {shown} answered with HTTP status {error.code}.", again) from None
        except urllib.error.URLError as error:
            why = getattr(error.reason, "strerror", None) or type(error.reason).__name__
            raise NotTold(f"The webhook at {shown} cannot be reached: {why}.") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise NotTold(f"The webhook at {shown} did not answer: {type(error).__name__}.") from None


class _NoRedirection(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> None:
        return None


def signature(secret: bytes, body: bytes) -> str:
    return "sha256=" + hmac.new(secret, body, hashlib.sha256).hexdigest()


def host_of(address: str) -> str:
    """What of an address may be shown."""
    try:
        return urlsplit(address).hostname or "?"
    except ValueError:
        return "?"


def read_secret(file: str) -> bytes:
    """The content of a secret's file; raises NotTold."""
    try:
        content = Path(file).read_bytes().rstrip(b"\r\n")
    except OSError as error:
        raise NotTold(f"The file {file} cannot be read: {error.strerror}.") from None
    if not content:
        raise NotTold(f"The file {file} is empty.")
    return content
