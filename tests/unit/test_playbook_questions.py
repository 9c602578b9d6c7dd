"""Surveys of playbooks: where the questions come from, and what answers become."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rm.adapters.playbook.catalogue import Catalogue
from rm.adapters.playbook.files import LocalFiles
from rm.adapters.playbook.vault import Vault, seal
from rm.errors import Forbidden, NotFound, UsageError
from rm.playbook.model.located import load
from rm.playbook.read.questions import Answers, Question, answered, survey_of
from tests.playing import folder_of

ROLE = """argument_specs:
  main:
    options:
      port: {type: int, required: true, description: Where it listens}
      token: {no_log: true, description: [The token, of the mirror]}
      mode: {choices: [fast, slow], default: slow}
      fixed: {type: str}
"""


@pytest.fixture
def catalogue(tmp_path: Path) -> Catalogue:
    return Catalogue(str(folder_of(tmp_path)), ("drain",))


def questions(catalogue: Catalogue, name: str) -> list[Question]:
    return catalogue.questions(catalogue.find(name))


def test_the_catalogue_lists_playbooks_and_nothing_else(catalogue: Catalogue, tmp_path: Path) -> None:
    (tmp_path / "playbooks" / ".hidden.yml").write_text("[]")
    (tmp_path / "outside.yml").write_text("[]")
    (tmp_path / "playbooks" / "away.yml").symlink_to(tmp_path / "outside.yml")
    (tmp_path / "playbooks" / "folder.yml").mkdir()
    listed = catalogue.listed()
    assert [one.name for one in listed] == ["broken", "drain", "plain", "site"]
    assert [one.about for one in listed if one.name in ("site", "plain")] == ["", "Updates the cluster"]
    for name in ("../outside", "away", "site.survey", "site.yml", "", "/etc/passwd", ".hidden", "upgrade"):
        with pytest.raises(NotFound):
            catalogue.find(name)
    assert [one.name for one in Catalogue("", ()).listed()] == []
    with pytest.raises(UsageError, match=r"playbooks\.directory"):
        Catalogue(str(tmp_path / "none")).listed()


@pytest.mark.parametrize("what", [".", "site.yml", "site.survey.yml"])
def test_what_everybody_may_write_is_not_run(catalogue: Catalogue, tmp_path: Path, what: str) -> None:
    (tmp_path / "playbooks" / what).chmod(0o777)
    with pytest.raises(Forbidden, match="may write"):
        catalogue.find("site")


def test_shipped_playbooks_that_there_are_not_are_named() -> None:
    assert Catalogue("", ("drain", "drian")).unknown() == ["drian"]


def test_a_default_of_the_survey_file_that_the_vault_sealed_is_opened(
    catalogue: Catalogue, tmp_path: Path
) -> None:
    sealed = seal(b"opened-sesame", b"the-password").replace("\n", "\n    ")
    text = f"word:\n  default: !vault |\n    {sealed}\n"
    (tmp_path / "playbooks" / "plain.survey.yml").write_text(text)
    files = LocalFiles(Vault([b"the-password"]))
    (asked,) = catalogue.questions(catalogue.find("plain"), files)
    assert asked.default == "opened-sesame"
    assert files.vault.secrets == {"opened-sesame"}


def test_prompts_and_the_survey_file_are_asked(catalogue: Catalogue) -> None:
    found = questions(catalogue, "site")
    assert [(one.name, one.private, one.prompted, one.required) for one in found] == [
        ("password", True, True, True), ("release", False, True, False), ("channel", False, False, False),
        ("reboot", False, False, False), ("mirrors", False, False, False),
    ]  # fmt: skip
    assert questions(catalogue, "plain") == []
    with pytest.raises(UsageError, match=r"gone\.yml"):
        questions(catalogue, "broken")


@pytest.mark.parametrize("name", ["drain", "upgrade"])
def test_surveys_of_shipped_playbooks_ask_for_what_these_use(tmp_path: Path, name: str) -> None:
    catalogue = Catalogue("", (name,))
    text = (catalogue.find(name).path).read_text()
    asked = questions(catalogue, name)
    assert asked
    for one in asked:
        assert one.name in text
    assert answered(asked, {}).extra == {one.name: one.default for one in asked}


def test_without_a_survey_file_the_roles_are_asked_for(catalogue: Catalogue, tmp_path: Path) -> None:
    role = tmp_path / "playbooks" / "roles" / "web"
    (role / "meta").mkdir(parents=True)
    (role / "tasks").mkdir()
    (role / "tasks" / "main.yml").write_text("- ping:\n")
    (role / "meta" / "argument_specs.yml").write_text(ROLE)
    (tmp_path / "playbooks" / "plain.yaml").write_text(
        "- hosts: all\n  roles:\n    - role: web\n      vars: {fixed: x}\n"
    )
    found = {one.name: one for one in questions(catalogue, "plain")}
    assert list(found) == ["port", "token", "mode"], "what the playbook sets is not asked for"
    assert (found["port"].kind, found["port"].required) == ("int", True)
    assert (found["token"].private, found["token"].text) == (True, "The token of the mirror")
    assert (found["mode"].default, found["mode"].choices) == ("slow", ("fast", "slow"))
    assert answered(list(found.values()), {"port": "80"}).extra == {"port": 80}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- a\n", "not a mapping"),
        ("ansible_host: {}\n", "no name of a variable"),
        ("a: {colour: red}\n", "has no 'colour'"),
        ("a: {type: colour}\n", "'colour' is not a type"),
        ("a: {pattern: '['}\n", "pattern of 'a'"),
        ("a: b\n", "'a' must be a mapping"),
    ],
)
def test_a_survey_file_that_is_wrong_says_where(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        survey_of(load(text, "s.yml"), "s.yml")
    assert "s.yml" in caught.value.what


def survey(**spec: Any) -> list[Question]:
    return [
        Question("text", "Text", pattern="[a-z]+", fills=True, default="usual"),
        Question("number", "Number", "int"),
        Question("several", "Several", "list", "int"),
        Question("choice", "Choice", choices=(1, "two")),
        Question("secret", "Secret", private=True, prompted=True, default="of the playbook"),
        Question("sealed", "Sealed", "dict", private=True),
        Question("pins", "Pins", "list", "int", private=True),
        Question("sealed_choice", "Sealed", choices=("4711-private",), private=True),
    ]


def test_answers_become_values_of_their_types() -> None:
    given = {"text": "abc", "number": "7", "several": "1, 2", "choice": "1", "secret": "s3cret word"}
    found = answered(survey(), given)
    assert found.extra == {"text": "abc", "number": 7, "several": [1, 2], "choice": 1}
    assert found.prompted == {"secret": "s3cret word"}
    assert found.shown == found.extra
    assert (found.private, found.secrets) == (("secret", "sealed", "pins", "sealed_choice"), ("s3cret word",))


def test_what_is_not_answered_has_its_default() -> None:
    found = answered(survey(), {"number": "", "secret": None})
    private, secrets = ("secret", "sealed", "pins", "sealed_choice"), ("of the playbook",)
    assert found == Answers({}, {"text": "usual"}, {"text": "usual"}, private, secrets, ("text",))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"other": 1}, "nobody asks for 'other'"),
        ({"nummber": 1}, "number"),
        ({"number": "seven"}, "'number' does not fit"),
        ({"several": "1,x"}, "'several' does not fit"),
        ({"choice": "three"}, "must be one of its choices: 1, two"),
        ({"sealed_choice": "none of them"}, r"'sealed_choice' must be one of its choices\."),
        ({"text": "ABC"}, "does not match"),
        ({"text": "{{ lookup('pipe', 'id') }}"}, "marks of a template"),
        ({"several": ["{% x %}"]}, "'several'"),
        ({"text": "#jinja2: variable_start_string: '[%'\n[% lookup('pipe', 'id') %]"}, "marks of a template"),
        ({"text": "x" * 70_000}, "more than 65536"),
        ({"several": ["12345"] * 30_000}, "together they have more than 131072"),
        ({"text": "a\0b"}, "no text"),
        ({"text": "\udcff"}, "no text"),
        ({"number": 1 << 70}, "plausible size"),
        ({"number": 10**400}, "plausible size"),
        ({"number": "1e400"}, "plausible size"),
        ({"number": float("nan")}, "'number' does not fit"),
        ({"secret": "abc"}, "needs 4 characters"),
        ({"secret": "{# 4711-private #}"}, "'secret' does not fit"),
        ({"sealed": "a={4711-private 'b"}, "'sealed' does not fit: it is no dict"),
        ({"sealed": ["4711-private"]}, "'sealed' does not fit: it is no dict"),
        ({"pins": ["1", "4711-private"]}, "'pins' does not fit: it is no list"),
    ],
)
def test_answers_that_do_not_fit(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        answered(survey(), given)
    assert "4711-private" not in str(caught.value)


def test_a_required_answer_is_missed_with_all_other_mistakes() -> None:
    asked = [Question("a", "A", required=True), Question("b", "B", "int")]
    with pytest.raises(UsageError, match=r"'a' needs an answer; 'b' does not fit"):
        answered(asked, {"b": "x"})
