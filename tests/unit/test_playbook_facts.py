"""Facts out of what hosts say of themselves: by Ansible's names, in Ansible's shapes."""

from typing import Any

import pytest

from rm.playbook.facts import gather
from rm.playbook.facts.subset import chosen
from tests.steps_request import one
from tests.unit.playbook_world import World

RAW: dict[str, Any] = {
    "uname": ["Linux", "gpu01.example.com", "6.1.0-18-amd64", "#1 SMP", "x86_64"],
    "hostname": "gpu01.example.com",
    "fqdn": "gpu01.example.com",
    "os_release": 'PRETTY_NAME="Debian 12"\nID=debian\nVERSION_ID="12"\nVERSION_CODENAME=bookworm\n',
    "debian_version": "12.5\n",
    "meminfo": "MemTotal: 2048000 kB\nMemFree: 1024000 kB\nCached: 0 kB\nBuffers: 0 kB\n",
    "cpuinfo": "\n\n".join(
        f"processor\t: {i}\nvendor_id\t: Genuine\nmodel name\t: Fast\nphysical id\t: {i // 4}\n"
        "siblings\t: 4\ncpu cores\t: 2"
        for i in range(8)
    ),
    "cpus": 8,
    "cpus_usable": 6,
    "addresses": '[{"ifname":"lo","flags":["LOOPBACK","UP"],"mtu":65536,"addr_info":[{"family":"inet",'
    '"local":"127.0.0.1","prefixlen":8}]},{"ifname":"ib-0.1","flags":["UP"],"mtu":9000,"address":"aa:bb",'
    '"addr_info":[{"family":"inet","local":"10.1.0.5","prefixlen":16,"broadcast":"10.1.255.255"},'
    '{"family":"inet6","local":"fd00::5","prefixlen":64,"scope":"global"}]}]',
    "routes": '[{"dst":"default","gateway":"10.1.0.1","dev":"ib-0.1"}]',
    "routes6": '[{"dst":"default","gateway":"fd00::1","dev":"ib-0.1"}]',
    "speeds": {"ib-0.1": "100000"},
    "resolv": "nameserver 10.0.0.1\nsearch a.example b.example\noptions ndots:2 rotate\n# x\n",
    "mounts": [
        {"device": "/dev/sda1", "mount": "/", "fstype": "ext4", "options": "rw"}
        | {"statvfs": [4096, 4096, 1000, 500, 400, 64, 32]}
    ],
    "uuids": {"/dev/sda1": "1234"},
    "python_version": [3, 11, 2, "final", 0],
    "python_executable": "/usr/bin/python3",
    "init": "systemd",
    "managers": ["apt-get"],
    "user": "admin", "uid": 1000, "gid": 1001, "euid": 1000, "home": "/home/admin", "shell": "/bin/sh",
    "environment": {"LANG": "C"},
    "now": 1_700_000_000.25, "utc_offset_s": 3600, "timezone": "CET", "timezone_dst": "CEST",
    "uptime_s": 12.9,
    "loadavg": ["0.5", "0.25", "0.1"],
    "cmdline": "quiet root=/dev/sda1",
    "dmi": {"product_name": "R750", "sys_vendor": "Dell Inc."},
    "virtual": {"kvm": True},
    "selinux": {"enforce": "1", "policyvers": "33", "config_mode": "enforcing", "type": "targeted"},
    "local": {"site": "[Rack]\nrow=4\n", "own": '{"a": [1]}', "bad": "no facts at all"},
    "host_keys": {"ed25519": ["ssh-ed25519", "AAAA"]},
}  # fmt: skip


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("os_family", "Debian"), ("distribution", "Debian"), ("distribution_version", "12.5"),
        ("distribution_major_version", "12"), ("distribution_minor_version", "5"),
        ("distribution_release", "bookworm"), ("pkg_mgr", "apt"), ("service_mgr", "systemd"),
        ("hostname", "gpu01"), ("fqdn", "gpu01.example.com"), ("domain", "example.com"),
        ("nodename", "gpu01.example.com"), ("kernel", "6.1.0-18-amd64"), ("architecture", "x86_64"),
        ("processor_vcpus", 8), ("processor_count", 2), ("processor_cores", 2),
        ("processor_threads_per_core", 2), ("processor_nproc", 6), ("memtotal_mb", 2000),
        ("memory_mb.real.used", 1000), ("default_ipv4.address", "10.1.0.5"),
        ("default_ipv4.interface", "ib-0.1"), ("default_ipv4.gateway", "10.1.0.1"),
        ("default_ipv4.netmask", "255.255.0.0"), ("default_ipv6.gateway", "fd00::1"),
        ("all_ipv4_addresses", ["10.1.0.5"]), ("interfaces", ["lo", "ib-0.1"]), ("ib_0_1.mtu", 9000),
        ("ib_0_1.speed", 100000), ("dns.nameservers", ["10.0.0.1"]), ("dns.options.ndots", "2"),
        ("dns.options.rotate", True), ("dns.search", ["a.example", "b.example"]),
        ("mounts.0.size_available", 400 * 4096), ("mounts.0.uuid", "1234"), ("mounts.0.block_used", 600),
        ("python.version.minor", 11), ("python_version", "3.11.2"), ("user_id", "admin"),
        ("user_gid", 1001), ("user_shell", "/bin/sh"), ("env.LANG", "C"), ("date_time.date", "2023-11-14"),
        ("date_time.hour", "23"), ("date_time.epoch", "1700000000"), ("date_time.tz_offset", "+0100"),
        ("date_time.iso8601", "2023-11-14T22:13:20Z"), ("uptime_seconds", 12), ("loadavg.5m", 0.25),
        ("cmdline.quiet", True), ("cmdline.root", "/dev/sda1"), ("product_name", "R750"),
        ("system_vendor", "Dell Inc."), ("bios_date", "NA"), ("virtualization_role", "host"),
        ("selinux.status", "enabled"), ("selinux.mode", "enforcing"), ("local.site.Rack.row", "4"),
        ("local.own.a", [1]), ("ssh_host_key_ed25519_public", "AAAA"), ("lsb.codename", "bookworm"),
    ],
)  # fmt: skip
def test_facts(path: str, value: Any) -> None:
    found: Any = gather(RAW)
    for word in path.split("."):
        found = found[int(word)] if isinstance(found, list) else found[word]
    assert found == value


def test_each_fact_belongs_to_a_topic_of_gather_subset() -> None:
    """What no topic names counts as an interface."""
    found = gather(RAW)
    interfaces = {name.translate(str.maketrans("-.:", "___")) for name in found["interfaces"]}
    named = (
        chosen(found, ["!all", "network"], []).keys() & chosen(found, ["!all", "!min", "network"], []).keys()
    )
    addresses = {
        "interfaces", "default_ipv4", "default_ipv6", "all_ipv4_addresses", "all_ipv6_addresses",
        "locally_reachable_ips",
    }  # fmt: skip
    needed = chosen(found, ["!all", "!min", "platform", "distribution"], []).keys()
    assert named - needed == interfaces | addresses


def test_what_cannot_be_read_as_facts_is_said_in_its_place() -> None:
    assert "error loading facts" in gather(RAW)["local"]["bad"]


@pytest.mark.parametrize(
    ("release", "managers", "family", "distribution", "manager"),
    [
        (
            'ID="rocky"\nID_LIKE="rhel centos fedora"\nVERSION_ID="9.3"',
            ["dnf", "yum"],
            "RedHat",
            "Rocky",
            "dnf",
        ),
        ("ID=ubuntu\nID_LIKE=debian\nVERSION_ID=22.04", ["apt-get"], "Debian", "Ubuntu", "apt"),
        ('ID="opensuse-leap"\nID_LIKE="suse opensuse"', ["zypper"], "Suse", "openSUSE Leap", "zypper"),
        ('ID="centos"\nVERSION_ID="7"', ["yum"], "RedHat", "CentOS", "yum"),
        ("ID=alpine", ["apk"], "Alpine", "Alpine", "apk"),
    ],
)
def test_distributions(
    release: str, managers: list[str], family: str, distribution: str, manager: str
) -> None:
    found = gather({**RAW, "os_release": release, "managers": managers, "debian_version": ""})
    assert (found["os_family"], found["distribution"], found["pkg_mgr"]) == (family, distribution, manager)


def test_guests() -> None:
    docker = gather({**RAW, "virtual": {"dockerenv": True, "kvm": True}})
    assert (docker["virtualization_type"], docker["virtualization_role"]) == ("docker", "guest")
    kvm = gather({**RAW, "virtual": {}, "dmi": {"sys_vendor": "QEMU"}})
    assert (kvm["virtualization_type"], kvm["virtualization_role"]) == ("kvm", "guest")
    assert gather({**RAW, "virtual": {}, "dmi": {}})["virtualization_role"] == "NA"


def test_this_host_answers() -> None:
    found = gather(one("setup")["raw_facts"])
    assert found["system"] == "Linux"
    assert found["memtotal_mb"] > 0
    assert found["mounts"] is not None
    assert len(found["processor"]) > 0


def test_facts_of_modules_are_variables_by_their_own_names_and_stand_for_no_gathering() -> None:
    text = """
- hosts: all
  gather_facts: false
  tasks:
  - set_fact: {facts: mine}
  - service_facts:
  - debug: {msg: "{{ services.cron }} {{ ansible_facts.services.cron }} {{ ansible_services is defined }}"}
  - debug: {msg: "{{ facts }}"}
- hosts: all
  tasks:
  - debug: {msg: "{{ ansible_hostname }} {{ services.cron }} {{ hostvars.a.services.cron }}"}
- hosts: all
  tasks:
  - meta: clear_facts
  - debug: {msg: "{{ services is defined }}"}
- hosts: all
  tasks:
  - debug: {msg: "{{ ansible_hostname }}"}
"""

    def answer(host: str, step: Any) -> dict[str, Any]:
        if step.op == "service_facts":
            return {"ansible_facts": {"services": {"cron": "on"}}}
        return {"raw_facts": RAW}

    world = World(text, ("a",), answer=answer).run()
    said = [line.partition(": ")[2] for line in world.told() if line.startswith("debug")]
    assert said == ["on on False", "mine", "gpu01 on on", "False", "gpu01"]
    assert [what for _, what in world.log] == ["service_facts", "setup", "setup", "setup"]


def test_facts_may_be_used_by_the_first_task_and_are_new_after_gathering_again() -> None:
    text = """
- hosts: all
  tasks:
  - debug: {msg: "{{ ansible_hostname }} {{ ansible_user_id }} {{ ansible_user }}"}
  - command: rename
  - setup:
  - debug: {msg: "{{ ansible_facts.hostname }} {{ ansible_hostname }}"}
"""
    names = iter(["old", "new"])

    def answer(host: str, step: Any) -> dict[str, Any]:
        return {"raw_facts": {**RAW, "hostname": next(names)}} if step.op == "setup" else {}

    world = World(text, ("a",), answer=answer, inventory={"a": {"ansible_user": "rm"}}).run()
    assert [r.message for r in world.results["a"] if r.module == "debug"] == [
        f"old {RAW['user']} rm",
        "new new",
    ]
