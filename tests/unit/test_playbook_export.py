"""Hosts to an Ansible inventory and back: our reader and ansible-inventory find the same hosts in it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from rm.adapters.playbook.vault import Vault, seal
from rm.core.model.host import Gpu, Host
from rm.playbook.inventory.export import as_ini, as_yaml
from rm.playbook.inventory.hosts import decode, encode, to_hosts
from rm.playbook.inventory.inventory import parse
from tests.examples import examples

FORMATS = [(as_yaml, "hosts.yml"), (as_ini, "hosts.ini")]
ODD = ["", " ", "yes", "1.10", "0644", "1e3", "null", "~", "{{ x }}", "a=b", "# no", "'", '"', "a\nb", "\\",
       "ä€", "$HOME `x`", "[1", "- a", "key: v", "!vault", "\x85", "\t", "None", "True", "2001-01-01", "=",
       "<<"]  # fmt: skip
texts = st.sampled_from(ODD) | st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12)
scalars = texts | st.booleans() | st.none() | st.integers(-(2**70), 2**70)
scalars |= st.floats(allow_nan=False)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
names = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True).filter(
    lambda name: name not in ("all", "ungrouped", "group_names", "hosts", "children", "vars")
)
variables = st.dictionaries(names.map(lambda name: "x_" + name), values, max_size=3)
facts = st.fixed_dictionaries(
    {},
    optional={
        "ansible_host": st.sampled_from(["10.0.0.9", "fe80::1", "gpu.example"]),
        "ansible_port": st.integers(1, 65535),
        "ansible_user": names,
        "rm_zone": names,
        "rm_leaf": names,
        "rm_cpus": st.integers(0, 512),
        "rm_mem": st.sampled_from(["64G", "1.5G", "300M", "1023B", "512"]),
        "rm_gpus": st.integers(0, 3) | st.just({"count": 2, "model": "H100", "mem": "80G"}),
        "rm_nic_mbps": st.sampled_from([0, 1, 2500, 0.5, 100_000]),
        "rm_interface": names,
        "rm_partitions": st.lists(names, max_size=3),
    },
)


@st.composite
def inventories(draw):
    """An inventory of hosts in groups within groups, variables everywhere."""
    hosts = draw(st.lists(names.map(lambda name: "h-" + name), min_size=1, max_size=5, unique=True))
    groups = draw(st.lists(names.map(lambda name: "g_" + name), max_size=4, unique=True))
    written = {"hosts": {name: draw(facts) | draw(variables) for name in hosts}, "vars": draw(variables)}
    children = {}
    for number, group in enumerate(groups):
        body = {
            "vars": draw(variables),
            "hosts": {name: {} for name in draw(st.lists(st.sampled_from(hosts), max_size=3))},
        }
        later = groups[number + 1 :]
        if later:
            body["children"] = {name: {} for name in draw(st.lists(st.sampled_from(later), max_size=2))}
        children[group] = body
    return {"all": {**written, "children": children}}


@settings(max_examples=examples(60))
@given(inventories())
def test_what_is_exported_is_read_back(written):
    hosts = to_hosts(parse(yaml.safe_dump(written), "hosts.yml"))
    for write, name in FORMATS:
        text = write(hosts)
        again = to_hosts(parse(text, name))
        assert again == hosts
        assert write(again) == text


def test_what_a_daemon_knows_is_read_back():
    """Hosts added by hand have no groups and no variables, and what their agents found has odd sizes."""
    sealed = seal(b"word", b"p")
    hosts = [
        Host("a", "east", "a"),
        Host("b", "east", "10.0.0.2", 2222, "op", 64, 540_000_000_001,
             (Gpu(0, "GPU-1", "H100", 85_000_000_000), Gpu(1, "GPU-2", "", 0)), 400_000_000_000, "ib0",
             ("train",), variables=(("word", sealed), ("group_names", encode(["gpu"])))),
    ]  # fmt: skip
    for write, name in FORMATS:
        text = write(hosts)
        plain, known = to_hosts(parse(text, name))
        assert plain == Host("a", "east", "a", variables=(("group_names", '["ungrouped"]'),))
        assert dict(known.variables) == dict(hosts[1].variables)
        assert (known.gpus, known.mem_bytes, known.nic_bps) == (
            hosts[1].gpus,
            hosts[1].mem_bytes,
            hosts[1].nic_bps,
        )
    opened = to_hosts(parse(as_yaml(hosts), "hosts.yml", Vault([b"p"])))
    assert decode(dict(opened[1].variables)["word"]) == "word"


AWKWARD = {
    "all": {
        "vars": {"x_site": "here"},
        "hosts": {"h1": {f"x_{number}": text for number, text in enumerate(ODD)}, "h2": None},
        "children": {
            "g_up": {
                "vars": {"x_site": "up"},
                "children": {"g_low": {"hosts": {"h1": None}, "vars": {"x_n": [1, {"a": None}]}}},
            },
            "g_one": {"hosts": {"h1": {"x_flag": True, "x_float": 1.5, "ansible_port": 2222}}},
        },
    }
}


@pytest.mark.parametrize(("write", "name"), FORMATS)
def test_ansible_reads_the_same(write, name, tmp_path):
    ansible = Path(sys.executable).with_name("ansible-inventory")
    if not ansible.exists():
        pytest.skip("ansible-core is not installed")
    hosts = to_hosts(parse(yaml.safe_dump(AWKWARD), "hosts.yml"))
    (tmp_path / name).write_text(write(hosts))
    argv = [ansible, "-i", tmp_path / name, "--list"]
    env = {
        "HOME": str(tmp_path),
        "PATH": "/usr/bin:/bin",
        "LC_ALL": "C.UTF-8",
        "ANSIBLE_LOCAL_TEMP": str(tmp_path),
    }
    done = subprocess.run(argv, capture_output=True, check=True, env=env, cwd=tmp_path)
    listed = json.loads(done.stdout)
    found = listed["_meta"]["hostvars"]
    for host in hosts:
        ours = {key: decode(text) for key, text in host.variables if key != "group_names"}
        theirs = {key: value for key, value in found[host.name].items() if key.startswith("x_")}
        assert theirs == {key: value for key, value in ours.items() if key.startswith("x_")}
        assert found[host.name]["ansible_user"] == host.login
        groups = {group for group, body in listed.items() if host.name in body.get("hosts", ())} - {
            "_meta",
            "all",
        }
        assert groups == set(decode(dict(host.variables)["group_names"]))
    assert found["h1"]["ansible_port"] == 2222


def test_what_the_agent_found_is_not_declared_by_an_export() -> None:
    host = Host("h1", "z", "h1", cpus=4, nic_bps=10**9, interface="eth0", found=("nic_bps", "interface"))
    (again,) = to_hosts(parse(as_yaml([host]), "hosts.yml"))
    assert (again.cpus, again.nic_bps, again.interface) == (4, 0, "")


def test_a_feature_that_the_gpus_have_is_not_declared_by_an_export() -> None:
    gpu = Gpu(0, "GPU-1", "NVIDIA A100", 1 << 30)
    host = Host("h1", "z", "h1", gpus=(gpu,), features=("a100", "fast", "nvidia"), found=("gpus",))
    (again,) = to_hosts(parse(as_yaml([host]), "hosts.yml"))
    assert (again.gpus, again.features) == ((), ("fast",))
