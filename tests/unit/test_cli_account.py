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
        ["ACCOUNT", "USER", "SHARES", "DEFAULT", "QOS", "LIMITS", "DESCRIPTION"],
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


def test_no_shares_are_a_number_of_shares(daemon: Daemon, rmx: Rmx) -> None:
    """Whose part comes after all that others use."""
    assert rmx("account", "add", "guests", "--shares", "0").code == 0
    assert rmx("account", "add", "guests", "ann", "--shares", "0").code == 0
    rmx("account", "add", "guests", "bob")
    assert rmx("account", "set", "guests", "bob", "--shares", "0").out == "Account guests is changed.\n"
    found = rmx("account", "show", "--json").json
    assert [one["shares"] for one in found["accounts"] + found["members"]] == [0, 0, 0]


def test_what_is_exported_is_imported_again(daemon: Daemon, rmx: Rmx, tmp_path: Path) -> None:
    rmx("account", "add", "a.1", "--description", 'says "hi" \\ ü')
    rmx("account", "add", "b", "--parent", "a.1", "--shares", "0")
    rmx("account", "add", "b", "ann")
    rmx("account", "add", "a.1", "ann", "eve", "--shares", "4")
    before = rmx("account", "show").out
    (tmp_path / "accounts.toml").write_text(rmx("account", "export").out)
    rmx("account", "add", "c")
    assert rmx("account", "import", "accounts.toml").out == "2 accounts, 2 users, 0 QOS.\n"
    assert rmx("account", "show").out == before


@pytest.mark.parametrize("text", ["", "# all commented out\n", '[root]\nlimits = { "user.running" = 1 }\n'])
def test_a_file_without_accounts_removes_all_only_if_that_is_said(
    daemon: Daemon, rmx: Rmx, tmp_path: Path, text: str
) -> None:
    (tmp_path / "accounts.toml").write_text(text)
    assert rmx("account", "import", "accounts.toml").code == 0, "none are there that it would remove"
    rmx("account", "add", "kept")
    refused = rmx("account", "import", "accounts.toml")
    assert (refused.code, "would remove all 1 that there are" in refused.err) == (2, True), refused.err
    assert [one["name"] for one in rmx("account", "show", "--json").json["accounts"]] == ["kept"]
    assert rmx("account", "import", "--empty", "accounts.toml").out == "0 accounts, 0 users, 0 QOS.\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[a", "accounts.toml is no TOML"),
        ('[a]\ndescription = "é"', "accounts.toml is no TOML: 'utf-8' codec can't decode"),
        ("a = 1", "account a is no table"),
        ("[a]\ncolour = 1", "account a has no 'colour'"),
        ("[a]\nshares = -1", "account a, shares: expected a whole number >= 0"),
        ("[a]\nusers = { bob = -1 }", "user bob of account a, shares: expected a whole number >= 0"),
        ('[a]\nusers = ["ann"]', "the users of account a cannot be read"),
        ('[a]\nusers = {}\ndefault = ["ann"]', "the users of account a cannot be read"),
        ("[a]\nusers = 1", "the users of account a cannot be read"),
        ("[a]\nusers = {}\ndefault = [[1]]", "the users of account a cannot be read"),
        ("[a]\nuser_limits = { ann = {} }", "user_limits of a names 'ann', who is none of its users"),
        ('[a]\nparent = "b"\n[b]\nparent = "a"', "would be below itself"),
        ("[A]\n", "'A' is no name of an account"),
        ('[a]\nusers = { "ann eve" = 1 }', "'ann eve' is no name of a user"),
        ('[a]\nusers = { "ann,eve" = 1 }', "'ann,eve' is no name of a user"),
        ('[a]\nusers = { "-ann" = 1 }', "'-ann' is no name of a user"),
    ],
)
def test_a_file_that_is_no_tree_is_refused_whole(
    daemon: Daemon, rmx: Rmx, tmp_path: Path, text: str, says: str
) -> None:
    rmx("account", "add", "kept")
    (tmp_path / "accounts.toml").write_text(text, encoding="latin-1")
    refused = rmx("account", "import", "accounts.toml")
    assert (refused.code, says in refused.err, refused.err.count("\n")) == (2, True, 1), refused.err
    assert [one["name"] for one in rmx("account", "show", "--json").json["accounts"]] == ["kept"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("set", "a"), "The request changes nothing."),
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


def test_qos_and_limits_are_made_changed_shown_and_kept_in_a_file(
    daemon: Daemon, rmx: Rmx, tmp_path: Path
) -> None:
    assert rmx("qos", "show").out == "There is no QOS. `rmx qos add NAME` makes one.\n"
    for words, says in (
        (("account", "add", "physics", "--limit", "gpus=64,user.running=9"), "Account physics is there.\n"),
        (("account", "add", "physics", "ann", "--limit", "gpus=8"), "ann: in account physics.\n"),
        (("account", "set", "root", "--limit", "user.submitted=100"), "Account root is changed.\n"),
        (("qos", "add", "fast", "--priority", "5", "--accounts", "physics"), "QOS fast is there.\n"),
        (("qos", "set", "fast", "--limit", "job.minutes=1-00:00", "--usage-factor", "1.5"),
         "QOS fast is changed.\n"),
        (("account", "set", "physics", "--qos", "fast", "--limit", "gpus=none"),
         "Account physics is changed.\n"),
    ):  # fmt: skip
        assert rmx(*words).out == says
    lines = [line.split() for line in rmx("account", "show").out.splitlines()]
    assert lines[1:] == [
        ["root", "user.submitted=100"],
        ["physics", "1", "fast", "user.running=9"],
        ["ann", "1", "yes", "gpus=8"],
    ]
    assert rmx("qos", "show").out.splitlines()[1].split() == [
        "fast",
        "5",
        "1.5",
        "physics",
        "requeue",
        "job.minutes=1440",
    ]
    rmx("qos", "add", "slow", "--preempt-mode", "cancel", "--grace", "60", "--exempt", "600")
    assert rmx("qos", "set", "fast", "--preempts", "slow").out == "QOS fast is changed.\n"
    lines = [line.split() for line in rmx("qos", "show").out.splitlines()]
    assert lines[1][3:6] == ["physics", "slow", "requeue"]
    assert lines[2][3:] == ["cancel,grace=60,exempt=600"]
    assert "QOS fast preempts slow" in rmx("qos", "remove", "slow").err
    before, qos = rmx("account", "show").out, rmx("qos", "show", "--json").json
    (tmp_path / "accounts.toml").write_text(rmx("account", "export").out)
    rmx("account", "set", "physics", "--qos", "")
    assert rmx("qos", "remove", "fast").out == "QOS fast is removed.\n"
    assert rmx("account", "import", "accounts.toml").out == "1 accounts, 1 users, 2 QOS.\n"
    assert (rmx("account", "show").out, rmx("qos", "show", "--json").json) == (before, qos)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("qos", "set", "fast"), "The request changes nothing."),
        (("qos", "set", "fast", "--priority", "2"), "There is no QOS 'fast'."),
        (("qos", "add", "Fast"), "'Fast' is no name of a QOS."),
        (("qos", "add", "q", "--accounts", "chess"), "QOS q is for 'chess', which is no account."),
        (("qos", "add", "q", "--preempts", "p"), "QOS q preempts 'p', which is no QOS."),
        (("qos", "add", "q", "--limit", "gpus"), "--limit is 'gpus'."),
        (("qos", "add", "q", "--limit", "gpus=-1"), "--limit gpus is '-1'."),
        (("qos", "add", "q", "--limit", "speed=1"), "QOS q has no limit 'speed'."),
        (("account", "set", "root", "--shares", "2"), "The root of the accounts has nothing but limits."),
        (("account", "add", "b", "--qos", "fast"), "The QOS of b, 'fast', is none."),
        (("account", "add", "b", "--limit", "account.gpus=1"), "Account b has no limit 'account.gpus'."),
    ],
)
def test_what_is_no_qos_and_no_limit_is_refused(
    daemon: Daemon, rmx: Rmx, words: tuple[str, ...], says: str
) -> None:
    refused = rmx(*words)
    assert refused.code in (2, 4)
    assert says in refused.err
    assert refused.err.count("\n") == 1
