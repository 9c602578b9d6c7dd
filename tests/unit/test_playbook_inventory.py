"""Inventories: Ansible's YAML and INI give the same hosts; errors name file and line."""

import pytest

from rm.core.model.host import Gpu
from rm.errors import ConfigError
from rm.playbook.inventory.hosts import decode, encode, to_hosts
from rm.playbook.inventory.inventory import parse

YAML = """\
all:
  vars: {ansible_user: admin, site: here}
  children:
    gpu:
      vars: {rm_partitions: [train, test], site: gpuland}
      hosts:
        gpu[01:03]: {rm_zone: east, rm_cpus: 8, rm_mem: 64G, rm_nic_mbps: 100}
      children:
        big:
          vars: {site: bigland}
          hosts:
            gpu02: {ansible_host: 10.0.0.2, ansible_port: 2222, rm_gpus: {count: 2, model: H100, mem: 80G}}
    login:
      hosts:
        login1: {ansible_ssh_private_key_file: /keys/id, flags: [a, 1], version: "1.10"}
"""
INI = """\
# the same, as INI
login1 ansible_ssh_private_key_file=/keys/id flags="['a', 1]" version="'1.10'"

[gpu]
gpu[01:03] rm_zone=east rm_cpus=8 rm_mem=64G rm_nic_mbps=100
[big]
gpu02 ansible_host=10.0.0.2 ansible_port=2222 rm_gpus="{'count': 2, 'model': 'H100', 'mem': '80G'}"
[gpu:children]
big
[login]
login1
[gpu:vars]
rm_partitions=['train', 'test']
site=gpuland
[big:vars]
site = bigland
[all:vars]
ansible_user=admin
site=here
"""


def test_yaml_and_ini_give_the_same_hosts():
    from_yaml = {h.name: h for h in to_hosts(parse(YAML, "hosts.yml"))}
    assert list(from_yaml) == ["gpu01", "gpu02", "gpu03", "login1"]
    second = from_yaml["gpu02"]
    assert (second.zone, second.address, second.port, second.login) == ("east", "10.0.0.2", 2222, "admin")
    assert second.gpus == (Gpu(0, "", "H100", 80 << 30), Gpu(1, "", "H100", 80 << 30))
    assert (second.cpus, second.mem_bytes, second.nic_bps) == (8, 64 << 30, 100_000_000)
    assert second.partitions == ("train", "test")
    variables = {h.name: {k: decode(v) for k, v in h.variables} for h in from_yaml.values()}
    assert [variables[h]["site"] for h in from_yaml] == ["gpuland", "bigland", "gpuland", "here"]
    assert variables["gpu02"]["group_names"] == ["big", "gpu"]
    assert variables["login1"]["flags"] == ["a", 1]
    assert variables["login1"]["ansible_ssh_private_key_file"] == "/keys/id"
    assert {h.name: h for h in to_hosts(parse(INI.replace("login1 ansible", "login1  ansible"), "hosts"))}[
        "gpu02"
    ] == second
    ini = parse(INI, "hosts.ini")
    assert ini.groups["gpu"] == ("gpu01", "gpu02", "gpu03")
    assert ini.groups["login"] == ("login1",)


@pytest.mark.parametrize("value", ["plain", "8", 8, True, "true", None, [1, "a"], {"a": 1.5}, "", '"q"'])
def test_variables_survive_the_core(value):
    assert decode(encode(value)) == value
    assert type(decode(encode(value))) is type(value)


@pytest.mark.parametrize(
    ("name", "text", "place", "hint"),
    [
        ("a.yml", "all:\n  hots:\n    a:\n", "a.yml:2:", "hosts"),
        ("a.yml", "all:\n  hosts:\n    a: {rm_cpus: many}\n", "a.yml:3:", "whole number"),
        ("a.yml", "all:\n  hosts:\n    a:\n    a:\n", "a.yml:3:", ""),
        ("a.yml", "all:\n  hosts:\n  - a\n", "a.yml:2:", "colon"),
        ("a.yml", "all:\n\thosts:\n", "a.yml:2:", ""),
        ("a.yml", "all: {hosts: {a: {rm_gpus: {modell: x}}}}", "a.yml:1:", "model"),
        ("a.ini", "[gpu]\na\n[gpu:childen]\n", "a.ini:3:", "children"),
        ("a.ini", "a b\n", "a.ini:1:", "name=value"),
        ("a.ini", "a[3:1]\n", "a.ini:1:", "[first:last]"),
        ("a.ini", "x\na v='1\n", "a.ini:2:", "quotation"),
        ("a.ini", "a rm_mem=lots\n", "a.ini:1:", "16G"),
        ("a.ini", "[a:children]\nb\n[b:children]\na\n", "a.ini:", ""),
        ("c.yml", "strict: false\nplugin: constructed\n", "c.yml:2:", "ansible-inventory -i c.yml"),
    ],
)
def test_errors_name_file_and_line(name, text, place, hint):
    with pytest.raises(ConfigError) as caught:
        to_hosts(parse(text, name))
    assert caught.value.what.startswith(place)
    assert hint in str(caught.value)
