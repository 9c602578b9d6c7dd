"""What a host's description must be, whoever made it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rm.bootstrap.checks import complaints, inventory_of
from rm.config import Config, HostsConfig
from rm.core.model.host import Gpu, Host
from rm.core.model.host_acceptance import accept_host, keys_of, steering
from rm.errors import UsageError
from tests import builders


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        *(
            ({"name": name}, "its name can stand in no list of hosts")
            for name in (
                "",
                "a/b",
                "a\r\nX: y",
                "a\u202eb",
                "a b",
                "-oProxyCommand=x",
                "..",
                ".",
                "gpu[1-3]",
                "*",
                "a?",
                "@x",
                "!a",
                "a&b",
                '"',
                "a\\b",
                "a:b",
                "~a",
                "a~b",
                "a,b",
                "münchen",
                "a%b",
                "a=b",
            )
        ),
        ({"login": "-oProxyCommand=x"}, "begins with a dash"),
        ({"name": "h" * 256}, "its name is longer than 255 bytes"),
        ({"address": "10.0.0.1:22"}, "have fields of their own"),
        *(({"address": one}, "must be one address") for one in ("[::1]:22", "[::1]", "10.0.0.1,::1")),
        ({"address": "root@h1"}, "have fields of their own"),
        ({"login": "a\n"}, "its login has"),
        *(({what: "{{x}}"}, "is a template") for what in ("address", "login", "zone", "interface")),
        ({"features": ("{%x",)}, "is a template"),
        ({"zone": "\x1b]0;x\x07"}, "its zone has control characters"),
        ({"interface": "eth0 up"}, "its interface has blanks"),
        ({"partitions": ("a,b",)}, "must be a word without commas"),
        ({"features": ("",)}, "must be a word without commas"),
        ({"port": 65_536}, "must be 0 to 65535"),
        ({"cpus": -1}, "cpus is -1"),
        ({"mem_bytes": 1 << 64}, "mem_bytes is 18446744073709551616"),
        ({"nic_bps": (1 << 53) + 1}, "nic_bps is"),
        ({"gpus": (Gpu(0), Gpu(0))}, "different indices"),
        ({"gpus": (Gpu(-1),)}, "different indices"),
        ({"gpus": tuple(map(Gpu, range(1025)))}, "it has 1025 GPUs"),
        ({"gpus": (Gpu(0, mem_bytes=-1),)}, "the memory of a GPU is -1 bytes"),
        ({"gpus": (Gpu(0, uuid="GPU 1"),)}, "its UUID of a GPU has blanks"),
        ({"variables": (("a", "\0"),)}, "a NUL byte"),
        ({"variables": (("a", "x" * (1 << 20)),)}, "its variables have more than"),
        ({"variables": (("a", "é" * (1 << 19)),)}, "its variables have more than 1048576 bytes"),
    ],
)
def test_what_breaks_lists_columns_or_logins_is_no_host(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        accept_host(replace(builders.host("h1"), **fields))


@pytest.mark.parametrize("address", ["", "10.0.0.1", "fe80::1%eth0", "gpu01.example.org", "münchen"])
def test_hosts_as_people_have_them(address: str) -> None:
    accept_host(builders.host("gpu01", gpus=8, address=address, zone="room 1", variables=(("a", "x\ny"),)))


def test_such_a_host_of_an_inventory_is_left_out_and_named_with_what_to_write(tmp_path: Path) -> None:
    inventory = tmp_path / "hosts.ini"
    inventory.write_text("[all]\nh1 ansible_host=10.0.0.1:22\nh2 ansible_host=10.0.0.2\n")
    config = Config(hosts=HostsConfig(inventory=str(inventory)))
    hosts, (sentence,) = inventory_of(config)
    assert [host.name for host in hosts] == ["h2"]
    assert sentence == (
        f"{inventory}: The host 'h1' cannot be accepted: its address names a login or a port, which have "
        "fields of their own (in an inventory ansible_user and ansible_port). It is left out until that is "
        "mended there."
    )
    assert sentence in list(complaints(config))


def steered(host: Host, known: dict[str, Host]) -> list[str]:
    return steering(host, known.get(host.name), keys_of(known.values()))


def test_variables_steer_but_those_that_describe_the_host_or_are_there_already() -> None:
    describing = (("group_names", '["gpu"]'), ("ansible_become", "true"), ("rm_leaf", "l1"))
    old = builders.host("h1", variables=(*describing, ("port", "80"), ("rm_act", "act.yml")))
    assert steered(old, {}) == ["port", "rm_act"]
    assert steered(old, {"h1": old}) == []
    assert steered(replace(old, variables=(("rm_act", "/home/ann/act.yml"),)), {"h1": old}) == ["rm_act"]
    for name, value in (
        ("group_names", "[\"{{ lookup('pipe', 'id') }}\"]"),
        ("group_names", '["\\u007b\\u007b x }}"]'),
        ("ansible_become_user", "#jinja2: variable_start_string: '<'\n<x"),
        ("group_names", "[" * 100_000),
        ("rm_leaf", "[" * 100_000),
        ("ansible_ssh_common_args", "-o ProxyCommand=id"),
        ("ansible_connection", "local"),
    ):
        assert steered(replace(old, variables=((name, value),)), {"h1": old}) == [name]


def test_a_host_is_not_reached_with_the_key_of_any_user_of_this_machine() -> None:
    key = ("ansible_ssh_private_key_file", "/etc/rm/key")
    known = {"h1": builders.host("h1", variables=(key,))}
    assert steered(builders.host("h2", variables=(key,)), known) == []
    for file in ("/home/ann/.ssh/id_ed25519", "~/.ssh/backup", "/etc/rm/key2"):
        assert steered(builders.host("h2", variables=((key[0], file),)), known) == [key[0]]


def test_no_program_of_an_administrator_is_the_python_of_local_steps() -> None:
    def named(python: str) -> list[str]:
        return steered(builders.host("h1", variables=(("ansible_python_interpreter", python),)), {})

    for python in ("auto", "auto_silent", "python3", "/usr/bin/python3.11", "/usr/libexec/platform-python"):
        assert named(python) == []
    for python in (
        "/tmp/py",
        "/usr/bin/python3 /tmp/x.py",
        "/usr/bin/python3/../../../tmp/py",
        "sh -c id",
        "",
    ):
        assert named(python) == ["ansible_python_interpreter"]
    assert steered(builders.host("localhost"), {}) == ["name"]


def test_no_word_of_an_administrator_leads_a_playbook_out_of_a_folder_of_files() -> None:
    out = "../../home/ann/evil"
    for field, value in (
        ("zone", out), ("address", out), ("login", out), ("interface", out), ("partitions", ("a", out)),
    ):  # fmt: skip
        wrong = replace(builders.host("h1"), **{field: value})
        assert steered(wrong, {}) == [field]
        assert steered(wrong, {"h1": wrong}) == []
    for groups in (f'["{out}"]', "5", '[["a"]]', "gpu"):
        assert steered(builders.host("h1", variables=(("group_names", groups),)), {}) == ["group_names"]
    for name in ("rm_leaf", "ansible_become_user"):
        for value in (out, f'"{out}"', '"..\\u002fevil"', f'["{out}"]', f'{{"{out}": 1}}'):
            assert steered(builders.host("h1", variables=((name, value),)), {}) == [name]
    password = (("ansible_become_password", "a/b"),)  # which names no file
    assert steered(builders.host("h1", variables=password), {}) == []
