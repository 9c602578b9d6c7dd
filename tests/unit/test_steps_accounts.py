"""Accounts in check mode: what would be there by now counts, and nothing is made."""

from typing import Any

import pytest

from rm.playbook.model.problems import BadArgument
from tests.steps_request import run, step

TWO_LINES = "$6$salt$hash\nroot:$6$salt$other"


def test_accounts_that_would_be_made_and_removed_by_now() -> None:
    steps = [
        step(1, "group", name="rm-none", state="present"),
        step(2, "group", name="rm-none", state="present"),
        step(3, "group", name="rm-none", state="absent"),
        step(4, "group", name="rm-none", state="absent"),
        step(5, "user", name="rm-none"),
        step(6, "user", name="rm-none"),
        step(7, "user", name="rm-none", state="absent"),
        step(8, "user", name="rm-none", state="absent"),
        step(9, "user", name="root", state="absent"),
        step(10, "user", name="root"),
    ]
    results = run(*steps, check=True)["results"]
    assert [one["changed"] for one in results] == [
        True,
        False,
        True,
        False,
        True,
        False,
        True,
        False,
        True,
        True,
    ]


def test_the_home_of_an_account_is_its_own_where_none_is_named() -> None:
    kept = run(step(1, "user", name="root"), check=True)["results"][0]
    assert not kept["changed"], kept


@pytest.mark.parametrize("password", [TWO_LINES, "$6$a:b", "$6$a\rb", "\x7f"])
def test_a_password_that_would_end_its_line_is_refused_where_the_playbook_is_read(password: str) -> None:
    with pytest.raises(BadArgument, match="'password' holds a ':' or a control character") as told:
        step(1, "user", name="root", password=password)
    assert password not in str(told.value)


def test_a_password_that_would_end_its_line_is_refused_on_the_host() -> None:
    asked: dict[str, Any] = step(1, "user", name="root")
    asked["args"]["password"] = TWO_LINES
    result = run(asked, check=True)["results"][0]
    assert result["failed"], result
    assert "The password of root holds" in result["msg"]
    assert "$6$" not in str(result)
