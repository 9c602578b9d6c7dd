"""Template files: other delimiters, settings in their first line, templates that include others."""

import base64
import re
import zlib
from typing import Any

import pytest

from rm.playbook.model.problems import BadArgument, TemplateProblem
from rm.playbook.template.filters import FILTERS
from rm.playbook.template.template import Layer, Scope, evaluate
from rm.playbook.template.template_file import check_file, render_file
from tests.unit.playbook_world import play

SCOPE = Scope([Layer({"a": 1, "names": ["x", "y"], "nothing": None}, False)])
OTHERS = {
    "part": "part {{ a }}\n",
    "macros": "{% macro twice(x) %}{{ x }}{{ x }}{{ a }}{% endmacro %}",
    "base": "<{% block inner %}{% endblock %}>",
}


def read(name: str) -> str:
    if name not in OTHERS:
        raise BadArgument(f"the template {name} is not there")
    return OTHERS[name]


@pytest.mark.parametrize(
    ("text", "given", "made"),
    [
        ("{{ a }} {{ nothing }}.\n\n", {}, "1 .\n\n"),
        ("[[ a ]] {{ a }}\n", {"variable_start_string": "[[", "variable_end_string": "]]"}, "1 {{ a }}\n"),
        ("{% if a %}\nx\n{% endif %}\n", {"trim_blocks": False}, "\nx\n"),
        ("  {% if a %}\nx\n  {% endif %}\n", {"lstrip_blocks": True}, "x\n"),
        ("#jinja2: lstrip_blocks: True, trim_blocks: False\n  {% if a %}\nx\n  {% endif %}\n", {}, "\nx\n"),
        ("{% include 'part' %}{% for n in names %}{{ n }}{% endfor %}\n", {}, "part 1xy\n"),
        ("{% from 'macros' import twice %}{{ twice('z') }}", {}, "zz1"),
        ("{% extends 'base' %}{% block inner %}{{ a }}{% endblock %}", {}, "<1>"),
        ("{% include 'none' ignore missing %}.", {}, "."),
        ("{% include 'none' %}", {}, None),
    ],
)  # fmt: skip
def test_template_files(text, given, made):
    if made is None:
        with pytest.raises(TemplateProblem, match="none is not there"):
            render_file(text, SCOPE, given, read)
    else:
        assert render_file(text, SCOPE, given, read) == made


@pytest.mark.parametrize(
    ("text", "says"),
    [("#jinja2: trim: True\n", "not a list of Jinja2's settings"),
     ("#jinja2: trim_blocks: maybe\n", "not a value"),
     ("#jinja2: trim_blocks: False\n{% if %}", "not a Jinja2 template")],
)  # fmt: skip
def test_malformed_template_files(text, says):
    with pytest.raises(TemplateProblem, match=re.escape(says)):
        check_file(text)


def test_a_template_includes_what_lies_beside_it_and_knows_where_it_goes():
    files = {
        "templates/deep/main.j2": "{% include 'near.j2' %}{% include 'far.j2' %}{{ template_destpath }}",
        "templates/deep/near.j2": "near ",
        "templates/far.j2": "far ",
    }
    seen = []

    def answer(host, step):
        seen.append(step.args)
        return {}

    world = play("  - template: {src: deep/main.j2, dest: /t}\n", files=files, answer=answer, hosts=("a",))
    assert world.told() == ["template: changed"]
    assert zlib.decompress(base64.b64decode(seen[0]["content"])) == b"near far /t"


def test_nothing_is_no_text_beside_text():
    assert evaluate("a{{ nothing }}b", SCOPE) == "ab"
    assert evaluate("{{ nothing }}", SCOPE) is None
    assert evaluate("{{ [nothing] }}.", SCOPE) == "[None]."
    assert evaluate("{{ {'b': (1, 2)} | dictsort }}.", SCOPE) == "[['b', [1, 2]]]."


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "#\n# a\n#\n# b\n#"),
        ({"prefix": "", "postfix": ""}, "# a\n#\n# b\n"),  # the postfix has its line, the prefix none
        ({"prefix": "\n", "postfix_count": 0}, "\n# a\n#\n# b"),
        ({"style": "cblock", "end": ""}, "/*\n *\n * a\n *\n * b\n *"),
        ({"decoration": "; ", "beginning": "<"}, "<\n;\n; a\n;\n; b\n;"),
    ],
)
def test_comments_are_ansibles_to_the_last_newline(options: dict[str, Any], text: str) -> None:
    assert FILTERS["comment"]("a\n\nb", **options) == text
