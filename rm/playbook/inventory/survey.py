"""What a survey of new hosts found, as findings: what is wrong, and what to do. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from typing import Any

from rm.quick_dataclass import dataclass

CLOCK_MAX_US = 100_000  # slots are tens of milliseconds long; the agents measure what is left by themselves
FREE_BYTES = 64 << 20  # for the agents, and the logs of a few jobs
NEEDED = ("cpu", "memory", "pids", "freezer")
LISTED = 5  # names in a sentence
SHARED = ("nfs", "nfs4", "ceph", "lustre", "gpfs", "beegfs", "glusterfs", "fuse.glusterfs", "9p", "cifs")

TOPICS = ("reach", "root", "clock", "cgroup", "tools", "network", "names", "disk", "home", "users")


@dataclass(frozen=True, slots=True)
class Finding:
    """`topic` is one of TOPICS. `grave`: rm does not work there before it is mended; else something is
    missing that some jobs want."""

    topic: str
    host: str
    what: str
    mend: str
    grave: bool = False


def findings(
    surveys: Mapping[str, Mapping[str, Any]],
    offsets_us: Mapping[str, tuple[int, int]],
    uids: Mapping[str, int],
) -> list[Finding]:
    """`surveys` are the answers of the operation `survey` by host, `offsets_us` each clock's offset from the
    control machine's with its uncertainty, `uids` the control machine's users."""
    found: list[Finding] = []
    for host, survey in surveys.items():
        found += _of_host(host, survey, offsets_us.get(host, (0, 0)), uids)
    homes = Counter(tuple(one["home"]) for one in surveys.values())
    if len(homes) > 1:
        usual = homes.most_common(1)[0][0]
        found += [
            Finding("home", host, f"/home is {_home(one['home'])}, on most hosts it is {_home(usual)}.",
                    "Mount the same /home on all hosts, or deliver the output of jobs by rm (jobs.deliver).")
            for host, one in surveys.items() if tuple(one["home"]) != usual
        ]  # fmt: skip
    return found


def _of_host(
    host: str, survey: Mapping[str, Any], offset: tuple[int, int], uids: Mapping[str, int]
) -> list[Finding]:
    found: list[Finding] = []

    def add(topic: str, what: str, mend: str, grave: bool = False) -> None:
        found.append(Finding(topic, host, what, mend, grave))

    if not survey["root"] and survey.get("login") == "root":
        add(
            "root",
            f"The login is root by name, and has uid {survey['uid']} without root's rights, as in a lab of a "
            "user without subordinate ids.",
            "Run jobs as this user, as docs/tour.md says, or make the lab as a user with subordinate ids.",
        )
    elif not survey["root"]:
        add("root", "The login is not root, and sudo asks for a password.",
            "Let it use sudo without one, or run playbooks with --ask-become-pass.")  # fmt: skip
    away_us = abs(offset[0]) - offset[1]
    if away_us > CLOCK_MAX_US:
        add("clock", f"The clock is {offset[0] / 1e6:+.3f} s off the control machine's.",
            "Run chrony or systemd-timesyncd on both.", True)  # fmt: skip
    elif not survey["synchronized"]:
        add("clock", "The kernel's clock is not synchronised: it agrees with the control machine's for now.",
            "Run chrony or systemd-timesyncd; time-shifts of jobs need it.")  # fmt: skip
    if not survey["cgroup"]:
        add(
            "cgroup",
            "There are no control groups.",
            "Mount cgroup2 at /sys/fs/cgroup; limits of jobs need it.",
        )
    elif lacking := [name for name in NEEDED if name not in survey["controllers"]]:
        add("cgroup", f"The control groups (version {survey['cgroup']}) lack {', '.join(lacking)}.",
            "Enable them at boot (cgroup_enable=…); jobs are not limited in these.")  # fmt: skip
    for tool, package in (("tc", "iproute2"), ("nft", "nftables")):
        if tool not in survey["tools"]:
            add(
                "tools",
                f"The program {tool} is missing.",
                f"Install {package}, or run the playbook bootstrap.",
            )
    if survey["root"] and "sudo" not in survey["tools"]:
        add("tools", "The program sudo is missing.",
            "Install sudo if the daemon shall log in as an account that starts the agent and nothing else "
            "(rm_login_key); a daemon that logs in as root needs none.")  # fmt: skip
    if not survey["bpf"] and "devices" in survey["controllers"] and survey["cgroup"] == 2:
        add("cgroup", "The kernel has no BPF.", "GPUs are then fenced by a private /dev; see docs/fences.md.")
    if survey["bursts"] is False:  # None: only root may ask
        add("network", "The kernel takes no BPF programs for traffic: bursts of jobs are not ordered there.",
            "A kernel with CONFIG_BPF_SYSCALL and CONFIG_NET_CLS_BPF does.")  # fmt: skip
    for peer in survey["peers"]:
        if peer["problem"]:
            unresolved = "name resolution" in peer["problem"] or "not known" in peer["problem"]
            mend = f"Give {peer['name']} its address as ansible_host, or let the hosts resolve its name."
            if not unresolved:
                mend = "Open the network between the hosts: SSH, and ports 8621 to 8820."
            add("network", f"{peer['name']} is not reached: {peer['problem']}.", mend, True)
        elif peer["interface"] in ("", "lo"):
            add("network", f"The route to {peer['name']} does not leave the host.",
                "Give each host an address of its own as ansible_host; /etc/hosts may say 127.0.1.1.",
                True)  # fmt: skip
    nameless = [peer["name"] for peer in survey["peers"] if not peer["named"]]
    if nameless:
        add("names", f"Hosts are not known there by their names: {_some(nameless)}",
            "Put the names into DNS or /etc/hosts for scripts that meet at a host of $SLURM_JOB_NODELIST; "
            "$MASTER_ADDR is an address.")  # fmt: skip
    own_name, own = survey["own_name"]
    if not own:
        add("names", f"The host does not know its own name, {own_name}.",
            "Put it into its /etc/hosts with its address: "
            "torchrun and others look themselves up, and hang.")  # fmt: skip
    elif survey["peers"] and all(map(_is_loopback, own)):
        add("names", f"The host's own name, {own_name}, leads to {', '.join(own)}.",
            "Give it the host's address for programs that tell by it who they are, such as "
            "torchrun --rdzv-endpoint=$MASTER_ADDR; --node-rank=$SLURM_NODEID --master-addr=$MASTER_ADDR "
            "needs none.")  # fmt: skip
    ways = {peer["interface"] for peer in survey["peers"] if peer["interface"] not in ("", "lo")}
    if len(ways) > 1:
        add("network", f"Other hosts are reached by several interfaces: {', '.join(sorted(ways))}.",
            "Name the one for the jobs' traffic as rm_interface.")  # fmt: skip
    for path, free in survey["free_bytes"].items():
        if free < FREE_BYTES:
            add(
                "disk",
                f"{path} has {free >> 20} MiB free.",
                f"Make room: rm wants {FREE_BYTES >> 20} MiB.",
                True,
            )
    wrong = {name: uid for name, uid in survey["uids"].items() if uid is not None and uid != uids.get(name)}
    for name, uid in wrong.items():
        add("users", f"The user {name} has uid {uid}, on the control machine {uids.get(name)}.",
            "Give users the same uid everywhere, such as by a directory service.", True)  # fmt: skip
    absent = sorted(name for name, uid in survey["uids"].items() if uid is None)
    if absent:
        add("users", f"These users of the control machine are unknown: {_some(absent)}",
            "Make those that submit jobs; a job of an unknown user is refused.")  # fmt: skip
    return found


def _is_loopback(address: str) -> bool:
    try:
        return ip_address(address.partition("%")[0]).is_loopback
    except ValueError:  # a host says what it likes
        return False


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return f"{', '.join(names[:LISTED])}{more}."


def row(survey: Mapping[str, Any], offset: tuple[int, int]) -> tuple[str, ...]:
    """PYTHON, KERNEL, CLOCK, CGROUP, TOOLS, INTERFACE and HOME of a host."""
    ways = list(dict.fromkeys(p["interface"] for p in survey["peers"] if p["interface"])) or ["-"]
    cards = survey["interfaces"]
    shown = [f"{name} {cards[name]['mbps']}M" if cards.get(name, {}).get("mbps") else name for name in ways]
    tools = [tool for tool in survey["tools"] if tool != "sudo"]
    clock = f"{offset[0] / 1000:+.0f} ±{offset[1] / 1000:.0f} ms"
    return (survey["python"], survey["kernel"], clock, f"v{survey['cgroup']}" if survey["cgroup"] else "none",
            ",".join(tools) or "none", ",".join(shown), _home(survey["home"]))  # fmt: skip


def _home(mount: Sequence[str]) -> str:
    return f"{mount[1]} ({mount[0]})" if mount[1] in SHARED else "local"
