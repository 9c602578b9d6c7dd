"""The lab: real SSH to its hosts, links as asked for, and faults that happen."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from rm.errors import Conflict, NotFound
from rm.lab import Degrade, Lab
from rm.lab.spec import dscp_of
from tests.cluster import until

pytestmark = pytest.mark.lab
MakeLab = Callable[..., Lab]
ROOT = Path(__file__).parents[2]

SINK = """
import socket, sys, time
server = socket.create_server(("", 7001))
print("ready", flush=True)
link, _ = server.accept()
total = 0
while block := link.recv(1 << 16):
    total += len(block)
print(total, time.monotonic())
"""
SOURCE = """
import socket, sys, time
print(time.monotonic())
link = socket.socket()
link.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, int((sys.argv[3:] or "0")[0]) << 2)
link.connect((sys.argv[1], 7001))
print(link.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\\0").decode())
link.sendall(bytes(int(sys.argv[2])))
"""
RECEIVE = """
import socket
end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
end.setsockopt(socket.SOL_SOCKET, 33, 4 << 20)  # SO_RCVBUFFORCE: what waits for a processor is not lost
end.bind(("", 7002))
print("ready", flush=True)
seen = 0
while end.recv(2000) != b"end":
    seen += 1
print(seen)
"""
SEND = """
import socket, sys, time
end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
to = (sys.argv[1], 7002)
for n in range(int(sys.argv[2])):
    end.sendto(b"x" * 100, to)
    time.sleep(0.0005)
for _ in range(100):  # one of them arrives
    time.sleep(0.01)
    end.sendto(b"end", to)
"""
CONNECT = """
import socket, sys, time
best = 1e9
for _ in range(10):
    begin = time.monotonic()
    socket.create_connection((sys.argv[1], 22)).close()
    best = min(best, time.monotonic() - begin)
print(best * 1e3)
"""


def ssh(lab: Lab, host: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        lab.ssh_command(host, words),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )


def python(lab: Lab, host: str, program: str, *words: str) -> str:
    done = lab.exec(host, ["python3", "-c", program, *words])
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def listening(lab: Lab, host: str, program: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        lab.exec_command(host, ["python3", "-c", program]), stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def address(lab: Lab, host: str) -> str:
    return lab.host(host).address


def throughput_mbps(lab: Lab, source: str, target: str, size: int) -> float:
    """From before the first byte is sent to when the last has come: who stands still meanwhile makes it less.
    The hosts have the machine's one clock."""
    with listening(lab, target, SINK) as sink:
        begin_s, _ = python(lab, source, SOURCE, address(lab, target), str(size)).split()
        assert sink.stdout is not None
        total, end_s = sink.stdout.read().split()
        return int(total) * 8 / (float(end_s) - float(begin_s)) / 1e6


def arrived(lab: Lab, source: str, target: str, count: int) -> float:
    """The share of datagrams that arrive."""
    with listening(lab, target, RECEIVE) as receiver:
        python(lab, source, SEND, address(lab, target), str(count))
        assert receiver.stdout is not None
        return int(receiver.stdout.read()) / count


def throughput_between(lab: Lab, source: str, target: str, least_mbps: float, most_mbps: float) -> None:
    """No try is faster than the link; on a busy machine some may be slower."""

    def reaches() -> bool:
        found = throughput_mbps(lab, source, target, round(least_mbps * 100_000))
        assert found < most_mbps
        return found > least_mbps

    until(reaches, f"{source} sends {least_mbps} Mbit/s to {target}")


def round_trip_between(lab: Lab, source: str, target: str, least_ms: float, most_ms: float) -> None:
    """No try is shorter than the delay; on a busy machine all of ten may be longer."""

    def reaches() -> bool:
        found = connect_ms(lab, source, target)
        assert found > least_ms
        return found < most_ms

    until(reaches, f"{target} answers {source} within {most_ms} ms")


def connect_ms(lab: Lab, source: str, target: str) -> float:
    """The shortest of ten TCP handshakes: one round trip."""
    return float(python(lab, source, CONNECT, address(lab, target)))


# --- what a host is -------------------------------------------------------------------------------


def test_hosts_are_machines_of_their_own(lab: Lab) -> None:
    boots = set()
    for host in lab.hosts:
        done = ssh(
            lab,
            host.name,
            "hostname; id -u; cat /proc/sys/kernel/random/boot_id; ls /proc | grep -c '^[0-9]'",
        )
        assert done.returncode == 0, done.stderr
        name, user, boot, processes = done.stdout.split()
        assert (name, user) == (host.name, "0")
        assert int(processes) < 30, "only its own processes"
        boots.add(boot)
    assert len(boots) == len(lab.hosts)


def test_what_a_host_writes_stays_on_it(lab: Lab, tmp_path: Path) -> None:
    mark = f"rm-lab-test-{os.getpid()}"
    places = [
        "/etc",
        "/home",
        "/var/lib",
        "/opt",
        "/srv",
        "/usr/local/bin",
        "/root",
        "/tmp",
        "/run",
        "/dev/shm",
        str(ROOT),
    ]
    if ROOT.is_relative_to("/root") or ROOT.is_relative_to("/tmp"):
        places.pop()  # a host's own, empty
    script = " && ".join(f"echo mine > {place}/{mark}" for place in places)
    assert ssh(lab, "z1h1", script).returncode == 0
    for place in places:
        assert not Path(place, mark).exists(), place
        assert ssh(lab, "z1h2", f"test -e {place}/{mark}").returncode == 1, place
    assert ssh(lab, "z1h1", "useradd -m rmjob && su rmjob -c 'touch ~/here'").returncode == 0
    assert "rmjob" not in Path("/etc/passwd").read_text()


def test_kernel_settings_of_the_machine_are_out_of_reach(lab: Lab) -> None:
    assert ssh(lab, "z1h1", "echo 1 > /proc/sys/vm/swappiness").returncode != 0
    assert ssh(lab, "z1h1", "echo 0 > /proc/sys/net/ipv4/ip_forward").returncode == 0


def test_cgroup_kill_works_inside(lab: Lab) -> None:
    if lab.exec("z1h1", ["grep", "-q", "cgroup2", "/proc/self/mounts"]).returncode != 0:
        pytest.skip("this machine has no writable cgroup v2")
    script = """
        set -e
        group=$(awk '$3 == "cgroup2" {print $2}' /proc/self/mounts)/job
        mkdir $group
        sh -c "echo \\$\\$ > $group/cgroup.procs; exec sleep 1000" & child=$!
        while ! grep -q . $group/cgroup.procs; do :; done
        echo 1 > $group/cgroup.kill
        wait $child || echo code $?
        rmdir $group
    """
    done = ssh(lab, "z1h1", script)
    assert done.stdout == "code 137\n", done.stderr


def test_the_inventory_describes_the_hosts(lab: Lab) -> None:
    tree = yaml.safe_load(lab.inventory.read_text())
    found = {
        name: host for group in tree["all"]["children"].values() for name, host in group["hosts"].items()
    }
    assert {name: host["ansible_host"] for name, host in found.items()} == {
        h.name: h.address for h in lab.hosts
    }
    assert list(tree["all"]["children"]) == ["zone1", "zone2"]
    uuids = [gpu["uuid"] for host in found.values() for gpu in host["rm_gpus"]]
    assert len(set(uuids)) == 4 * lab.spec.gpus_per_host


# --- what its network is --------------------------------------------------------------------------


def test_rates_delay_and_loss_are_as_asked_for(make_lab: MakeLab) -> None:
    lab = make_lab(
        zones=2,
        hosts=6,
        link_mbps=80,
        zone_delay_ms=15,
        zone_loss_pct=10,
        congestion_control="cubic",
        degrade={"z1h2": Degrade(rate_mbps=20), "z2h2": Degrade(loss_pct=20), "z2h3": Degrade(delay_ms=25)},
    )
    before = lab.link_bytes("z1h3")[0]
    assert throughput_mbps(lab, "z1h1", "z1h3", 8_000_000) < 80
    assert 8_000_000 < lab.link_bytes("z1h3")[0] - before < 9_000_000
    throughput_between(lab, "z1h1", "z1h3", 60, 80)
    throughput_between(lab, "z1h2", "z1h3", 15, 20)
    throughput_between(lab, "z1h1", "z1h2", 15, 20)
    round_trip_between(lab, "z1h1", "z1h3", 0, 15)
    round_trip_between(lab, "z1h1", "z2h1", 30, 50)
    round_trip_between(lab, "z2h1", "z2h3", 50, 70)
    assert arrived(lab, "z1h1", "z1h3", 500) == 1
    # six standard deviations of a binomial of 2,000 trials: 0.054 at 20 %, 0.04 at 10 %
    assert abs(arrived(lab, "z2h2", "z2h1", 2000) - 0.8) < 0.054
    assert abs(arrived(lab, "z2h1", "z2h2", 2000) - 0.8) < 0.054
    assert abs(arrived(lab, "z1h1", "z2h1", 2000) - 0.9) < 0.04
    nominal = yaml.safe_load(lab.inventory.read_text())["all"]["children"]["zone1"]["hosts"]["z1h2"]
    assert nominal["rm_nic_mbps"] == 80, "that a link is worse than declared is for rm to find out"


def test_a_leaf_sends_over_the_spine_of_the_code_point(make_lab: MakeLab) -> None:
    lab = make_lab(zones=1, hosts=5, leaves=3, spines=2, uplink_mbps=50)
    assert [host.leaf for host in lab.hosts] == ["leaf1", "leaf1", "leaf2", "leaf2", "leaf3"]
    declared = yaml.safe_load(lab.inventory.read_text())["all"]["children"]["zone1"]["hosts"]
    assert declared["z1h5"]["rm_leaf"] == "leaf3"

    def over(spine: int) -> int:
        up, down = lab.uplink_bytes(1, spine)[0], lab.uplink_bytes(2, spine)[1]
        assert abs(up - down) < 100_000
        return up

    def send(target: str, dscp: int) -> None:
        with listening(lab, target, SINK):
            python(lab, "z1h1", SOURCE, address(lab, target), "2000000", str(dscp))

    for spine in (1, 2):
        before = over(1), over(2)
        send("z1h3", dscp_of(spine - 1))
        grown = over(1) - before[0], over(2) - before[1]
        assert grown[spine - 1] > 2_000_000
        assert grown[2 - spine] < 100_000
    before = over(1) + over(2)
    send("z1h2", 0)
    assert over(1) + over(2) - before < 100_000, "below one leaf nothing takes a spine"
    send("z1h3", 0)
    assert over(1) + over(2) - before > 2_000_000, "without a code point a hash chooses one"
    throughput_between(lab, "z1h1", "z1h3", 35, 50)
    throughput_between(lab, "z1h1", "z1h2", 60, 100)


def test_congestion_control_is_the_one_asked_for(make_lab: MakeLab) -> None:
    lab = make_lab(zones=1, hosts=2, congestion_control="reno")
    with listening(lab, "z1h2", SINK):
        assert python(lab, "z1h1", SOURCE, address(lab, "z1h2"), "1000").split()[1] == "reno"


# --- faults ---------------------------------------------------------------------------------------


def test_a_crashed_host_boots_from_its_disk(lab: Lab) -> None:
    before = lab.status("z1h1").boot_id
    assert (
        ssh(lab, "z1h1", "echo kept > /var/lib/kept; echo lost > /tmp/lost; echo lost > /run/lost").returncode
        == 0
    )
    lab.crash("z1h1")
    assert lab.status("z1h1").state == "down"
    with pytest.raises(Conflict, match="not running"):
        lab.crash("z1h1")
    lab.boot("z1h1")
    done = ssh(lab, "z1h1", "cat /proc/sys/kernel/random/boot_id /var/lib/kept; ls /tmp/lost /run/lost")
    assert done.stdout.split() == [lab.status("z1h1").boot_id, "kept"]
    assert lab.status("z1h1").boot_id != before


def test_a_host_that_shuts_itself_down_can_be_booted(lab: Lab) -> None:
    lab.exec("z2h1", ["kill", "1"])
    until(lambda: lab.status("z2h1").state == "down", "the host is down")
    lab.boot("z2h1")
    assert ssh(lab, "z2h1", "hostname").stdout == "z2h1\n"


def test_a_frozen_host_acknowledges_but_does_not_answer(lab: Lab) -> None:
    lab.freeze("z1h2")
    assert lab.status("z1h2").state == "frozen"
    probe = "import socket,sys; s=socket.create_connection((sys.argv[1],22)); s.settimeout(0.5); s.recv(4)"
    done = lab.exec("z1h1", ["python3", "-c", probe, address(lab, "z1h2")])
    assert b"timed out" in done.stderr, "the handshake is the kernel's, the banner sshd's"
    lab.thaw("z1h2")
    assert ssh(lab, "z1h2", "true").returncode == 0


def test_a_cut_is_silent_and_heals(lab: Lab) -> None:
    probe = "import socket,sys; socket.create_connection((sys.argv[1],22),timeout=float(sys.argv[2]))"
    lab.cut("z1h2")
    lab.cut("z1h2")
    for source, target in (("z1h1", "z1h2"), ("z1h2", "z1h1"), ("z2h1", "z1h2")):
        done = lab.exec(source, ["python3", "-c", probe, address(lab, target), "0.5"])
        # nobody says no: a kernel that has looked for its neighbour for three seconds gives up by itself
        assert b"timed out" in done.stderr or b"No route to host" in done.stderr, done.stderr
    lab.crash("z1h2")
    lab.boot("z1h2")
    lab.heal("z1h2")
    assert lab.exec("z1h1", ["python3", "-c", probe, address(lab, "z1h2"), "60"]).returncode == 0


def test_sshd_dies_and_comes_back_and_a_changed_key_is_refused(lab: Lab) -> None:
    for _ in range(5):  # at once: none that is dying takes another connection
        lab.kill_sshd("z2h2")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((address(lab, "z2h2"), 22), 60)
        lab.start_sshd("z2h2")
    lab.kill_sshd("z2h2")
    assert "refused" in ssh(lab, "z2h2", "true").stderr
    lab.start_sshd("z2h2")
    assert ssh(lab, "z2h2", "true").returncode == 0
    lab.change_host_key("z2h2")
    assert "verification failed" in ssh(lab, "z2h2", "true").stderr
    with pytest.raises(NotFound, match="no host z9h9"):
        lab.crash("z9h9")


def test_a_full_disk_is_that_host_s_alone(make_lab: MakeLab) -> None:
    lab = make_lab(zones=1, hosts=2, disk_mb=16)
    lab.fill_disk("z1h1")
    assert "No space left" in ssh(lab, "z1h1", "echo x > /var/lib/x").stderr
    assert ssh(lab, "z1h2", "echo x > /var/lib/x").returncode == 0
    lab.free_disk("z1h1")
    assert ssh(lab, "z1h1", "echo x > /var/lib/x").returncode == 0
