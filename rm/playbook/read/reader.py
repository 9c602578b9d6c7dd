"""Reads the values that playbooks are made of, and refuses what cannot be one, with file and line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from rm.errors import UsageError
from rm.hints import did_you_mean
from rm.playbook.model.keywords import LATER
from rm.playbook.model.located import Map, Seq
from rm.playbook.model.problems import TemplateProblem
from rm.playbook.model.schema import Conditions, Truth
from rm.playbook.template.filters import FALSE, TRUE
from rm.playbook.template.jinja import Own, inlined
from rm.playbook.template.template import bare, check, has_template

T = TypeVar("T")


class Reader:
    """Checks values of one file; `filename` begins every complaint. `found` collects complaints, so that
    reading goes on behind each; None: the first ends it.
    `own`: the plug-ins that come with the playbook."""

    def __init__(self, filename: str, found: list[UsageError] | None = None, own: Own = tuple) -> None:
        self.filename, self.found, self.own = filename, found, own

    def of(self, filename: str) -> Reader:
        """The same for another file."""
        return Reader(filename, self.found, self.own)

    def complain(self, line: int, what: str, hint: str = "") -> None:
        """A mistake behind which reading can go on, where complaints are collected."""
        if self.found is None:
            raise self.fail(line, what, hint)
        self.found.append(self.fail(line, what, hint))

    def attempt(self, make: Callable[[], T], default: T) -> T:
        """What `make` gives, `default` where it complains and complaints are collected."""
        with self.going_on():
            return make()
        return default

    def note(self, line: int, what: str, hint: str = "") -> None:
        """Something that is no mistake before it is met."""
        if self.found is not None:
            self.found.append(self.fail(line, what, hint))

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """Collects what is wrong inside, where complaints are collected."""
        try:
            yield
        except UsageError as problem:
            if self.found is None:
                raise
            self.found.append(problem)

    def fail(self, line: int, what: str, hint: str = "") -> UsageError:
        return UsageError(f"{self.filename}:{line}: {what}", hint)

    def known(self, body: Map, keys: tuple[str, ...], owner: str) -> None:
        for key in body:
            if key not in keys:
                line = body.line_of(key)
                if key in LATER:
                    hint = LATER[key] or f"A {owner} knows: {', '.join(keys)}."
                    self.complain(line, f"'{key}' is not supported.", hint)
                    continue
                self.complain(line, f"unknown keyword '{key}' in a {owner}.", did_you_mean(str(key), keys))

    def mapping(self, body: Map, key: str) -> Map:
        value = body.get(key)
        if value is None:
            return Map()
        if not isinstance(value, Map):
            raise self.fail(body.line_of(key), f"'{key}' must be a mapping.")
        self.templates(value, body.line_of(key))
        return value

    def environment(self, body: Map, key: str = "environment") -> tuple[Any, ...]:
        """Mappings, or templates that give one; the later wins."""
        value = body.get(key)
        if value is None:
            return ()
        parts = value if isinstance(value, list) else [value]
        for part in parts:
            if not isinstance(part, Mapping) and not (isinstance(part, str) and has_template(part)):
                raise self.fail(body.line_of(key), f"'{key}' must be a mapping, not {part!r}.")
            self.templates(part, body.line_of(key))
        return tuple(parts)

    def words(self, body: Map, key: str) -> tuple[str, ...]:
        value = body.get(key)
        if value is None:
            return ()
        if isinstance(value, (str, int)):
            value = [word.strip() for word in str(value).split(",")] if key == "tags" else [value]
        if not isinstance(value, (list, tuple)) or not all(isinstance(v, (str, int)) for v in value):
            raise self.fail(body.line_of(key), f"'{key}' must be a name or a list of names.")
        self.templates(list(value), body.line_of(key))
        return tuple(str(v) for v in value)

    def text(self, body: Map, key: str, default: str | None = None) -> str | None:
        value = body.get(key)
        if value is None:
            return default
        if isinstance(value, (dict, list)):
            raise self.fail(body.line_of(key), f"'{key}' must be text.")
        self.templates(value, body.line_of(key))
        return str(value)

    def number(self, body: Map, key: str, default: Any) -> Any:
        """A number, or a template that gives one."""
        value = body.get(key, default)
        if isinstance(value, str) and has_template(value):
            self.templates(value, body.line_of(key))
            return value
        try:
            return value if value is default else float(value) if "." in str(value) else int(value)
        except (TypeError, ValueError):
            raise self.fail(body.line_of(key), f"'{key}' must be a number, not {value!r}.") from None

    def truth(self, body: Map, key: str, default: Any) -> Truth | Any:
        value = body.get(key)
        if value is None:
            return default
        if isinstance(value, str) and has_template(value):
            self.templates(value, body.line_of(key))
            return value
        text = str(value).strip().lower()
        if text not in TRUE and text not in FALSE:
            raise self.fail(body.line_of(key), f"'{key}' must be true or false, not {value!r}.")
        return text in TRUE

    def templates(self, value: Any, line: int) -> None:
        """Check every template in a value."""
        if isinstance(value, str):
            if has_template(value):
                try:
                    check(value, own=self.own)
                except TemplateProblem as problem:
                    self.complain(line, f"{problem}".rstrip(".") + ".")
        elif isinstance(value, dict):
            for key, inner in value.items():
                self.templates(inner, value.line_of(key) if isinstance(value, Map) else line)
        elif isinstance(value, list):
            for i, inner in enumerate(value):
                self.templates(inner, value.lines[i] if isinstance(value, Seq) else line)

    def conditions(self, body: Map, key: str) -> Conditions:
        value = body[key]
        found: list[str | bool] = []
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, str):
                inner = bare(one)
                try:
                    check(inner, expression=True, own=self.own)
                except TemplateProblem as problem:
                    hint = "A condition is written without {{ }}." if "{{" in inlined(inner) else ""
                    what = f"{problem}".rstrip(".") + "."
                    self.complain(body.line_of(key), what, hint)
                    continue
                if "{{" in inlined(inner):
                    self.complain(
                        body.line_of(key),
                        f"the condition '{inner}' holds a template.",
                        "A condition is written without {{ }}.",
                    )
            elif not isinstance(one, bool):
                self.complain(body.line_of(key), f"'{key}' must be an expression, not {one!r}.")
                continue
            found.append(one)
        return tuple(found)
