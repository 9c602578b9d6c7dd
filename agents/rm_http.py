"""One page of a web server: how long it takes, its status, and whether a text is in it.

What speaks HTTP and TLS is loaded when a page is asked for: it is a quarter of what an agent's start takes.
"""

import socket
import threading
import time

LARGEST = 1 << 20  # bytes of a page that are read, and searched
LONGEST = 300  # characters of an error


def _opener():
    """Asks a web server itself, and follows redirections to such only. Whoever names the address reads no
    file of this host, which the openers of the library do."""
    from urllib import error, parse, request

    class Followed(request.HTTPRedirectHandler):
        def redirect_request(self, req, fp, code, msg, headers, newurl):
            if parse.urlsplit(newurl).scheme not in ("http", "https"):
                raise error.HTTPError(newurl, code, "it redirects elsewhere than to a page", headers, fp)
            return super().redirect_request(req, fp, code, msg, headers, newurl)

    opener = request.OpenerDirector()
    for handler in (
        request.UnknownHandler, request.HTTPHandler, request.HTTPSHandler, request.HTTPDefaultErrorHandler,
        request.HTTPErrorProcessor, Followed,
    ):  # fmt: skip
        opener.add_handler(handler())
    return opener


def fetch(url, contains="", timeout_us=10_000_000):
    """Returns {"time_us", "status", "found", "error"}: `error` is "" for a page (status 200 to 299) that has
    the text, `found` is None where none is looked for, `status` None where nobody answered. No proxy is
    used. Names that are looked up, redirections and a page that comes byte by byte count in the time."""
    opener = _opener()
    begin = time.monotonic()
    told = {"status": None, "found": None, "error": "no answer within %g s" % (timeout_us / 1e6)}
    answers = []
    asks = (opener, url, contains, timeout_us)
    asking = threading.Thread(target=lambda: answers.append(_asked(*asks)), daemon=True)
    asking.start()
    asking.join(timeout_us / 1e6)
    told.update(answers[0] if answers else {}, time_us=int((time.monotonic() - begin) * 1e6))
    return told


def _asked(opener, url, contains, timeout_us):
    """`fetch`, where the time limits each wait for the server."""
    import http.client
    import urllib.error
    import urllib.request

    status = found = None
    try:
        with opener.open(
            urllib.request.Request(url, headers={"User-Agent": "rm"}), timeout=timeout_us / 1e6
        ) as page:
            status, text = page.status, page.read(LARGEST)
        error = ""
        if contains:
            found = contains.encode() in text
            error = "" if found else "the page does not have the text"
    except urllib.error.HTTPError as problem:
        status, error = problem.code, "status %d %s" % (problem.code, problem.reason)
        problem.close()
    except urllib.error.URLError as problem:
        error = _why(problem.reason, timeout_us)
    except (OSError, http.client.HTTPException, ValueError) as problem:
        error = _why(problem, timeout_us)
    return {"status": status, "found": found, "error": error[:LONGEST]}


def _why(problem, timeout_us):
    import ssl

    if isinstance(problem, socket.timeout):  # its name in Python 3.8
        return "no answer within %g s" % (timeout_us / 1e6)
    if isinstance(problem, ssl.SSLCertVerificationError):
        return "the certificate is refused: %s" % problem.verify_message
    return getattr(problem, "strerror", None) or str(problem) or type(problem).__name__
