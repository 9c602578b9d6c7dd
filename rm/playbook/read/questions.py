"""The survey of a playbook: what somebody who starts it from the page is asked, and what the answers become.

It asks what `vars_prompt` asks, and besides what the survey file beside the playbook names or, without such a
file, the arguments that the playbook's roles declare (`meta/argument_specs.yml`). An answer is a plain value:
one with a template's marks is refused, since variables of this strength are templates of the control machine.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from rm.errors import UsageError
from rm.hints import did_you_mean
from rm.playbook.model.argument_spec import KINDS, Unfit, convert
from rm.playbook.model.located import Map
from rm.playbook.model.schema import Playbook, tasks_of
from rm.playbook.template.jinja import is_template
from rm.quick_dataclass import dataclass

PRIVATE_MIN = 4  # characters: a shorter text cannot be taken out of what is shown
ANSWER_MOST = 65_536  # characters of one answer
ANSWERS_MOST = 131_072  # of all as JSON: each run keeps them
DEPTH_MOST = 16
_KEYS = ("type", "elements", "description", "default", "required", "choices", "no_log", "pattern")
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Question:
    """One variable. `prompted`: it is one of `vars_prompt`; others become extra variables. `kind` is a type
    of argument specifications; `pattern` is for the whole of a text."""

    name: str
    text: str
    kind: str = "str"
    elements: str = ""
    default: Any = None
    required: bool = False
    choices: tuple[Any, ...] = ()
    private: bool = False
    pattern: str = ""
    prompted: bool = False
    fills: bool = False  # the default is sent where nothing is answered


@dataclass(frozen=True, slots=True)
class Answers:
    """`prompted` and `extra` are what the run gets; of `extra`, `defaults` are the names of those that nobody
    answered, whose texts are the administrator's and may be templates. `shown` of all may be kept, `private`
    are the names of the others; `secrets` are texts to take out of whatever the run shows."""

    prompted: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)
    shown: Mapping[str, Any] = field(default_factory=dict)
    private: tuple[str, ...] = ()
    secrets: tuple[str, ...] = field(default=(), repr=False)
    defaults: tuple[str, ...] = ()


def questions_of(playbook: Playbook, survey: Sequence[Question] | None) -> list[Question]:
    """Each variable once; `survey` are the questions of the survey file, None without one."""
    found: dict[str, Question] = {}
    for play in playbook.plays:
        for one in play.prompts:
            found.setdefault(one.name, Question(
                one.name, one.text, default=one.default, private=one.private, prompted=True,
                required=one.default is None,
            ))  # fmt: skip
    asked = survey if survey is not None else list(_of_roles(playbook))
    for question in asked:
        found.setdefault(question.name, question)
    return list(found.values())


def _of_roles(playbook: Playbook) -> Iterator[Question]:
    """What the roles of the plays declare, but for what stands beside their names."""
    for play in playbook.plays:
        for task in tasks_of(play.tasks):
            spec = task.args.get("argument_spec") if task.module == "validate_argument_spec" else None
            if task.role is None or not isinstance(spec, Mapping):
                continue
            said = {*task.role.params, *task.variables, *task.role.variables, *play.variables}
            for name, one in spec.items():
                if str(name) not in said and isinstance(one, Mapping):
                    default = task.role.defaults.get(name, one.get("default"))
                    yield _question(str(name), one, default)


def survey_of(document: Any, file: str) -> list[Question]:
    """The questions of a survey file: a mapping of variables, each as an option of argument specifications.
    Raises UsageError."""
    if not isinstance(document, Map):
        raise UsageError(f"{file} is not a mapping of variables.", "Write NAME: {description: …} for each.")
    found = []
    for name, one in document.items():
        where = f"{file}:{document.line_of(name)}: "
        if not isinstance(name, str) or not _NAME.fullmatch(name) or name.startswith("ansible_"):
            raise UsageError(f"{where}'{name}' is no name of a variable that may be asked for.")
        if not isinstance(one, Mapping):
            raise UsageError(f"{where}'{name}' must be a mapping.", f"It may have {', '.join(_KEYS)}.")
        for key in one:
            if key not in _KEYS:
                raise UsageError(f"{where}'{name}' has no '{key}'.", did_you_mean(str(key), _KEYS))
        for key in ("type", "elements"):
            if one.get(key) is not None and one[key] not in KINDS:
                raise UsageError(f"{where}'{one[key]}' is not a type.", f"Known: {', '.join(KINDS)}.")
        try:
            re.compile(str(one.get("pattern") or ""))
        except (re.error, RecursionError, OverflowError) as problem:
            raise UsageError(f"{where}the pattern of '{name}' is none: {problem}.") from None
        found.append(_question(name, one, one.get("default"), fills=True))
    return found


def _question(name: str, one: Mapping[str, Any], default: Any, fills: bool = False) -> Question:
    said = one.get("description") or name
    text = " ".join(map(str, said)) if isinstance(said, (list, tuple)) else str(said)
    choices = one.get("choices")
    return Question(
        name, text, str(one.get("type") or "str"), str(one.get("elements") or ""), default,
        bool(one.get("required")) and default is None,
        tuple(choices) if isinstance(choices, (list, tuple)) else (), bool(one.get("no_log")),
        str(one.get("pattern") or ""), fills=fills,
    )  # fmt: skip


def is_whole(pattern: str, text: str) -> bool:
    return bool(re.fullmatch(pattern, text))


def answered(
    questions: Sequence[Question], given: Mapping[str, Any], fits: Callable[[str, str], bool] = is_whole
) -> Answers:
    """What the answers become; "" and None answer nothing. `fits` says whether a pattern matches the whole of
    a text. Raises UsageError with all that is wrong."""
    known = {one.name: one for one in questions}
    problems = [
        f"nobody asks for '{name:.100}'{_nearest(name, known)}" for name in given if name not in known
    ]
    prompted: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    private: list[str] = []
    defaults: list[str] = []
    secrets: list[str] = []
    for one in questions:
        try:
            value = given.get(one.name)
            if value is None or value == "":
                if one.private:
                    secrets += [text for text in _texts(one.default) if len(text) >= PRIVATE_MIN]
                    private.append(one.name)
                if one.required:
                    raise Unfit("needs an answer")
                if one.fills and one.default is not None:
                    extra[one.name] = one.default
                    defaults.append(one.name)
                continue
            found = _value(one, value, fits)
            if one.private:
                private.append(one.name)
                secrets += _secret(found)
        except Unfit as problem:
            problems.append(f"'{one.name}' {problem}")
            continue
        (prompted if one.prompted else extra)[one.name] = found
    if len(json.dumps([prompted, extra], default=str, ensure_ascii=False)) > ANSWERS_MOST:
        problems.append(f"together they have more than {ANSWERS_MOST} characters")
    if problems:
        raise UsageError(
            f"The answers do not fit: {'; '.join(problems)}.", "The survey says what is asked for."
        )
    shown = {name: value for name, value in {**prompted, **extra}.items() if name not in private}
    found_secrets = tuple(dict.fromkeys(secrets))
    return Answers(prompted, extra, shown, tuple(private), found_secrets, tuple(defaults))


def _nearest(name: str, known: Mapping[str, Question]) -> str:
    hint = did_you_mean(name, list(known)) if known else ""
    return f" ({hint.rstrip('.')})" if hint else ""


def _value(one: Question, given: Any, fits: Callable[[str, str], bool]) -> Any:
    """Raises Unfit; nothing of a private answer is in its message."""
    try:
        found = _converted(one, given)
    except Unfit as problem:
        said = f"it is no {one.kind}" if one.private else f"{problem}".rstrip(".")
        raise Unfit(f"does not fit: {said}") from None
    try:
        _plain(found)
    except Unfit as problem:
        raise Unfit(f"does not fit: {problem}") from None
    if one.choices:
        for choice in one.choices:
            if choice == found or str(choice) == str(found):
                return choice
        known = "" if one.private else f": {', '.join(map(str, one.choices))}"
        raise Unfit(f"must be one of its choices{known}")
    if one.pattern and not fits(one.pattern, str(found)):
        raise Unfit(f"does not match {one.pattern}")
    return found


def _converted(one: Question, given: Any) -> Any:
    found = convert(one.kind, given)
    if one.kind == "list" and one.elements:
        return [convert(one.elements, each) for each in found]
    return found


def _plain(value: Any, depth: int = 0) -> None:
    """Raises Unfit where the value is no plain JSON of bounded size, or holds a template."""
    if depth > DEPTH_MOST:
        raise Unfit("it is nested too deeply")
    if isinstance(value, str):
        if len(value) > ANSWER_MOST:
            raise Unfit(f"it has more than {ANSWER_MOST} characters")
        if is_template(value):
            raise Unfit("it has the marks of a template: {{, {%, {# or, at its beginning, #jinja2:")
        if "\0" in value or (not value.isascii() and _surrogate(value)):
            raise Unfit("it has characters that are no text")
    elif isinstance(value, bool) or value is None:
        return
    elif isinstance(value, (int, float)):
        if not -(1 << 62) < value < 1 << 62:  # nor is "not a number"; whole ones may be beyond any float
            raise Unfit("it is no number of a plausible size")
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            _plain(str(name), depth + 1)
            _plain(inner, depth + 1)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            _plain(inner, depth + 1)
    else:
        raise Unfit("it is no plain value")


def _surrogate(text: str) -> bool:
    return any("\ud800" <= char <= "\udfff" for char in text)


def _secret(value: Any) -> list[str]:
    """Raises Unfit where the value could not be taken out of what is shown."""
    texts = list(_texts(value))
    if not texts or any(len(text) < PRIVATE_MIN for text in texts):
        raise Unfit(
            f"is private and needs {PRIVATE_MIN} characters, so that it can be hidden (an answer that is not"
            " secret needs `private: false`)"
        )
    return texts


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _texts(inner)
    elif value is not None:
        yield str(value)
