"""`rmx account`, and its file."""

from pathlib import Path

import pytest

from tests.command_line import Rmx
from tests.fake_service import Daemon


def test_a_tree_is_made_changed_shown_and_taken_away(daemon: Daemon, rmx: Rmx) -> None:
    assert rmx("account", "show").out == "There are no accounts. `rmx account add NAME` makes one.\n"
    for words, says in (
        (("add", "science", "--shares", "60"), "Account science is there.\n"),
        (("add", "physics", "--parent", "science", "--description", "ours"), "Account physics is there.\n"),
        (("add", "physics", "ann", "bob", "--shares", "3"), "ann, bob: in account physics.\n"),
        (("add", "science", "ann", "--default"), "ann: in account science.\n"),
        (("set", "physics", "--shares", "7"), "Account physics is changed.\n"),
        (("set", "physics", "bob", "--shares", "9"), "Account physics is changed.\n"),
    ):
        assert rmx("account", *words).out == says
    lines = [line.split() for line in rmx("account", "show").out.splitlines()]
    assert lines == [
        ["ACCOUNT", "USER", "SHARES", "DEFAULT", "DESCRIPTION"],
        ["science", "60"],
        ["ann", "1", "yes"],
        ["physics", "7", "ours"],
        ["ann", "3"],
        ["bob", "9", "yes"],
    ]
    assert rmx("account", "show", "--json").json["accounts"][1]["name"] == "physics"
    refused = rmx("account", "remove", "science")
    assert (refused.code, "Accounts are below science: physics" in refused.err) == (6, True)
    assert (
        rmx("account", "remove", "physics", "ann", "bob").out.splitlines()[1].startswith("bob is no longer")
    )
    assert rmx("account", "remove", "physics").out == "Account physics is removed.\n"


def test_what_is_exported_is_imported_again(daemon: Daemon, rmx: Rmx, tmp_path: Path) -> None:
    rmx("account", "add", "a.1", "--description", 'says "hi" \\ ü')
    rmx("account", "add", "b", "--parent", "a.1", "--shares", "0")
    rmx("account", "add", "b", "ann")
    rmx("account", "add", "a.1", "ann", "eve", "--shares", "4")
    before = rmx("account", "show").out
    (tmp_path / "accounts.toml").write_text(rmx("account", "export").out)
    rmx("account", "add", "c")
    assert rmx("account", "import", "accounts.toml").out == "2 accounts, 2 users.\n"
    assert rmx("account", "show").out == before


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[a", "accounts.toml is no TOML"),
        ("a = 1", "'a' is no table"),
        ("[a]\ncolour = 1", "account a has no 'colour'"),
        ("[a]\nshares = -1", "account a: "),
        ('[a]\nusers = ["ann"]', "the users of account a cannot be read"),
        ('[a]\nusers = {}\ndefault = ["ann"]', "the users of account a cannot be read"),
        ('[a]\nparent = "b"\n[b]\nparent = "a"', "would be below itself"),
        ("[A]\n", "'A' is no name of an account"),
    ],
)
def test_a_file_that_is_no_tree_is_refused_whole(
    daemon: Daemon, rmx: Rmx, tmp_path: Path, text: str, says: str
) -> None:
    rmx("account", "add", "kept")
    (tmp_path / "accounts.toml").write_text(text)
    refused = rmx("account", "import", "accounts.toml")
    assert (refused.code, says in refused.err, refused.err.count("\n")) == (2, True, 1), refused.err
    assert [one["name"] for one in rmx("account", "show", "--json").json["accounts"]] == ["kept"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("set", "a"), "Nothing is to be changed."),
        (("set", "a", "--default"), "--default is for users."),
        (("add", "b", "--default"), "--default is for users."),
        (("add", "a", "ann", "--parent", "b"), "--parent is for accounts, not for users."),
        (("set", "a", "ann", "--shares", "2"), "ann is not in account a."),
    ],
)
def test_what_fits_no_account_or_no_user_is_a_sentence(
    daemon: Daemon, rmx: Rmx, words: tuple[str, ...], says: str
) -> None:
    rmx("account", "add", "a")
    refused = rmx("account", *words)
    assert (refused.code, says in refused.err) == (2, True)
