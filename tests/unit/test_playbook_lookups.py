"""Filters and lookups that draw, hash, ask web servers or keep passwords, as in Ansible 2.19."""

import os
import pwd
import re
from pathlib import Path
from typing import Any

import pytest

from rm.adapters.playbook.files import LocalFiles
from rm.adapters.playbook.sources import ThisMachine
from rm.playbook.model.problems import TemplateProblem
from rm.playbook.run.lookups import seeker
from rm.playbook.template.template import Layer, Scope, evaluate


def value(text: str, directory: str = "/nonexistent", **variables: Any) -> Any:
    seek = seeker(LocalFiles(), (directory,), ThisMachine())
    return evaluate(text, Scope([Layer(variables, True)], seek=seek))


@pytest.mark.parametrize(
    ("text", "is_"),
    [
        ("{{ 60 | random(seed='host1') }}", 31),
        ("{{ 60 | random(start=10, step=10, seed='host1') }}", 40),
        ("{{ ['a', 'b', 'c'] | random(seed='host1') }}", "b"),
        ("{{ [1, 2, 3, 4] | shuffle(seed='s') }}", [1, 3, 2, 4]),
        ("{{ 1 | random }}", 0),
        ("{{ [7] | ansible.builtin.random }}", 7),
        (
            "{{ 'secret' | password_hash('sha256', 'mysalt', rounds=5000) }}",
            "$5$mysalt$I2SNajjJ3Gc5gIR/tkrLOGngF8wqv59buJCqxh.o9s8",
        ),
        (
            "{{ 'secret' | password_hash('sha512', 'mysalt', rounds=1000) }}",
            "$6$rounds=1000$mysalt$GWqo/Lq3SURYGcNVPiffI5Ic1x2WLu.e2sf9owxedsXuZK/"
            "w2K89mrRPOcDayUvRWxd/x1F1WhRLB4W89a23d.",
        ),
        ("{{ 'secret' | password_hash('md5', 'mysalt') }}", "$1$mysalt$n/EfEiV74OYgBdqhKQzSW/"),
    ],
)
def test_what_is_drawn_and_hashed(text: str, is_: Any) -> None:
    assert value(text) == is_


def test_a_hash_without_a_salt_has_another_each_time() -> None:
    one, two = (value("{{ 'secret' | password_hash('sha512', rounds=1000) }}") for _ in range(2))
    assert one != two
    salt = one.split("$")[3]
    assert len(salt) == 16
    again = value("{{ 'secret' | password_hash('sha512', salt, rounds=1000) }}", salt=salt)
    assert again == one


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{{ 'a' | password_hash('rot13') }}", "no way to hash"),
        ("{{ 'a' | password_hash('sha512', 'a:b') }}", "the salt must be"),
        ("{{ 'a' | password_hash('sha512', rounds=3) }}", "3 rounds"),
        ("{{ [] | random }}", "empty list"),
        ("{{ 5 | random(start=9) }}", "empty range"),
        ("{{ [1] | random(start=1) }}", "integer values"),
        ("{{ lookup('url', 'gopher://x') }}", "not a URL"),
        ("{{ lookup('url', 'file:///no/such', nonsense=1) }}", "no option 'nonsense'"),
        ("{{ lookup('password', '/dev/null chars=') }}", "names no characters"),
        ("{{ lookup('password', '/dev/null size=3') }}", "no option 'size'"),
        ("{{ 'x' | ansible.utils.ipaddr('nonsense') and '1.1.1.1' | ipaddr('nonsense') }}", "False"),
        ("{{ '1.1.1.1' | ipaddr('nonsense') }}", "unknown filter type: nonsense"),
    ],
)
def test_what_cannot_be_is_told(text: str, says: str) -> None:
    if says == "False":
        assert value(text) is False
        return
    with pytest.raises(TemplateProblem, match=says):
        value(text)


def test_url(tmp_path: Path) -> None:
    page = tmp_path / "page"
    page.write_text("one\ntwo\n")
    assert value(f"{{{{ lookup('url', 'file://{page}') }}}}") == "one,two"
    assert value(f"{{{{ lookup('url', 'file://{page}', split_lines=false) }}}}") == "one\ntwo\n"
    assert value(f"{{{{ query('ansible.builtin.url', 'file://{page}') }}}}") == ["one", "two"]
    with pytest.raises(TemplateProblem, match="cannot be asked"):
        value(f"{{{{ lookup('url', 'file://{page}.not') }}}}")


@pytest.mark.parametrize(
    ("text", "is_"),
    [  # what ansible-core 2.19 gives
        ("lookup('ini', 'user', section='production', file='users.ini')", "robert"),
        ("lookup('ini', 'user section=integration file=users.ini')", "gertrude"),
        ("lookup('ini', 'user name section=integration file=users.ini')", "with a space"),
        (
            "query('ini', 'u.*', section='integration', file='users.ini', re=true)",
            ["gertrude", "with a space"],
        ),
        ("lookup('ini', 'nobody', section='production', file='users.ini')", ""),
        ("lookup('ini', 'nobody', section='production', file='users.ini', default='me')", "me"),
        ("lookup('ini', 'User', section='production', file='users.ini', case_sensitive=true)", ""),
        ("lookup('ansible.builtin.ini', 'user.name', type='properties', file='users.properties')", "robert"),
        ("lookup('csvfile', 'Li', file='elements.csv', delimiter=',')", "3"),
        ("lookup('csvfile', 'Li file=elements.csv delimiter=, col=2')", "6.9, or so"),
        ("lookup('csvfile', '3', file='elements.csv', delimiter=',', col=0, keycol=1)", "Li"),
        ("lookup('csvfile', 'Xx', file='elements.csv', delimiter=',', default='none')", "none"),
        ("query('csvfile', 'one', 'two', file='tabs.csv')", ["1", "2"]),
    ],
)
def test_values_in_files(tmp_path: Path, text: str, is_: Any) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files/users.ini").write_text(
        "[production]\nuser=robert\n[integration]\nuser=gertrude\nuser name=with a space\n"
    )
    (tmp_path / "users.properties").write_text("user.name=robert\n")
    (tmp_path / "elements.csv").write_text('Symbol,Number,Mass\nLi,3,"6.9, or so"\nLi,4,5\n')
    (tmp_path / "tabs.csv").write_text("one\t1\ntwo\t2\n")
    assert value(f"{{{{ {text} }}}}", str(tmp_path)) == is_


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("lookup('ini', 'a', section='no', file='x.ini')", "No section: 'no'"),
        ("lookup('ini', 'a', colour='x')", "no option 'colour'"),
        ("lookup('ini', 'section=a file=x.ini')", "names no key"),
        ("lookup('ini', '(', section='a', file='x.ini', re=true)", "x.ini: "),
        ("lookup('csvfile', 'a', file='x.ini', col='many')", "x.ini: invalid literal"),
        ("lookup('csvfile', 'a=1', file='x.ini', delimiter=',', col=7)", "no option 'a'"),
        ("lookup('csvfile', '[a]', file='x.ini', delimiter=',', col=7)", "a row lacks column 7"),
        ("lookup('csvfile', 'a', file='nowhere.csv')", "nowhere.csv"),
    ],
)
def test_what_is_not_in_a_file_is_told(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "x.ini").write_text("[a]\nb=1\n")
    with pytest.raises(TemplateProblem, match=re.escape(says)):
        value(f"{{{{ {text} }}}}", str(tmp_path))


def test_a_tree_of_files_as_community_general_gives_it(tmp_path: Path) -> None:
    web, over = tmp_path / "files/web", tmp_path / "over"
    (web / "conf.d").mkdir(parents=True)
    over.mkdir()
    (web / "a").write_text("1")
    (web / "conf.d/b").write_text("22")
    (web / "l").symlink_to("conf.d")
    (over / "a").write_text("333")
    (web / "conf.d/b").chmod(0o640)
    (web / "conf.d").chmod(0o2750)
    os.mkfifo(web / "pipe")  # of no kind that is copied
    asked = "{{ query('community.general.filetree', 'over', 'web/') }}"
    found = {one["path"]: one for one in value(asked, str(tmp_path))}
    assert {path: one["state"] for path, one in found.items()} == {
        "a": "file", "conf.d": "directory", "conf.d/b": "file", "l": "link",
    }  # fmt: skip
    assert found["a"]["size"] == 3  # the first directory's
    assert [found[one]["root"] for one in ("a", "l")] == [str(over), f"{web}/"]
    assert [found[one]["src"] for one in ("conf.d/b", "l")] == [f"{web}/conf.d/b", "conf.d"]
    assert "src" not in found["conf.d"]
    assert [found[one]["mode"] for one in ("conf.d", "conf.d/b")] == ["02750", "0640"]
    me = pwd.getpwuid(os.getuid()).pw_name
    assert (found["a"]["uid"], found["a"]["owner"]) == (os.getuid(), me)
    assert found["a"]["mtime"] == (over / "a").stat().st_mtime
    assert value("{{ query('filetree', 'nowhere/') }}", str(tmp_path)) == []


def test_numbers_of_a_sequence_are_decimal() -> None:
    assert value("{{ query('sequence', 'start=010 end=012') }}") == ["10", "11", "12"]
    assert value("{{ query('sequence', '1-3:%02x') }}") == ["01", "02", "03"]
    for asked in ("'start=0x1 end=3'", "'0x1-0x3'", "start=1, end='0x3'", "'count=0x3'"):
        with pytest.raises(TemplateProblem, match="is not a sequence"):
            value(f"{{{{ query('sequence', {asked}) }}}}")


def test_a_random_choice_is_one_of_what_is_given() -> None:
    assert {value("{{ lookup('random_choice', 'a', 'b') }}") for _ in range(60)} == {"a", "b"}
    assert value("{{ query('random_choice') }}") == []


def test_password(tmp_path: Path) -> None:
    text = "{{ lookup('password', 'deep/word length=12 chars=digits') }}"
    word = value(text, str(tmp_path))
    path = tmp_path / "deep/word"
    assert len(word) == 12
    assert word.isdigit()
    assert (path.read_text(), path.stat().st_mode & 0o777) == (word + "\n", 0o600)
    assert value(text, str(tmp_path)) == word
    hashed = value("{{ lookup('password', 'deep/word', encrypt='md5_crypt') }}", str(tmp_path))
    assert path.read_text() == f"{word} salt={hashed.split('$')[2]}\n"
    assert value("{{ lookup('password', 'deep/word encrypt=md5_crypt') }}", str(tmp_path)) == hashed
    assert value("{{ lookup('password', 'deep/word') }}", str(tmp_path)) == word
    fixed = value("{{ lookup('password', '/dev/null', length=5, seed='a') }}")
    assert fixed == value("{{ lookup('password', '/dev/null length=5 seed=a') }}")
    assert fixed == "I:iwm"


def test_a_password_s_lock_follows_no_link_and_empties_no_file(tmp_path: Path) -> None:
    text = "{{ lookup('password', 'word') }}"
    precious, lock = tmp_path / "precious", tmp_path / ".rm-passwords.lock"
    precious.write_text("kept")
    lock.symlink_to(precious)
    with pytest.raises(TemplateProblem, match="cannot keep a password"):
        value(text, str(tmp_path))
    assert (precious.read_text(), (tmp_path / "word").exists()) == ("kept", False)
    lock.unlink()
    lock.write_text("kept")
    word = value(text, str(tmp_path))
    assert (lock.read_text(), (tmp_path / "word").read_text()) == ("kept", word + "\n")


def test_a_password_file_that_is_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "word").symlink_to("store/word")
    word = value("{{ lookup('password', 'word') }}", str(tmp_path))
    assert (tmp_path / "word").is_symlink()
    assert (tmp_path / "store/word").read_text() == word + "\n"


@pytest.mark.parametrize("url", ["gopher://me:s3cret@host/x", "http://me:s3cret@[host/x", "me:s3cret@host/x"])
def test_a_password_of_what_is_no_url_is_not_shown(url: str) -> None:
    with pytest.raises(TemplateProblem, match="is not a URL") as problem:
        value(f"{{{{ lookup('url', '{url}') }}}}")
    assert "host/x" in str(problem.value)
    assert "s3cret" not in str(problem.value)


@pytest.mark.parametrize(
    ("text", "is_"),
    [
        ("{{ '192.168.1.5/24' | ipaddr }}", "192.168.1.5/24"),
        ("{{ 'no' | ipaddr }}", False),
        ("{{ '192.168.1.5/24' | ansible.utils.ipaddr('network/prefix') }}", "192.168.1.0/24"),
        ("{{ '192.168.1.5/24' | ipaddr('address') }}", "192.168.1.5"),
        ("{{ '192.168.1.0/24' | ipaddr('address') }}", None),
        ("{{ '192.168.1.5/24' | ipaddr('netmask') }}", "255.255.255.0"),
        ("{{ '192.168.1.5/255.255.255.0' | ipaddr('prefix') }}", 24),
        ("{{ '192.168.1.0/24' | ipaddr(10) }}", "192.168.1.10/24"),
        ("{{ '192.168.1.0/24' | ipaddr('-2') }}", "192.168.1.254/24"),
        ("{{ '192.168.1.5' | ipaddr('192.168.0.0/16') }}", "192.168.1.5"),
        ("{{ '10.1.1.5' | ipaddr('192.168.0.0/16') }}", None),
        ("{{ '192.168.1.0/24' | ipaddr('range_usable') }}", "192.168.1.1-192.168.1.254"),
        ("{{ ['1.1.1.1', 'x', '2001:db8::1'] | ipv6 }}", ["2001:db8::1"]),
        ("{{ ['1.1.1.1', 'x', '2001:db8::1/64'] | ipwrap }}", ["1.1.1.1", "x", "[2001:db8::1]/64"]),
        ("{{ '2001:db8::1' | ansible.utils.ipwrap }}", "[2001:db8::1]"),
        ("{{ '8.8.8.8' | ipaddr('public') }}{{ '10.0.0.1' | ipaddr('private') }}", "8.8.8.810.0.0.1"),
        ("{{ '192.168.0.0/16' | ipsubnet(20, 1) }}", "192.168.16.0/20"),
        ("{{ '192.168.0.0/16' | ansible.utils.ipsubnet(20) }}", "16"),
        ("{{ '10.0.0.0/8' | nthhost(305) }}", "10.0.1.49"),
        ("{{ '192.168.1.5' | ipmath(300) }}", "192.168.2.49"),
        ("{{ '10.0.0.0/8' | network_in_network('10.2.3.4') }}", True),
        ("{{ '1.2.3.4' | ipaddr('revdns') }}", "4.3.2.1.in-addr.arpa."),
        ("{{ '1.2.3.4' | ipaddr('ipv6') }}", "::ffff:1.2.3.4/128"),
    ],
)
def test_addresses(text: str, is_: Any) -> None:
    assert value(text) == is_


@pytest.mark.parametrize(("url", "shown"), [
    ("http://me:s3cret@127.0.0.1:1/x", "http://127.0.0.1:1/x"),
    ("http://me:s3/cr@et@127.0.0.1:1/x", "http://127.0.0.1:1/x"),
    ("http://127.0.0.1:1/a@b", "http://127.0.0.1:1/a@b"),
])  # fmt: skip
def test_a_url_s_password_is_not_shown(url: str, shown: str) -> None:
    with pytest.raises(TemplateProblem) as problem:
        value(f"{{{{ lookup('url', '{url}', use_proxy=false) }}}}")
    assert f"{shown} cannot be asked: " in str(problem.value)
    assert "cret" not in str(problem.value)
