"""What goes wrong in a handler, as an answer of the API: what, and what to do."""

from __future__ import annotations

import logging

from aiohttp import web
from aiohttp.typedefs import Handler

from rm.errors import LimitReached, RmError
from rm.web.answers import refuse, refused
from rm.web.callers.shares import retry_after_s

RETRY_AFTER_S = 1
log = logging.getLogger("rm.web")


@web.middleware
async def answering_failures(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except RmError as error:
        answer = refused(error)
        if isinstance(error, LimitReached):
            answer.headers["Retry-After"] = str(retry_after_s(error))
        elif error.http_status == 503:
            answer.headers["Retry-After"] = str(RETRY_AFTER_S)
        return answer
    except web.HTTPException as error:
        if error.status < 400:
            raise
        what = {
            404: f"There is no {request.path} in this API.",
            413: f"The request is larger than {request.client_max_size} bytes (limits.body_bytes).",
        }
        return refuse(
            error.status, "UsageError", what.get(error.status, f"{error.reason}: {request.method}."), ""
        )
    except ConnectionError:
        # the client has gone, by Ctrl-C for one: nobody is left to answer, and nothing is wrong
        return web.Response(status=499)
    except Exception:
        log.exception("%s %s failed", request.method, request.path)
        return refuse(
            500,
            "RmError",
            "The daemon met a defect of its own; its log has the details.",
            "Please report it.",
        )
