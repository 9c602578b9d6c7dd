"""Hosts whose inventory says only their names and addresses: the agents find the rest."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster import Cluster, until
from tests.e2e.conftest import MakeCluster

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster, tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    return on_plain_inventory(make_cluster(zones=1, hosts=3), tmp_path_factory.mktemp("inventory"))


def on_plain_inventory(made: Cluster, folder: Path) -> Cluster:
    """The cluster, with its hosts imported again from an inventory that says names and addresses only."""
    plain = folder / "hosts.yml"
    plain.write_text(plain_inventory(made.lab.inventory))
    for name in made.hosts():
        made.rmx("host", "remove", name)
    made.rmx("host", "import", str(plain))
    made.all_up()
    return made


def plain_inventory(path: Path) -> str:
    """The lab's inventory without what its hosts can tell by themselves."""

    def plain(group: Any) -> Any:
        if not isinstance(group, dict):
            return group
        return {name: plain(value) for name, value in group.items() if not name.startswith("rm_")}

    return yaml.safe_dump(plain(yaml.safe_load(path.read_text())))


def test_the_interface_to_the_other_hosts_is_found(cluster: Cluster) -> None:
    for host in cluster.hosts().values():
        card = host["nics"][0]
        assert (host["interface"], card["name"], card["address"]) == ("eth0", "eth0", host["address"])
        assert card["routes"] == 2
        assert card["mtu_bytes"] >= 1280
        assert {"interface", "nic_bps", "cpus", "mem_bytes"} <= set(host["found"])
        assert host["cpus"] > 0
        assert host["mem_bytes"] > 0


def test_jobs_on_several_hosts_are_told_that_interface(cluster: Cluster) -> None:
    script = "echo $NCCL_SOCKET_IFNAME $GLOO_SOCKET_IFNAME $MASTER_ADDR"
    job = cluster.wait(cluster.post_job(script, ntasks=2, tasks_per_host=1))
    addresses = {name: host["address"] for name, host in cluster.hosts().items()}
    assert job["state"] == "COMPLETED"
    for rank in (0, 1):
        assert cluster.log(job["id"], rank).split() == ["eth0", "eth0", addresses[job["hosts"][0]]]


SWITCHED = [["addr add 10.201.7.1/24"], ["addr add 10.201.7.2/24"]]
ROUTED = [  # each end is the gateway of the other's network
    ["addr add 10.202.1.1/24", "addr add 10.202.2.254/32", "route add 10.202.0.0/16 via 10.202.1.254"],
    ["addr add 10.202.2.1/24", "addr add 10.202.1.254/32", "route add 10.202.0.0/16 via 10.202.2.254"],
]


def add_rail(cluster: Cluster, name: str, commands: dict[str, list[str]]) -> None:
    """A second link between two hosts, which the daemon hears of at their next hello."""
    ends = [f"{cluster.lab.status(host).init}" for host in commands]
    pair = ["type", "veth", "peer", "name", name, "netns", ends[1]]
    subprocess.run(["ip", "link", "add", name, "netns", ends[0], *pair], check=True)

    def do(host: str, words: str) -> None:
        done = cluster.lab.exec(host, ["ip", *words.split()])
        assert done.returncode == 0, done.stderr

    for host in commands:
        do(host, f"link set {name} up")
    for host, words in commands.items():
        for command in words:
            do(host, f"{command} dev {name}")
    cluster.restart()
    cluster.all_up()


def test_jobs_are_told_the_rails_that_their_hosts_share(cluster: Cluster) -> None:
    first, second, third = cluster.hosts()
    add_rail(cluster, "rail1", dict(zip((first, second), SWITCHED, strict=True)))
    add_rail(cluster, "rail2", dict(zip((second, third), ROUTED, strict=True)))
    nics = {nic["name"]: nic for nic in cluster.hosts()[second]["nics"]}
    assert (nics["rail1"]["network"], nics["rail1"]["routed"]) == ("10.201.7.0/24", "")
    assert (nics["rail2"]["network"], nics["rail2"]["routed"]) == ("10.202.1.0/24", "10.202.0.0/16")
    for names, nccl, gloo in (
        ([first, second], "=eth0,rail1", "eth0,rail1"),
        ([second, third], "=eth0,rail2", "eth0,rail2"),
        ([first, third], "eth0", "eth0"),
    ):
        spec = {"ntasks": 2, "tasks_per_host": 1, "hosts_only": names}
        job = cluster.wait(cluster.post_job("echo $NCCL_SOCKET_IFNAME $GLOO_SOCKET_IFNAME", **spec))
        for rank in (0, 1):
            assert cluster.log(job["id"], rank).split() == [nccl, gloo]


def test_what_is_declared_no_more_is_found_again(cluster: Cluster) -> None:
    def told(host: dict[str, Any]) -> dict[str, Any]:
        return {name: host[name] for name in ("cpus", "nic_bps", "interface", "nics", "found")}

    name = next(iter(cluster.hosts()))
    before = told(cluster.hosts()[name])
    plain = yaml.safe_load(plain_inventory(cluster.lab.inventory))
    declared = yaml.safe_load(plain_inventory(cluster.lab.inventory))
    variables = _host_of(declared, name)
    variables |= {"rm_cpus": before["cpus"] + 1, "rm_nic_mbps": 7, "rm_interface": "other0"}
    for inventory, same in ((declared, False), (plain, True)):
        path = cluster.directory / "changed.yml"
        path.write_text(yaml.safe_dump(inventory))
        cluster.rmx("host", "import", path)
        until(lambda same=same: (told(cluster.hosts()[name]) == before) is same, f"as before: {same}")  # type: ignore[misc]
    cluster.all_up()


def _host_of(group: dict[str, Any], name: str) -> dict[str, Any]:
    """The variables of this host in an inventory, to be changed."""
    for key, value in group.items():
        if isinstance(value, dict):
            found: dict[str, Any] = value if key == name else _host_of(value, name)
            if found:
                return found
    return {}


def test_the_host_is_shown_with_its_interfaces(cluster: Cluster) -> None:
    shown = cluster.rmx("host", "show", next(iter(cluster.hosts())))
    assert "Interface: eth0 (found)" in shown
    assert "eth0" in cluster.rmx("hosts")
    exported = cluster.rmx("host", "export", "--json")
    assert "rm_interface" not in json.loads(exported)["inventory"]


def test_a_machine_is_led_under_one_name(cluster: Cluster) -> None:
    """A row of the inventory was copied, or its host renamed: the jobs that run there go on."""
    name, host = next(iter(cluster.hosts().items()))
    job = cluster.post_job("exec sleep 600", hosts_only=[name])
    cluster.all_started(job)
    login = f"ansible_host={host['address']} ansible_ssh_private_key_file={cluster.lab.directory}/id_ed25519"
    (cluster.directory / "second.ini").write_text(f"second {login}\n")
    cluster.rmx("host", "import", cluster.directory / "second.ini")

    def known_by_another() -> bool:
        second = cluster.hosts()["second"]
        return second["state"] != "UP" and f"this cluster knows as {name}" in str(second["reason"])

    try:
        until(known_by_another, "the second name is refused")
        cluster.restart()
        until(known_by_another, "the second name is refused by the next leader")
        cluster.host_state(name, "UP")
        assert cluster.job(job)["state"] == "RUNNING"
        cluster.client.delete("jobs", job)
        cluster.wait(job)
        cluster.rmx("host", "remove", name)
        cluster.host_state("second", "UP")
    finally:
        cluster.rmx("host", "remove", "second")
        (cluster.directory / "plain.yml").write_text(plain_inventory(cluster.lab.inventory))
        cluster.rmx("host", "import", cluster.directory / "plain.yml")
        cluster.all_up()
