"""`uri`: ask a web server, and see whether it answers as it should."""

import contextlib
import os
import re
import time

from rm_steps_base import StepFailed, absolute, digest, expanded, unpacked
from rm_steps_web import CONTENT_MAX_BYTES, ask
from rm_steps_write import put_content


def _body(args, headers):
    import json
    from urllib.parse import urlencode

    if args.get("content") is not None:
        return unpacked(args["content"])
    if args["src"]:
        with open(absolute(args["src"]), "rb") as file:
            return file.read()
    body, form = args["body"], args["body_format"]
    kinds = {"json": "application/json", "form-urlencoded": "application/x-www-form-urlencoded"}
    if form in kinds and "content-type" not in [name.lower() for name in headers]:
        headers["Content-Type"] = kinds[form]
    if form == "json":
        body = body if isinstance(body, str) else json.dumps(body)
    elif form == "form-urlencoded" and not isinstance(body, str):
        pairs = body.items() if isinstance(body, dict) else body or ()
        each = ((k, v if isinstance(v, (list, dict)) else [v]) for k, v in pairs)
        body = urlencode([(k, one) for k, values in each for one in values if one is not None]) or None
    if body is None:
        return None
    return (body if isinstance(body, str) else json.dumps(body)).encode()


def do_uri(run, args):
    import json
    from email.utils import formatdate
    from urllib.parse import urljoin

    for name, stops in (("creates", True), ("removes", False)):
        path = args[name] and expanded(args[name])
        if path and (run.kind(path) != "absent") == stops:
            said = "skipped, since '%s' %s" % (path, "exists" if stops else "does not exist")
            return {"changed": False, "msg": said, "stdout": said}
    if run.check:
        said = "might ask %s %s" % (args["method"], args["url"])
        return {"changed": False, "skipped": True, "might_run": True, "msg": said}
    began = time.monotonic()
    headers = dict(args["headers"] or {})
    data = _body(args, headers)
    wanted = [int(one) for one in args["status_code"]]
    dest = args["dest"] and absolute(args["dest"])
    if dest and os.path.isfile(dest) and not args["force"]:  # an older one is not sent again: 304
        headers["If-Modified-Since"] = formatdate(os.path.getmtime(dest), usegmt=True)
    try:
        asked = ask(args["url"], args, args["method"], data, headers)
    except StepFailed as problem:
        if -1 not in wanted:
            raise
        elapsed = int(time.monotonic() - began)
        return dict(problem.details, msg=str(problem), changed=False, redirected=False, elapsed=elapsed)
    with asked as answer:
        content = answer.read(CONTENT_MAX_BYTES)
        code = answer.getcode() or 200
        result = {"url": answer.geturl(), "status": code, "redirected": answer.geturl() != args["url"]}
        result.update(elapsed=int(time.monotonic() - began), changed=False, cookies={}, cookies_string="")
        for name, value in answer.headers.items():
            if name.lower() == "set-cookie":
                key, _, rest = value.partition("=")
                result["cookies"][key.strip()] = rest.partition(";")[0]
            else:
                result[name.lower().replace("-", "_")] = value
        result["cookies_string"] = "; ".join("%s=%s" % pair for pair in result["cookies"].items())
        result["msg"] = "OK (%s bytes)" % (answer.headers.get("Content-Length") or "unknown")
        charset = answer.headers.get_content_charset() or "utf-8"
        reason = getattr(answer, "reason", "")
    if "location" in result:
        result["location"] = urljoin(args["url"], result["location"])
    text = content.decode(charset, "replace")
    if re.search(r"[/+]json\b", result.get("content_type", "")):
        with contextlib.suppress(ValueError):
            result["json"] = json.loads(text)
    if args["return_content"] or code not in wanted:
        result["content"] = text
    if code not in wanted:
        said = "Status code was %d and not %s: " % (code, wanted)
        raise StepFailed(said + ("HTTP Error %d: %s" % (code, reason) if code >= 400 else result["msg"]), **{
            k: v for k, v in result.items() if k not in ("msg", "changed")
        })  # fmt: skip
    if dest and code != 304:
        if run.is_directory(dest):
            dest = os.path.join(dest, os.path.basename(args["url"].partition("?")[0]) or "index.html")
        put = put_content(run, dest, content, dict(args, force=True))
        result.update(changed=True, path=dest, diff=put["diff"], checksum=digest(content))
    return result
