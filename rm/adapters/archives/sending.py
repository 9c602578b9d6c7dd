"""One result to one archive over HTTP; every failure is a sentence that says whether to try again.

Neither the headers nor the path of the address, which may be secret, is ever in one. The file of headers is
read each time, so that a new secret needs no restart.
"""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlsplit

from rm.adapters.archives.opensearch import index_of, kept_of
from rm.adapters.archives.pscheduler import document_of
from rm.adapters.http_exchange import AGAIN, NoAnswer, status_of
from rm.core.monitoring.archive import Archive, NotKept
from rm.core.monitoring.outcome import Outcome

JSON = "application/json"


def send(archive: Archive, outcome: Outcome) -> None:
    """Blocks; redirections are not followed.

    Raises:
        NotKept: the archive did not take it.
    """
    if archive.kind == "opensearch":
        method, address, document = "POST", f"{archive.url}/{index_of(outcome)}/_doc", kept_of(outcome)
    else:
        method, address, document = archive.op.upper(), archive.url, document_of(outcome)
    body = json.dumps(document).encode()
    who = f"Archive {archive.name} at {urlsplit(archive.url).hostname}"
    try:
        status = status_of(
            who,
            method,
            address,
            body,
            headers_of(archive),
            timeout_s=archive.timeout_us / 1e6,
            ca_file=archive.ca_file,
            verified=archive.verify_ssl,
        )
    except NoAnswer as error:
        raise NotKept(str(error)) from None
    if not 200 <= status < 300:
        again = status >= 500 or status in AGAIN or status in (401, 403, 404)  # its administrator may mend it
        raise NotKept(f"{who} answered with HTTP status {status}.", again)


def headers_of(archive: Archive) -> dict[str, str]:
    """As pScheduler: a Content-Type of one's own counts, and a header without a value is left out.

    Raises:
        NotKept: the file cannot be read, or holds something else.
    """
    given: object = {}
    # not its name, which everybody would see: somebody may have written the headers themselves there
    file = f"The headers_file of archive {archive.name}"
    if archive.headers_file:
        try:
            given = json.loads(Path(archive.headers_file).read_text())
        except OSError as error:
            raise NotKept(f"{file} cannot be read: {error.strerror}.") from None
        except (ValueError, RecursionError):
            raise NotKept(f"{file} is not JSON.") from None
    if not isinstance(given, dict) or any("\n" in f"{k}{v}" or "\r" in f"{k}{v}" for k, v in given.items()):
        raise NotKept(f"{file} does not map names of headers to their text.")
    headers = {str(name): str(value) for name, value in given.items() if value}
    if not any(name.lower() == "content-type" for name in headers):
        headers["Content-Type"] = JSON
    return headers
