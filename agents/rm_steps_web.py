"""`get_url`: this host asks a web server for a file. Passwords stay inside this process."""

import contextlib
import os
import re
import time

from rm_steps_aside import set_aside, sync_directory
from rm_steps_base import StepFailed, absolute, content_diff, digest_of_file
from rm_steps_write import backup_of, default_mode, described, fix_attributes, keep_extended, wanted_ids

BLOCK = 1 << 18
CONTENT_MAX_BYTES = 16 << 20


def _context(args):
    import ssl

    context = ssl.create_default_context(cafile=args.get("ca_path"))
    if not args.get("validate_certs", True):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if args.get("client_cert"):
        context.load_cert_chain(args["client_cert"], args.get("client_key"))
    return context


class _Redirects:
    """Which redirects are followed: all, safe (GET and HEAD), none, or urllib2's own rules."""

    @staticmethod
    def handler(rule, method):
        import urllib.request

        class Handler(urllib.request.HTTPRedirectHandler):
            def redirect_request(self, request, fp, code, msg, headers, url):
                if rule in ("none", "no", "False") or (rule == "safe" and method not in ("GET", "HEAD")):
                    return None
                if rule in ("all", "yes", "True") and method not in ("GET", "HEAD", "POST"):
                    kept = {k: v for k, v in request.headers.items() if k.lower() != "content-length"}
                    return urllib.request.Request(url, headers=kept, method="GET")
                return super().redirect_request(request, fp, code, msg, headers, url)

        return Handler()


def ask(url, args, method="GET", data=None, headers=None):
    """An open answer, also for error codes; raises StepFailed when there is none."""
    import base64
    import urllib.error
    import urllib.request
    from urllib.parse import unquote, urlsplit, urlunsplit

    parts = urlsplit(url)
    if parts.scheme not in ("http", "https", "ftp", "file"):
        raise StepFailed("'%s' is not a URL that can be asked for." % url)
    user, password = args.get("url_username"), args.get("url_password")
    if parts.username is not None:
        user, password = user or unquote(parts.username), password or unquote(parts.password or "")
        url = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    request = urllib.request.Request(
        url, data=data, method=method if parts.scheme in ("http", "https") else None
    )
    request.add_header("User-Agent", args.get("http_agent") or "ansible-httpget")
    handlers = [_Redirects.handler(args.get("follow_redirects") or "urllib2", method)]
    if parts.scheme == "https":
        handlers.append(urllib.request.HTTPSHandler(context=_context(args)))
    if args.get("use_proxy") is False:
        handlers.append(urllib.request.ProxyHandler({}))
    if user is not None:
        pair = base64.b64encode(("%s:%s" % (user, password or "")).encode()).decode()
        if args.get("force_basic_auth"):
            request.add_unredirected_header("Authorization", "Basic " + pair)
        else:
            known = urllib.request.HTTPPasswordMgrWithDefaultRealm()
            known.add_password(None, url, user, password or "")
            handlers += [
                urllib.request.HTTPBasicAuthHandler(known),
                urllib.request.HTTPDigestAuthHandler(known),
            ]
    if args.get("force"):
        request.add_header("Cache-Control", "no-cache")
    for name, value in {**(args.get("headers") or {}), **(headers or {})}.items():
        if name.lower() in [one.lower() for one in args.get("unredirected_headers") or ()]:
            request.add_unredirected_header(name, str(value))
        else:
            request.add_header(name, str(value))
    try:
        return urllib.request.build_opener(*handlers).open(request, timeout=args.get("timeout") or 10)
    except urllib.error.HTTPError as answer:
        return answer
    except (OSError, ValueError) as problem:
        why = getattr(problem, "reason", problem)
        raise StepFailed("Request failed: %s" % why, url=url, status_code=-1, status=-1) from None


def content_of(url, args):
    """The whole content of a small resource."""
    with ask(url, args) as answer:
        if (answer.getcode() or 200) >= 400:
            raise StepFailed("Request failed: HTTP Error %d: %s" % (answer.getcode(), url))
        return answer.read(CONTENT_MAX_BYTES)


def download(url, args, ending=""):
    """A resource into a private temporary file; its name, with this ending."""
    import tempfile

    fd, name = tempfile.mkstemp(ending, "rm-download-")
    try:
        with open(fd, "wb") as file, ask(url, args) as answer:
            if (answer.getcode() or 200) >= 400:
                raise StepFailed("Request failed: HTTP Error %d: %s" % (answer.getcode(), answer.reason))
            for block in iter(lambda: answer.read(BLOCK), b""):
                file.write(block)
    except BaseException:
        os.unlink(name)
        raise
    return name


# -- get_url ------------------------------------------------------------------------------------


def _expected(args, url):
    """(algorithm, digest) asked for, None when none is; the digest may itself be at a URL."""
    if not args["checksum"]:
        return None
    algorithm, _, wanted = args["checksum"].partition(":")
    if "://" in wanted:
        name = os.path.basename(url.partition("?")[0])
        rows = [
            line.split(None, 1) for line in content_of(wanted, args).decode().splitlines() if line.strip()
        ]
        named = [r[0] for r in rows if len(r) == 2 and r[1].strip().lstrip("*./") == name]
        single = [r[0] for r in rows if len(r) == 1]
        found = named or (single if len(rows) == 1 else [])
        if not found:
            raise StepFailed("Unable to find a checksum for file '%s' in '%s'." % (name, wanted))
        wanted = found[0]
    return algorithm.strip().lower(), re.sub(r"\W+", "", wanted).lower()


def _file_name(answer, url):
    from urllib.parse import urlsplit

    said = answer.headers.get("Content-Disposition") or ""
    match = re.search(r'filename="?([^";]+)"?', said)
    name = os.path.basename(match.group(1)) if match else os.path.basename(urlsplit(answer.geturl()).path)
    return name or "index.html"


def do_get_url(run, args):
    began = time.monotonic()
    url, dest = args["url"], absolute(args["dest"])
    expected = _expected(args, url)
    result = {"url": url, "dest": dest, "changed": False, "diff": []}
    is_directory = run.is_directory(dest)
    if not is_directory and not run.is_directory(os.path.dirname(dest)):
        raise StepFailed("The directory %s does not exist." % os.path.dirname(dest))
    there = not is_directory and run.kind(dest) not in ("absent", "directory")
    seen = there and os.path.exists(dest)
    if seen and not args["force"]:
        fits = expected is None or digest_of_file(dest, expected[0]) == expected[1]
        if fits:
            changes = []
            fix_attributes(run, dest, args, changes)
            said = "file already exists" if not changes else "file already exists but file attributes changed"
            result.update(changed=bool(changes), msg=said, **described(run, dest))
            return dict(result, elapsed=int(time.monotonic() - began))
    if there and not seen:
        return dict(result, msg="file already exists")  # as planned
    if run.check and not seen and not is_directory:
        with ask(url, args, "HEAD") as answer:
            code = answer.getcode() or 200
        if code >= 400 and code not in (405, 501):  # a server may not know HEAD
            raise StepFailed("Request failed", status_code=code, url=url, dest=dest)
        run.plan(dest, "file")
        said = "would be fetched"
        return dict(result, changed=True, msg=said, diff=_fetched(run, dest, url))
    since = {}
    if seen and not expected:
        import email.utils

        since["If-Modified-Since"] = email.utils.formatdate(os.stat(dest).st_mtime, usegmt=True)
    with ask(url, args, headers={} if args["force"] else since) as answer:
        code = answer.getcode() or 200
        result.update(status_code=answer.getcode())  # a file has none
        if code == 304:
            return dict(result, msg="Not Modified", elapsed=int(time.monotonic() - began))
        if code >= 400:
            said = "Request failed"
            raise StepFailed(
                said, status_code=code, response="HTTP Error %d: %s" % (code, answer.reason), url=url
            )
        if is_directory:
            dest = os.path.join(dest, _file_name(answer, url))
            result["dest"] = dest
        result.update(msg="OK (%s bytes)" % (answer.headers.get("Content-Length") or "unknown"))
        _keep(run, answer, dest, args, expected, result)
    return dict(result, elapsed=int(time.monotonic() - began))


def _keep(run, answer, dest, args, expected, result):
    """Stream an answer aside, verify it, and put it in place when it differs."""
    with _beside(run, dest) as (fd, aside), os.fdopen(fd, "wb") as file:
        for block in iter(lambda: answer.read(BLOCK), b""):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
        if expected and digest_of_file(aside, expected[0]) != expected[1]:
            got = digest_of_file(aside, expected[0])
            said = "The checksum for %s did not match %s; it was %s." % (args["url"], expected[1], got)
            raise StepFailed(said)
        new = digest_of_file(aside)
        old = digest_of_file(dest) if os.path.isfile(dest) else None
        result.update(checksum_src=new, checksum_dest=old, size=os.stat(aside).st_size)
        changes = []
        if new != old:
            changes.append("content")
            result["diff"] = _text_diff(run, dest, aside) if old else _fetched(run, dest, args["url"])
            if not run.check:
                _place(run, file.fileno(), aside, dest, args, result)
        if os.path.exists(dest):
            fix_attributes(run, dest, args, changes)
        result["changed"] = bool(changes)
        result.update(described(run, dest) if not run.check else {})


@contextlib.contextmanager
def _beside(run, dest):
    """A new file to write to; what has not found its place is gone afterwards."""
    import tempfile

    if run.check:  # only look: nothing may be written beside the file
        with tempfile.NamedTemporaryFile(prefix="rm-download-") as made:
            yield os.dup(made.fileno()), made.name
        return
    with set_aside(dest) as (fd, aside):
        yield fd, aside
        with contextlib.suppress(FileNotFoundError):  # it was renamed
            os.unlink(aside)


def _fetched(run, dest, url):
    """What check mode can say without fetching."""
    return ["%s: fetched from %s\n" % (dest, url.rpartition("@")[2])] if run.diff else []


def _text_diff(run, dest, aside):
    if not run.diff:
        return []
    with open(aside, "rb") as new, open(dest, "rb") as old:
        return content_diff(run, dest, old.read(1 << 20), new.read(1 << 20))


def _place(run, fd, aside, dest, args, result):
    wanted_ids(run, args)
    if os.path.exists(dest):
        seen = os.stat(dest)
        keep_extended(dest, fd)
        with contextlib.suppress(PermissionError):
            os.fchown(fd, seen.st_uid, seen.st_gid)
        os.fchmod(fd, seen.st_mode & 0o7777)
        if args["backup"]:
            result["backup_file"] = backup_of(dest)
    else:
        os.fchmod(fd, default_mode())
    os.rename(aside, dest)
    sync_directory(os.path.dirname(dest))
