"""Hosts on which a run did not come to its end are named, kept in a retry file, and taken alone again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.command_line import Result, Rmx

INVENTORY = "one ansible_connection=local\ntwo ansible_connection=local\nthree ansible_connection=local\n"
PLAY = """- hosts: all
  gather_facts: false
  tasks:
    - name: Fine
      debug: {msg: here}
    - name: Bad at times
      fail: {msg: "no"}
      when: inventory_hostname in bad
    - name: Last
      debug: {msg: end}
"""
RunHere = Callable[..., Result]


@pytest.fixture
def run_here(tmp_path: Path, rmx: Rmx, monkeypatch: pytest.MonkeyPatch) -> RunHere:
    """`run_here(*options, bad=…)`: a run of site.yml; the hosts `bad` fail."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ANSIBLE_RETRY_FILES_ENABLED", raising=False)
    monkeypatch.setenv("ANSIBLE_CONFIG", str(tmp_path / "ansible.cfg"))
    (tmp_path / "site.yml").write_text(PLAY)
    (tmp_path / "hosts").write_text(INVENTORY)
    (tmp_path / "ansible.cfg").write_text("[defaults]\n")
    (tmp_path / "rm.toml").write_text(f'[daemon]\nstate_dir = "{tmp_path}/state"\n')
    begin = ("--config", str(tmp_path / "rm.toml"), "playbook", "run", "./site.yml", "-i", "hosts")

    def run(*options: str, bad: str = "") -> Result:
        return rmx(*begin, "-e", f'{{"bad": [{bad}]}}', *options)

    return run


def recap(ran: Result) -> dict[str, str]:
    return {line.split()[0]: line.split()[2] for line in ran.out.splitlines() if " : ok=" in line}


def test_the_run_ends_with_the_hosts_that_are_left_and_how_to_take_them(run_here: RunHere) -> None:
    ran = run_here(bad='"one", "three"')
    assert ran.code == 2
    assert ran.err.splitlines()[-1] == (
        "rmx: Not to the end: one (at 'Bad at times'), three (at 'Bad at times')."
        " To take only them again: --limit one,three"
    )
    assert recap(run_here("--limit", "one,three")) == {"one": "ok=2", "three": "ok=2"}
    assert "Not to the end" not in run_here().err


def test_a_retry_file_is_written_where_ansible_cfg_asks_for_it(run_here: RunHere, tmp_path: Path) -> None:
    run_here(bad='"two"')
    assert not (tmp_path / "site.retry").exists()
    (tmp_path / "ansible.cfg").write_text("[defaults]\nretry_files_enabled = true\n")
    ran = run_here(bad='"two", "three"')
    assert f"--limit @{tmp_path}/site.retry" in ran.err
    assert (tmp_path / "site.retry").read_text() == "three\ntwo\n"
    assert recap(run_here("--limit", f"@{tmp_path}/site.retry")) == {"two": "ok=2", "three": "ok=2"}
    assert recap(run_here("--limit", f"all,!@{tmp_path}/none,one")) == {}  # only a whole word is a file
    (tmp_path / "ansible.cfg").write_text(
        "[defaults]\nretry_files_enabled = true\nretry_files_save_path = kept/here\n"
    )
    run_here(bad='"one"')
    assert (tmp_path / "kept/here/site.retry").read_text() == "one\n"


def test_a_limit_may_hold_names_beside_a_file_with_patterns(run_here: RunHere, tmp_path: Path) -> None:
    (tmp_path / "some").write_text("t*\n\n!two\n")
    assert set(recap(run_here("--limit", "one,@some"))) == {"one", "three"}


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "--limit @some: No such file or directory."), (" \n", "--limit @some: the file names no host.")],
)
def test_a_file_that_names_nobody_never_means_all(
    run_here: RunHere, tmp_path: Path, content: str | None, said: str
) -> None:
    if content is not None:
        (tmp_path / "some").write_text(content)
    ran = run_here("--limit", "@some")
    assert (ran.code, recap(ran)) != (0, {})
    assert said in ran.err
    assert recap(ran) == {}
