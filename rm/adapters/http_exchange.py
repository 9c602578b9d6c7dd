"""One request over HTTP to somebody's server, in a thread; every failure is a sentence.

The path and the query of an address may be secret, and are never in one: callers name the server.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping

import aiohttp

AGAIN = (408, 425, 429)  # of 4xx: the same may be taken later


class NoAnswer(Exception):
    """A sentence: there is no status."""


def status_of(
    who: str,
    method: str,
    address: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    timeout_s: float,
    ca_file: str = "",
    verified: bool = True,
    proxied: bool = False,
) -> int:
    """The status of the answer. Blocks; redirections are not followed.

    Args:
        who: the server, within a sentence.
        timeout_s: of the whole exchange.
        ca_file: certificates to trust, "" = the system's; not `verified`: any.
        proxied: as the environment says (`HTTPS_PROXY`, …).

    Raises:
        NoAnswer: there is none, or the server is not to be trusted.
    """
    first = who[:1].upper() + who[1:]
    if not address.startswith(("http://", "https://")):
        raise NoAnswer(f"The address of {who} does not begin with http:// or https://.")
    context: ssl.SSLContext | bool = True
    if address.startswith("https:"):
        context = trusting(ca_file) if verified else False
    asked = _asked(method, address, body, headers, timeout_s, context, proxied)
    try:
        return asyncio.run(asked)
    except TimeoutError:
        raise NoAnswer(f"{first} did not answer within {timeout_s:g} s.") from None
    except aiohttp.ClientConnectorCertificateError as error:
        why = getattr(error.certificate_error, "verify_message", "") or "it is not to be trusted"
        raise NoAnswer(f"The certificate of {who} is refused: {why}.") from None
    except aiohttp.ClientConnectorError as error:
        why = error.os_error.strerror or type(error.os_error).__name__
        raise NoAnswer(f"{first} cannot be reached: {why}.") from None
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise NoAnswer(f"{first} did not answer: {type(error).__name__}.") from None


async def _asked(
    method: str,
    address: str,
    body: bytes,
    headers: Mapping[str, str],
    timeout_s: float,
    context: ssl.SSLContext | bool,
    proxied: bool,
) -> int:
    timeout = aiohttp.ClientTimeout(total=timeout_s)
    async with (
        aiohttp.ClientSession(timeout=timeout, trust_env=proxied) as session,
        session.request(
            method, address, data=body, headers=dict(headers), allow_redirects=False, ssl=context
        ) as answer,
    ):
        return answer.status


def trusting(ca_file: str) -> ssl.SSLContext:
    """Trusts the certificates of the file only, or the system's; raises NoAnswer."""
    try:
        return ssl.create_default_context(cafile=ca_file or None)
    except OSError as error:  # an SSLError is one
        why = error.strerror if isinstance(error, FileNotFoundError | PermissionError) else "it holds none"
        raise NoAnswer(f"The certificates of {ca_file} cannot be read: {why}.") from None
