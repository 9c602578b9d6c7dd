"""OpenAPI 3.1 from the table of routes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import msgspec

from rm.api.answer import Refused
from rm.api.routes import ANY_REQUEST, JSON_ERRORS, PATHS, ROUTES, Parameter, Route, Who

REF = "#/components/schemas/{name}"
JSON = "application/json"
WORD = {"type": "string", "minLength": 1}
NAMES = re.compile(r"\{(\w+)\}")
MAY = {
    Who.PROGRAMS: "For the users that privacy.metrics allows.",
    Who.USER: "For anyone with an account.",
    Who.OWNER: "For the owner of the job and operators.",
    Who.READER: "For the owner of the job and administrators.",
    Who.OPERATOR: "For operators.",
    Who.ADMIN: "For administrators.",
}


@cache
def document(version: str) -> bytes:
    """The document of this version of rm, as JSON."""
    return msgspec.json.encode(describe(ROUTES, version))


def describe(routes: Sequence[Route], version: str) -> dict[str, Any]:
    bodies = [route.body for route in routes if route.body is not None]
    answers = [route.answer for route in routes if not isinstance(route.answer, str)]
    kinds = [*dict.fromkeys([*bodies, *answers, Refused])]
    parameters = [one.kind for route in routes for one in (*route.query, *route.headers)]
    schemas, components = msgspec.json.schema_components(
        [*kinds, *parameters, *PATHS.values()], ref_template=REF
    )
    of = dict(zip(kinds, schemas, strict=False))
    told = iter(schemas[len(kinds) : len(kinds) + len(parameters)])
    places = dict(zip(PATHS, schemas[len(kinds) + len(parameters) :], strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        query = [_parameter(one, "query", next(told)) for one in route.query]
        query += [_parameter(one, "header", next(told)) for one in route.headers]
        named = [
            {"name": name, "in": "path", "required": True, "schema": places.get(name, WORD)}
            for name in NAMES.findall(route.path)
        ]
        operation: dict[str, Any] = {
            "operationId": route.name,
            "summary": " ".join(filter(None, (route.meaning, MAY.get(route.who)))),
            "parameters": named + query,
            "responses": _responses(route, of),
        }
        if route.body is not None:
            operation["requestBody"] = {"required": True, "content": {JSON: {"schema": of[route.body]}}}
        paths.setdefault(route.path, {})[route.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "rm", "version": version, "license": {"name": "Apache-2.0"}},
        "paths": paths,
        "components": {"schemas": components},
    }


def _parameter(parameter: Parameter, place: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    usual = {} if parameter.required or parameter.usual is None else {"default": parameter.usual}
    return {
        "name": parameter.name,
        "in": place,
        "required": parameter.required,
        "description": parameter.meaning,
        "schema": {**schema, **usual},
    }


def _responses(route: Route, of: Mapping[Any, Mapping[str, Any]]) -> dict[str, Any]:
    if isinstance(route.answer, str):
        content: dict[str, Any] = {route.answer: {}}
    else:
        content = {JSON: {"schema": of[route.answer]}}
    refused = {JSON: {"schema": of[Refused]}}
    found = {str(route.status): {"description": "Done.", "content": content}}
    if route.method == "GET" and route.name != "logs":
        found["304"] = {"description": "Unchanged: its ETag is among If-None-Match."}
    missing = {404} if "{" in route.path else set()
    for status in sorted({*ANY_REQUEST, *missing, *route.errors}):
        found[str(status)] = {"description": JSON_ERRORS[status], "content": refused}
    return found
