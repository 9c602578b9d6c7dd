"""What a run shows holds no secret, in whatever form a module, a diff or a template brought it there."""

import base64
import json
import shlex
from urllib.parse import quote, quote_plus

import pytest

from rm.adapters.playbook.secrets import MARK, masked, masked_text
from rm.adapters.playbook.vault import Vault, seal
from rm.playbook.model.steps import TaskResult
from rm.playbook.run.outcome import PRINTED_MOST, _message

KEY = "-----BEGIN KEY-----\nabcdefgh12345678\nABCDEFGH/+=\n-----END KEY-----\n"
SECRETS = ["plain-word", 'quo"ted', "apo'strophe", "both'\"marks", "back\\slash", "ümläut", "two words", KEY]


@pytest.mark.parametrize("secret", SECRETS)
def test_no_form_of_a_secret_is_shown(secret):
    shapes = [
        secret,
        f"before {secret} after",
        json.dumps({"value": secret}),
        json.dumps({"value": secret}, ensure_ascii=False),
        repr({"value": secret}),
        repr(f'it\'s "{secret}"'),
        base64.b64encode(secret.strip().encode()).decode(),
        f"mysql -p{shlex.quote(secret)} -e x",
        *(f"https://h/?{quoted}&x" for quoted in (quote(secret), quote(secret, safe=""), quote_plus(secret))),
        *("+" + line for line in secret.splitlines()),
    ]
    vault = Vault([b"p"])
    vault(seal(secret.encode(), b"p"))
    found = {secret: [secret, {"x": shapes}]}
    result = TaskResult("h", "p", f"task {secret}", "m", "ok", "; ".join(shapes), diffs=tuple(shapes),
                        items=((secret, "ok", secret),), result=found)  # fmt: skip
    shown = repr(masked(result, vault.secrets))
    for line in secret.splitlines():
        for form in (line, repr(line)[1:-1], json.dumps(line)[1:-1]):
            assert form not in shown
    for shape in shapes:
        masks = masked_text(shape, vault.secrets)
        assert not any(
            part in masks for part in ("strophe", "marks", "slash", "ml%C3%A4ut", "words", "abcdefgh")
        )
    assert MARK in shown
    assert masked_text("nothing of it", vault.secrets) == "nothing of it"


@pytest.mark.parametrize(
    ("text", "hidden", "shown"),
    [
        ("pin: 48151623\nport: 5432\n", "48151623", "5432"),
        ("deep: [{word: topsecret}]\n", "topsecret", "deep"),
        ("first line\nsecond line\n", "second line", "third line"),
        (KEY, "abcdefgh12345678", "xyz"),
        ("a: b: c\nline two\n", "line two", "line three"),
    ],
)
def test_what_a_sealed_file_holds_is_secret(text, hidden, shown):
    vault = Vault([b"p"])
    assert vault.open_file(seal(text.encode(), b"p").encode()).decode() == text
    assert masked_text(f"+{hidden} {shown}", vault.secrets) == f"+{MARK} {shown}"


@pytest.mark.parametrize("stream", ["stderr", "stdout"])
def test_the_end_of_what_a_command_printed_does_not_begin_within_a_secret(stream):
    """A message holds the last characters of it, wherever these begin."""
    secret = "sesame-of-the-mirror"
    answer = {
        "failed": True,
        "msg": f"non-zero {secret}",
        stream: "begin " + secret + "x" * (PRINTED_MOST - 6),
    }
    message = _message(answer, "failed")
    assert "mirror" in message.partition(": ")[2]
    found = masked(TaskResult("h", "p", "t", "command", "failed", message, result=answer), {secret})
    assert "mirror" not in repr(found)
    assert found.message.startswith(f"non-zero {MARK}: ")
    assert found.message.endswith("x" * 1000)


def test_a_loops_message_is_its_bad_items_one():
    secret = "sesame-of-the-mirror"
    answer = {"failed": True, "msg": "", "stderr": secret + "x" * (PRINTED_MOST - 6)}
    message = _message(answer, "failed")
    results = [{"failed": False}, answer]
    found = masked(TaskResult("h", "p", "t", "command", "failed", message, items=(
        ("a", "ok", ""), ("b", "failed", message)), result={"results": results}), {secret})  # fmt: skip
    assert "mirror" not in repr(found)
