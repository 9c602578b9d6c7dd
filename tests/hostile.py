"""Seeded requests to every route of the HTTP API, nearly right and wrong in one or two places: what no client
writes, and whoever looks for a hole does.

What is right is made from the types of the routes, so that a new field is covered without a line here.
"""

from __future__ import annotations

import json
import random
import re
import string
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

from msgspec import inspect

from rm.api.routes import Route

NASTY_TEXTS = (
    "", " ", "\x00", "a\x00b", "\n", "\r\nX: y", "\x1b]0;owned\x07", "\x7f", "\u202etxt.exe", "\ud800",
    "\udc80x", "\ufeff", "\U0010ffff", "ﬀ", "İ", "/", "..", "../../etc/passwd", ".", "-", "--help",
    "-oProxyCommand=x", "a" * 256, "é" * 5000, "x" * 70_000, "%s%n%x", "{{ 7*7 }}", "{0.__class__}",
    "<script>alert(1)</script>", "'; DROP TABLE jobs; --", "*", "[", "h[1-99999999]", "h[1-", "a,b,,c", "=",
    "a=b", "(", "(" * 3000, "a" + "&b" * 900, "0-99999999:2%0", "1-3,7%2", "afterok:1",
    "afterany:99999999999999999999", "singleton", "gpu:1:1:1", "@root", "root", "* * * * *", "*/0 * * * *",
    "61 25 32 13 8", "0 0 31 2 *", "\t", "NaN", "None", "null", "true", "0", "-1", "1e9",
    "99999999999999999999", "lic:99999999999999", "%j%%%4294967296u", "%", "+1", "٣", "١٢", "²",
)  # fmt: skip
NASTY_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, -0.0, 0.5, 1e308, -1e308, 5e-324, float("nan"), float("inf"), -float("inf"),
    1 << 31, (1 << 31) - 1, 1 << 32, (1 << 53) - 1, 1 << 53, (1 << 53) + 1, (1 << 63) - 1, 1 << 63,
    -(1 << 63), 1 << 64, 10**40, [], {}, [[]], [{}], [None], {"": None}, {"a": {"b": {}}}, [0] * 3000, "",
)  # fmt: skip
NASTY_QUERIES = (
    "", "0", "-1", "1e400", "nan", "inf", "0x10", "1_000", "٣", "9" * 40, "a,b", "%00", "%ff", "x" * 7_000,
    "2",
)  # fmt: skip
NASTY_PATHS = (
    "%00", "%ff%fe", "..", "%2e%2e", "%2F", "a%2Fb", "%0d%0aX:y", "x" * 3000, "-1", "0", "1e3", "9" * 30,
    "%ED%A0%80", "%F0%9F%98%80", "%20", "*", "~", "%25", "1;2", "%D9%A3",
)  # fmt: skip
CONTENT_TYPES = (
    "application/json", "", "text/plain", "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x", "application/json; charset=utf-16",
    "application/json; charset=nonsense", "a" * 2000,
)  # fmt: skip
NAMES = ("host", "account", "qos", "partition", "reservation", "user", "zone", "mesh", "playbook")


class Hostile(NamedTuple):
    """A request as it goes over the wire."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


class Requests:
    """Of one seed. `known` has names that exist, by what they name: a field of that name, or one whose name
    ends with it, mostly has one of them."""

    def __init__(self, seed: int, known: Mapping[str, Sequence[Any]]) -> None:
        self._chance = random.Random(seed)
        self._known = known

    def some(self, route: Route, mild: bool = False) -> Hostile:
        """`mild`: everything is as the types say."""
        chance = self._chance
        path = re.sub(r"\{(\w+)\}", lambda found: self._part(route, found[1], mild), route.path)
        query = [
            (one.name, chance.choice(("1", "0", "2", "h1", "loss")) if mild else chance.choice(NASTY_QUERIES))
            for one in route.query
            if one.required or chance.random() < 0.4
        ]
        if query:
            path += "?" + "&".join(
                f"{name}={value if '%' in value else quote(value)}" for name, value in query
            )
        headers = {} if mild else self._headers(route)
        if route.body is None:
            body = b"" if mild or chance.random() < 0.7 else self._text({"a": 1})
        else:
            value = self._struct(inspect.type_info(route.body), 0)
            if not mild:
                for _ in range(chance.choice((1, 1, 2, 3))):
                    value = self._spoilt(value)
            body = self._text(value) if not mild else _json(value)
        return Hostile(route.method, path, headers, body)

    # -- what the types say

    def _part(self, route: Route, name: str, mild: bool) -> str:
        if not mild and self._chance.random() < 0.25:
            return self._chance.choice(NASTY_PATHS)
        topic = {"name": _topic(route.path), "id": "number"}.get(name, name)
        return quote(str(self._chance.choice(self._known.get(topic, ("x",)))), safe="")

    def _struct(self, kind: Any, depth: int) -> dict[str, Any]:
        optional = [field for field in kind.fields if not field.required]
        taken = self._chance.sample(optional, min(len(optional), self._chance.choice((0, 1, 2, 3))))
        return {
            field.encode_name: self._value(field.type, depth + 1, field.encode_name)
            for field in kind.fields
            if field.required or field in taken
        }

    def _value(self, kind: Any, depth: int, name: str = "") -> Any:
        chance = self._chance
        if isinstance(kind, inspect.UnionType):
            return self._value(chance.choice(kind.types), depth, name)
        if isinstance(kind, inspect.Metadata):
            return self._value(kind.type, depth, name)
        if isinstance(kind, inspect.StructType):
            return self._struct(kind, depth)
        if isinstance(kind, inspect.LiteralType):
            return chance.choice(kind.values)
        if isinstance(kind, inspect.BoolType):
            return chance.random() < 0.5
        if isinstance(kind, inspect.IntType | inspect.FloatType):
            if name in self._known and chance.random() < 0.9:
                return chance.choice(self._known[name])
            least = kind.ge if kind.ge is not None else 1 if kind.gt is not None else 0
            most = kind.le if kind.le is not None else kind.lt - 1 if kind.lt is not None else 1 << 40
            return chance.choice((least, least + 1, 2, 3, most, chance.randint(int(least), int(most))))
        if isinstance(kind, inspect.StrType):
            return self._word(name)
        if isinstance(kind, inspect.NoneType):
            return None
        if isinstance(kind, inspect.DictType):
            keys = ("gpus", "jobs", "cpus", "GrpTRES", "max_jobs", "a", "user.cpus")
            return {
                chance.choice(keys): self._value(kind.value_type, depth) for _ in range(chance.randint(0, 3))
            }
        if isinstance(kind, inspect.TupleType):
            return [self._value(one, depth) for one in kind.item_types]
        if isinstance(
            kind, inspect.CollectionType | inspect.ListType | inspect.VarTupleType | inspect.SetType
        ):
            return [self._value(kind.item_type, depth, name) for _ in range(chance.choice((0, 1, 1, 2)))]
        if isinstance(kind, inspect.AnyType):
            return chance.choice(("x", 1, [1], {"a": "b"}))
        raise TypeError(f"no values of {kind} are made")

    def _word(self, name: str) -> str:
        chance = self._chance
        if name in self._known:
            return str(chance.choice(self._known[name]))
        for topic in NAMES:
            if name.rstrip("s").endswith(topic) and topic in self._known and chance.random() < 0.8:
                return str(chance.choice(self._known[topic]))
        return "".join(chance.choices(string.ascii_lowercase, k=4))

    # -- what is wrong with it

    def _spoilt(self, value: Any) -> Any:
        """A copy with one place changed: another value, a name that nobody knows, a field without its own."""
        chance = self._chance
        if isinstance(value, dict) and value and chance.random() < 0.85:
            name = chance.choice(list(value))
            made = dict(value)
            if chance.random() < 0.1:
                made[chance.choice((*NASTY_TEXTS, name.upper(), "__class__", "user"))] = made.pop(name)
            else:
                made[name] = self._spoilt(value[name])
            return made
        if isinstance(value, list) and value and chance.random() < 0.6:
            place = chance.randrange(len(value))
            return [*value[:place], self._spoilt(value[place]), *value[place + 1 :]]
        if isinstance(value, str) and chance.random() < 0.8:
            return chance.choice(NASTY_TEXTS)
        return chance.choice(NASTY_VALUES)

    def _text(self, value: Any) -> bytes:
        chance = self._chance
        text = _json(value)
        twists: Sequence[Callable[[], bytes]] = (
            lambda: text,
            lambda: text.replace(b"{", b'{"version":1,"version":"1",', 1),
            lambda: text[:-1] + b"," + text[1:] if len(text) > 2 else text,  # every key twice
            lambda: text[: len(text) // 2],
            lambda: text + b"]",
            lambda: b"\xef\xbb\xbf" + text,
            lambda: text.decode().encode("utf-16"),
            lambda: text.replace(b":", b":" + b"[" * 100_000, 1),
            lambda: b'{"a":' * 5000 + b"1" + b"}" * 5000,
            lambda: text.replace(b"a", b"\xff"),
            lambda: re.sub(rb":(-?\d+)", rb":\g<1>e400", text),
            lambda: re.sub(rb":(-?\d+)", rb":00\g<1>", text),
            lambda: re.sub(rb":(-?\d+)", rb":\g<1>.0", text),
            lambda: bytes(chance.randrange(256) for _ in range(200)),
            lambda: b" " * 70_000 + text,
        )
        return text if chance.random() < 0.75 else chance.choice(twists)()

    def _headers(self, route: Route) -> dict[str, str]:
        chance = self._chance
        made = {"Content-Type": chance.choice(CONTENT_TYPES)} if chance.random() < 0.2 else {}
        if chance.random() < 0.05:
            made["Content-Encoding"] = chance.choice(("gzip", "deflate", "br", "x"))
        if route.headers and chance.random() < 0.3:
            made["Idempotency-Key"] = chance.choice(("k", "k", "", "x" * 129, "a\tb", "é"))
        if chance.random() < 0.05:
            made["Authorization"] = chance.choice(
                ("Bearer x", "Bearer", "Basic eDp5", "Bearer rmt_" + "a" * 5000)
            )
        if chance.random() < 0.05:
            made["If-None-Match"] = chance.choice(("*", '"', "W/" * 500))
        return made


def _topic(path: str) -> str:
    """Of what `{name}` is the name in the path of a route."""
    word = path.split("/")[2]
    return {
        "accounts": "account", "qos": "qos", "partitions": "partition", "reservations": "reservation",
        "hosts": "host", "playbooks": "playbook", "sources": "source",
    }.get(word, word)  # fmt: skip


def _json(value: Any) -> bytes:
    """As Python's json has it: with NaN, Infinity, huge numbers and halves of surrogate pairs."""
    return json.dumps(value, separators=(",", ":")).encode()
