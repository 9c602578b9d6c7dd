"""Accounts in check mode: what would be there by now counts, and nothing is made."""

from tests.steps_request import run, step


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
