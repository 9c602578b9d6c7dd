"""One result to one archive over HTTP; every failure is a sentence that says whether to try again.

Neither the headers nor the path of the address, which may be secret, is ever in one. The file of headers is
read each time, so that a new secret needs no restart.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp

from rm.adapters.archives.opensearch import index_of, kept_of
from rm.adapters.archives.pscheduler import document_of
from rm.core.monitoring.archive import Archive, NotKept
from rm.core.monitoring.outcome import Outcome

JSON = "application/json"
AGAIN = (408, 425, 429)  # of 4xx: the same may be taken later


def send(archive: Archive, outcome: Outcome) -> None:
    """Blocks; redirections are not followed.

    Raises:
        NotKept: the archive did not take it.
    """
    if archive.kind == "opensearch":
        method, address, document = "POST", f"{archive.url}/{index_of(outcome)}/_doc", kept_of(outcome)
    else:
        method, address, document = archive.op.upper(), archive.url, document_of(outcome)
    context = trusting(archive) if address.startswith("https:") else True
    headers = headers_of(archive)
    who = f"Archive {archive.name} at {urlsplit(archive.url).hostname}"
    try:
        status = asyncio.run(_request(method, address, document, headers, archive.timeout_us / 1e6, context))
    except TimeoutError:
        raise NotKept(f"{who} did not answer within {archive.timeout_us / 1e6:g} s.") from None
    except aiohttp.ClientConnectorCertificateError as error:
        why = getattr(error.certificate_error, "verify_message", "") or "it is not to be trusted"
        raise NotKept(f"The certificate of {who} is refused: {why}.") from None
    except aiohttp.ClientConnectorError as error:
        why = error.os_error.strerror or type(error.os_error).__name__
        raise NotKept(f"{who} cannot be reached: {why}.") from None
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise NotKept(f"{who} did not answer: {type(error).__name__}.") from None
    if not 200 <= status < 300:
        again = status >= 500 or status in AGAIN or status in (401, 403, 404)  # its administrator may mend it
        raise NotKept(f"{who} answered with HTTP status {status}.", again)


async def _request(
    method: str,
    address: str,
    document: object,
    headers: dict[str, str],
    timeout_s: float,
    context: ssl.SSLContext | bool,
) -> int:
    timeout = aiohttp.ClientTimeout(total=timeout_s)
    async with (
        aiohttp.ClientSession(timeout=timeout) as session,
        session.request(
            method, address, json=document, headers=headers, allow_redirects=False, ssl=context
        ) as answer,
    ):
        return answer.status


def headers_of(archive: Archive) -> dict[str, str]:
    """As pScheduler: a Content-Type of one's own counts, and a header without a value is left out.

    Raises:
        NotKept: the file cannot be read, or holds something else.
    """
    given: object = {}
    if archive.headers_file:
        try:
            given = json.loads(Path(archive.headers_file).read_text())
        except OSError as error:
            raise NotKept(f"The file {archive.headers_file} cannot be read: {error.strerror}.") from None
        except (ValueError, RecursionError):
            raise NotKept(f"The file {archive.headers_file} is not JSON.") from None
    if not isinstance(given, dict) or any("\n" in f"{k}{v}" or "\r" in f"{k}{v}" for k, v in given.items()):
        raise NotKept(f"The file {archive.headers_file} does not map names of headers to their text.")
    headers = {str(name): str(value) for name, value in given.items() if value}
    if not any(name.lower() == "content-type" for name in headers):
        headers["Content-Type"] = JSON
    return headers


def trusting(archive: Archive) -> ssl.SSLContext | bool:
    """Raises NotKept."""
    if not archive.verify_ssl:
        return False
    try:
        return ssl.create_default_context(cafile=archive.ca_file or None)
    except OSError as error:  # an SSLError is one
        why = error.strerror if isinstance(error, FileNotFoundError | PermissionError) else "it holds none"
        raise NotKept(f"The certificates of {archive.ca_file} cannot be read: {why}.") from None
