"""What an ordinary user tries on the hosts, against others' files, devices, memory and processes there."""

from __future__ import annotations

import json
import os
import pwd
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rm.lab import Lab
from tests.cluster import Cluster, until
from tests.e2e.conftest import MakeCluster
from tests.stand_in_gpus import CLOSED, NVIDIA, OPENED, UVM, cdi, nvidia

pytestmark = pytest.mark.lab

OWNER, STRANGER, MISMATCHED = "nobody", "daemon", "games"
SECRET = "hunter2-Qm3vB"
NODES = {"nvidia0": (NVIDIA, 0), "nvidia1": (NVIDIA, 1), "nvidiactl": (NVIDIA, 255), "nvidia-uvm": (UVM, 0)}
CONTROLLERS = ("memory", "pids")
# podman's first process of a container is catatonit, which packages put in one of these places
CATATONIT = ("/usr/libexec/podman/catatonit", "/usr/libexec/catatonit/catatonit", "/usr/bin/catatonit")
CONTAINERS = (
    all(map(shutil.which, ("podman", "crun", "newuidmap", "busybox")))
    and any(map(os.path.exists, CATATONIT))
    and b"/ld-linux" not in Path(shutil.which("busybox") or os.devnull).read_bytes()[:4096]
)
# a folder of the user's, with places for what podman mounts
IMAGE = """
home=/home/USER; image=$home/image
for of in /etc/subuid /etc/subgid; do sed -i /^USER:/d $of; echo USER:300000:65536 >>$of; done
sed -i 's,^\\(USER:[^:]*:[^:]*:[^:]*:[^:]*:\\)[^:]*,\\1/home/USER,' /etc/passwd
mkdir -p $image; cd $image; mkdir -p bin dev etc proc run sys tmp there var/tmp
cp $(command -v busybox) bin
for name in cat echo id ls mount sh sleep; do ln -sf busybox bin/$name; done
ln -sf /proc/mounts etc/mtab; touch etc/hosts etc/resolv.conf
echo root:x:0:0::/:/bin/sh >etc/passwd; echo root:x:0: >etc/group
chown -R USER: $home
"""


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two hosts with two stand-in GPUs each; the first has what controllers this machine has in version 1."""
    settings = {"fence": {"processes": 40}, "jobs": {"deliver": "", "max_losses": 2}}
    cluster = make_cluster(settings, zones=1, hosts=2, gpus_per_host=2)
    first, second = names(cluster)
    for host in (first, second):
        uuids = [gpu["uuid"] for gpu in cluster.hosts()[host]["gpus"]]
        give_gpus(cluster.lab, host, tmp_path_factory.mktemp("gpus"), uuids)
    # somebody else has his name on the second host
    run(cluster.lab, second, f"sed -i 's/^{MISMATCHED}:x:[0-9]*:/{MISMATCHED}:x:4242:/' /etc/passwd")
    with controllers(cluster.lab, first):
        cluster.restart()  # the agents look again at what their hosts can do
        cluster.all_up()
        yield cluster
        cluster.tidy()
        cluster.stop()


@pytest.fixture(autouse=True)
def tidy(cluster: Cluster) -> Iterator[None]:
    yield
    cluster.tidy()


def names(cluster: Cluster) -> list[str]:
    return sorted(cluster.hosts())


def run(lab: Lab, host: str, script: str) -> str:
    done = lab.exec(host, ["sh", "-ec", script])
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


def give_gpus(lab: Lab, host: str, root: Path, uuids: list[str]) -> None:
    """The kernel's words about GPUs, and device files without a driver behind them."""
    nvidia(root, [0, 1], uuids=uuids)
    run(lab, host, "mkdir -p /run/gpus")
    for path in (root / "proc").rglob("*"):
        if path.is_file():
            at = f"/run/gpus/{path.relative_to(root / 'proc')}"
            done = lab.exec(host, ["sh", "-ec", f"mkdir -p $(dirname {at}); cat >{at}"], path.read_bytes())
            assert done.returncode == 0
    commands = ["mount --bind /run/gpus/devices /proc/devices", "mount --bind /run/gpus/driver /proc/driver"]
    commands += [f"mknod -m 666 /dev/{name} c {major} {minor}" for name, (major, minor) in NODES.items()]
    run(lab, host, "\n".join(commands))


@contextmanager
def controllers(lab: Lab, host: str) -> Iterator[None]:
    """Groups of this machine's version 1 controllers as a host's own; taken away afterwards."""
    name, made = f"rm-test-{os.getpid()}-{host}", []
    for controller, ours in own_groups():
        mount = Path("/sys/fs/cgroup", controller)
        home = Path(f"{mount}{ours}", name)
        if not (mount / "cgroup.procs").exists():
            continue
        home.mkdir()
        script = f"""
            mkdir -p {mount} /run/v1; mount -t cgroup -o {controller} none /run/v1
            mount --bind $(find /run/v1 -type d -name {name} | head -1) {mount}; umount /run/v1
        """
        if lab.exec(host, ["sh", "-ec", script]).returncode:
            home.rmdir()
        else:
            made.append((mount, home))
    try:
        yield
    finally:
        for mount, home in made:
            lab.exec(host, ["umount", str(mount)])
            for folder, _, _ in os.walk(home, topdown=False):
                os.rmdir(folder)


def own_groups() -> list[tuple[str, str]]:
    """(controller, our own group in its hierarchy) of version 1."""
    found = (line.split(":") for line in Path("/proc/self/cgroup").read_text().splitlines())
    return [(name, path.rstrip("/")) for _, name, path in found if name in CONTROLLERS]


# files


def test_no_output_gives_away_a_file_of_root(cluster: Cluster) -> None:
    host = names(cluster)[0]
    for path in ("/etc/shadow", "/etc/ssh/ssh_host_ed25519_key", "/var/lib/rm/epoch"):
        for stream in ("output", "error"):
            output = "/var/lib/rm/jobs/%j.1/../../../../.." + path
            job = cluster.wait(
                cluster.post_job("true", user=OWNER, hosts_only=[host], **{stream: output}), wait_s=90
            )
            assert job["state"] == "FAILED"
            assert "cannot be written" in job["reason"]["message"]
            assert cluster.said(job["id"], stream=stream[:3]) == ""


def test_no_output_gives_away_the_environment_of_anothers_task(cluster: Cluster) -> None:
    host = names(cluster)[0]
    theirs = cluster.post_job("exec sleep 600", user=OWNER, env=[["TOKEN", SECRET]], hosts_only=[host])
    cluster.all_started(theirs)
    look = f"grep -ls {SECRET} /proc/[0-9]*/environ | head -1"
    environ = until(lambda: run(cluster.lab, host, look).strip(), "its environment is there to be read")
    script = (
        f"ln -sfn {environ} /var/tmp/thief.$RM_JOB_ID\necho swapped >/var/tmp/swapped.$RM_JOB_ID; sleep 600"
    )
    job = cluster.post_job(script, user=STRANGER, output="/var/tmp/thief.%j", hosts_only=[host])
    until(lambda: cluster.read(host, f"/var/tmp/swapped.{job}"), "the output is a link by now")
    cluster.all_started(job)
    with pytest.raises(Exception, match="cannot be read"):
        cluster.log(job)


# the agent's life


def test_no_report_takes_a_host_down(cluster: Cluster) -> None:
    host = names(cluster)[0]
    for bomb in ("print('[' * 100000)", "open(1, 'wb', closefd=False).truncate(1 << 40)"):
        script = f'python3 -c "{bomb}" >>"$RM_REPORTS"; echo laid; exec sleep 600'
        job = cluster.post_job(script, user=STRANGER, hosts_only=[host])
        until(lambda j=job: cluster.said(j) == "laid\n", "it is laid")
        other = cluster.wait(cluster.post_job("echo fine", user=OWNER, hosts_only=[host]))
        assert other["state"] == "COMPLETED"
        assert cluster.hosts()[host]["state"] == "UP"
        cluster.client_of(STRANGER).delete("jobs", job)
        assert cluster.wait(job)["state"] == "CANCELLED"


# devices


def opened(cluster: Cluster, gpus: int, running: int = 0) -> dict[str, bool]:
    """Which device files a job with so many GPUs can open, whatever it says it sees."""
    script = "export CUDA_VISIBLE_DEVICES=0,1\n"
    script += "\n".join(f"(: <>/dev/{name}) 2>&1 | sed 's/^/{name} /'" for name in NODES)
    script += "\necho over; sleep 600" if running else "\necho over"
    host = names(cluster)[0]
    job = cluster.post_job(script, user=STRANGER, gpus_per_task=gpus, hosts_only=[host])
    until(lambda: "over\n" in cluster.said(job), "it has tried")
    lines = cluster.log(job).splitlines()
    found = {}
    for name in NODES:
        (line,) = [line for line in lines if line.startswith(name + " ")]
        assert (OPENED in line) != (CLOSED in line), line
        found[name] = OPENED in line
    return found


def test_a_job_opens_no_gpu_but_its_own(cluster: Cluster) -> None:
    assert not any(opened(cluster, 0).values())
    theirs = cluster.post_job("exec sleep 600", user=OWNER, gpus_per_task=1, hosts_only=names(cluster)[:1])
    cluster.all_started(theirs)
    (taken,) = cluster.job(theirs)["tasks"][0]["gpus"]
    free = 1 - taken
    mine = opened(cluster, 1)
    assert mine == {f"nvidia{taken}": False, f"nvidia{free}": True, "nvidiactl": True, "nvidia-uvm": True}


# containers


def nothing_left(cluster: Cluster, host: str) -> None:
    """No process of the user's; who has ended is seen until the host's first process has taken note of it."""
    look = f"grep -l '^Uid:.*\\b{pwd.getpwnam(STRANGER).pw_uid}\\b' /proc/[0-9]*/status || true"
    until(lambda: run(cluster.lab, host, look) == "", f"no process of {STRANGER} is left on {host}")


@pytest.mark.skipif(not CONTAINERS, reason="needs podman, catatonit and a static busybox")
def test_a_container_has_its_users_rights_and_ends_with_its_job(cluster: Cluster) -> None:
    host = names(cluster)[1]
    run(cluster.lab, host, IMAGE.replace("USER", STRANGER))
    script = """
        (echo x >/there/etc/x) && echo written; (: <>/there/dev/nvidia0) && echo opened
        cat /there/etc/shadow && echo read; mount -t tmpfs x /tmp && echo mounted
        id -u; echo tried
        exec sleep 54321
    """
    wanted = {"container_image": f"/home/{STRANGER}/image", "container_mounts": "/:/there:rw"}
    job = cluster.post_job(script, user=STRANGER, hosts_only=[host], **wanted)

    def over() -> bool:
        found = cluster.job(job)
        assert found["ended_us"] is None, (found["reason"], cluster.said(job))
        return "tried" in cluster.said(job)

    until(over, "it has tried")
    said = [line for line in cluster.log(job).splitlines() if " " not in line]
    assert said == ["0", "tried"]  # root inside, and nothing more outside
    look = "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"
    until(lambda: "sleep 54321" in run(cluster.lab, host, look), "its last program runs")
    cluster.client_of(STRANGER).delete("jobs", job, signal=9)
    assert cluster.wait(job)["state"] == "FAILED"
    nothing_left(cluster, host)
    # podman takes the killed container for one that runs
    again = cluster.wait(cluster.post_job("exit 7", user=STRANGER, hosts_only=[host], **wanted))
    assert "exited with code 7" in again["reason"]["message"], cluster.log(again["id"])


@pytest.mark.skipif(not CONTAINERS, reason="needs podman, catatonit and a static busybox")
def test_a_container_is_not_moved_to_a_systemd_of_its_user(cluster: Cluster) -> None:
    """There it would be out of the job's control group, and of all that is fenced by it."""
    host, uid = names(cluster)[1], pwd.getpwnam(OWNER).pw_uid
    run(cluster.lab, host, IMAGE.replace("USER", OWNER).replace("300000", "400000"))
    settings = f"/home/{OWNER}/.config/containers"
    listens = (
        "import os, socket; bus = socket.socket(socket.AF_UNIX); bus.bind('bus'); os.chmod('bus', 0o777)\n"
        "bus.listen(9)\nopen('listens', 'w').close()\nbus.accept()\nopen('asked', 'w').close()\n"
    )
    cluster.write(host, "/run/bus.py", listens)
    script = f"""
        mkdir -p {settings} /run/user/{uid}; chmod 700 /run/user/{uid}
        printf '[engine]\\ncgroup_manager="systemd"\\n' >{settings}/containers.conf
        chown -R {OWNER}: /home/{OWNER}/.config /run/user/{uid}
        cd /run/user/{uid}; setsid python3 /run/bus.py </dev/null >/dev/null 2>&1 &
    """
    run(cluster.lab, host, script)
    look = f"ls /run/user/{uid}"
    until(lambda: "listens" in run(cluster.lab, host, look), "its bus is there")
    address = [
        ["XDG_RUNTIME_DIR", f"/run/user/{uid}"],
        ["DBUS_SESSION_BUS_ADDRESS", f"unix:path=/run/user/{uid}/bus"],
    ]
    job = cluster.post_job(
        "echo inside", user=OWNER, hosts_only=[host], env=address, container_image=f"/home/{OWNER}/image"
    )
    assert cluster.wait(job)["state"] == "COMPLETED", cluster.log(job)
    assert "inside" in cluster.log(job)
    assert "asked" not in run(cluster.lab, host, look)


@pytest.mark.skipif(not CONTAINERS, reason="needs podman, catatonit and a static busybox")
def test_a_container_has_the_gpus_of_its_job_by_cdi(cluster: Cluster) -> None:
    host = names(cluster)[1]
    run(cluster.lab, host, IMAGE.replace("USER", STRANGER) + "mkdir -p /etc/cdi")
    uuids = [gpu["uuid"] for gpu in cluster.hosts()[host]["gpus"]]
    cluster.write(host, "/etc/cdi/nvidia.json", json.dumps(cdi(uuids)))
    script = (
        'cd /dev; for name in nvidia*; do (: <>$name) 2>&1 | sed "s/^/$name /"; done; echo over; sleep 600'
    )
    found, jobs = [], []
    for _ in uuids:
        wanted = {"gpus_per_task": 1, "container_image": f"/home/{STRANGER}/image"}
        job = cluster.post_job(script, user=STRANGER, hosts_only=[host], **wanted)
        until(lambda job=job: "over" in cluster.said(job), "it has looked")
        found.append([line for line in cluster.log(job).splitlines() if line != "over"])
        jobs.append(job)
    for job, lines in zip(jobs, found, strict=True):
        (own,) = cluster.job(job)["tasks"][0]["gpus"]
        assert {line.split(" ")[0] for line in lines} == {f"nvidia{own}", "nvidiactl", "nvidia-uvm"}
        assert all(OPENED in line for line in lines), lines
        cluster.client_of(STRANGER).delete("jobs", job, signal=9)
        cluster.wait(job)
    nothing_left(cluster, host)


@pytest.mark.skipif(not CONTAINERS, reason="needs podman, catatonit and a static busybox")
@pytest.mark.parametrize("taken", ["mkdir -m 777", "ln -s /home", "touch"])
def test_nobody_keeps_the_containers_of_another_from_starting(cluster: Cluster, taken: str) -> None:
    """Who submits on another machine also names a folder of a login there, which this host does not have."""
    host, uid = names(cluster)[1], pwd.getpwnam(STRANGER).pw_uid
    run(cluster.lab, host, IMAGE.replace("USER", STRANGER))
    folder = f"/tmp/podman-run-{uid}"
    run(cluster.lab, host, f"rm -rf {folder}* /tmp/containers-user-{uid}")
    attack = cluster.wait(cluster.post_job(f"{taken} {folder}", user=OWNER, hosts_only=[host]))
    assert attack["state"] == "COMPLETED", cluster.log(attack["id"])
    image = f"/home/{STRANGER}/image"
    step = f"srun -n1 --container-image={image}"
    steps = f"{step} echo in a step; {step} --container-name=box echo in a named one"
    login = [["XDG_RUNTIME_DIR", "/run/user/54321"]]
    for script, said, wanted in (
        ("echo in a job", ["in a job"], {"container_image": image}),
        (steps, ["in a step", "in a named one"], {"launch": "batch"}),
    ):
        job = cluster.wait(cluster.post_job(script, user=STRANGER, hosts_only=[host], env=login, **wanted))
        log = cluster.log(job["id"])
        assert job["state"] == "COMPLETED", log
        assert [line for line in log.splitlines() if line.startswith("in a")] == said
    assert run(cluster.lab, host, f"stat -c '%U %a' {folder}").split() == [STRANGER, "700"]


@pytest.mark.skipif(not CONTAINERS, reason="needs podman, catatonit and a static busybox")
def test_a_step_runs_in_a_container_and_can_be_entered(cluster: Cluster) -> None:
    host = names(cluster)[1]
    run(cluster.lab, host, IMAGE.replace("USER", STRANGER))
    step = f"srun --container-image=/home/{STRANGER}/image --container-mounts=/home/{STRANGER}:/there"
    script = f"""
        {step} -n2 -l sh -c 'echo rank $SLURM_PROCID; echo made >/there/made; id -u'
        echo piped | {step} -n1 cat
        {step} -n1 sh -c 'exit 7'; echo code $?
        {step}:nonsense -n1 true; echo code $?
        exec {step} -n1 sh -c 'trap "echo ended; exit 3" TERM; echo waits; sleep 600 & wait'
    """
    job = cluster.post_job(script, user=STRANGER, hosts_only=[host], ntasks=2, launch="batch")

    def waits() -> bool:
        found = cluster.job(job)
        assert found["ended_us"] is None, (found["reason"], cluster.said(job))
        return "waits" in cluster.said(job)

    until(waits, "the last step runs")
    said = cluster.log(job).splitlines()
    wanted = ["0: rank 0", "1: rank 1", "0: 0", "1: 0", "piped", "code 7", "code 1", "waits"]
    assert [line for line in wanted if line not in said] == []
    assert any("The flag 'nonsense' of the mount" in line for line in said)
    owner = run(cluster.lab, host, f"stat -c %U /home/{STRANGER}/made")
    assert owner.strip() == STRANGER  # root inside, himself outside
    words = ("--socket", cluster.socket, "shell", f"{job}.3", "sh", "-c", "ls -d /there; echo $SLURM_STEP_ID")
    entered = until(lambda: cluster.run(*words).stdout, "it can be entered")
    assert entered.split() == ["/there", "3"]
    cluster.client_of(STRANGER).delete("jobs", job)
    assert cluster.wait(job)["state"] == "CANCELLED"
    nothing_left(cluster, host)


@pytest.mark.skipif(not CONTAINERS, reason="needs podman, catatonit and a static busybox")
def test_a_container_with_a_name_lasts_as_long_as_its_job(cluster: Cluster) -> None:
    host = names(cluster)[1]
    run(cluster.lab, host, IMAGE.replace("USER", STRANGER))
    script = f"""
        srun -n1 --container-image=/home/{STRANGER}/image --container-name=box sh -c 'echo kept >/kept'
        srun -n2 -l --container-name=box cat /kept
        test -e /home/{STRANGER}/image/kept || echo the image is clean
        find ~/.local/share/containers/storage/rm -name kept | wc -l
    """
    job = cluster.wait(cluster.post_job(script, user=STRANGER, hosts_only=[host], ntasks=2, launch="batch"))
    said = cluster.log(job["id"])
    assert job["state"] == "COMPLETED", said
    assert sorted(said.splitlines())[-4:] == ["0: kept", "1", "1: kept", "the image is clean"], said
    assert run(cluster.lab, host, f"ls /home/{STRANGER}/.local/share/containers/storage/rm/{host}") == ""


# memory that processes share, semaphores and queues


def test_system_v_ipc_is_a_jobs_own_is_shared_by_its_steps_and_ends_with_it(cluster: Cluster) -> None:
    host = names(cluster)[0]
    makes = "srun -n2 sh -c 'ipcmk -M 4096 -S 1 -Q'; srun -n1 ipcs; echo made; exec sleep 600"
    job = cluster.post_job(makes, user=STRANGER, hosts_only=[host], ntasks=2, launch="batch")
    until(lambda: "made" in cluster.said(job), "it has made them")
    lines = [line for line in cluster.log(job).splitlines() if line.startswith("0x")]
    assert len(lines) == 6  # the third step sees what two tasks of the first made
    assert all(STRANGER in line for line in lines)
    shown = run(cluster.lab, host, "ipcs")
    assert STRANGER not in shown
    entered = cluster.run("--socket", cluster.socket, "shell", str(job), "ipcs").stdout
    assert [line.split()[:2] for line in entered.splitlines() if line.startswith("0x")] == [
        line.split()[:2] for line in lines
    ]
    other = cluster.wait(cluster.post_job("ipcs", user=STRANGER, hosts_only=[host]))
    assert "0x" not in cluster.log(other["id"])
    cluster.client_of(STRANGER).delete("jobs", job)
    assert cluster.wait(job)["state"] == "CANCELLED"
    assert run(cluster.lab, host, "ipcs") == shown


# memory and processes


def limits(cluster: Cluster, name: str) -> None:
    if name in cluster.hosts()[names(cluster)[0]]["unenforced"]:
        pytest.skip(f"this machine's control groups cannot limit {name}")


def test_a_job_ends_at_its_memory_and_no_other_does(cluster: Cluster) -> None:
    limits(cluster, "memory")
    host = names(cluster)[0]
    other = cluster.post_job("exec sleep 600", user=OWNER, hosts_only=[host])
    cluster.all_started(other)
    job = cluster.post_job(
        "exec python3 -c 'bytearray(300 << 20)'",
        user=STRANGER,
        mem_bytes_per_task=64 << 20,
        hosts_only=[host],
    )
    assert cluster.wait(job)["state"] == "OUT_OF_MEMORY"
    assert cluster.job(other)["state"] == "RUNNING"


def test_a_fork_bomb_stays_within_its_job(cluster: Cluster) -> None:
    limits(cluster, "processes")
    host = names(cluster)[0]
    code = "import os, time\nn = 0\ntry:\n    while n < 400:\n        os.fork() or time.sleep(600)\n"
    code += "        n += 1\nexcept BlockingIOError:\n    pass\nprint(n, flush=True)\ntime.sleep(600)\n"
    job = cluster.post_job(f'exec python3 -c "{code}"', user=STRANGER, hosts_only=[host])
    until(lambda: cluster.said(job), "it has forked")
    assert 20 < int(cluster.log(job)) < 40
    assert cluster.wait(cluster.post_job("echo fine", user=OWNER, hosts_only=[host]))["state"] == "COMPLETED"


def test_a_host_that_cannot_limit_memory_says_so(cluster: Cluster) -> None:
    second = names(cluster)[1]
    assert "memory" in cluster.hosts()[second]["unenforced"]
    assert "does not limit memory" in cluster.rmx("hosts")
    job = cluster.wait(cluster.post_job("true", user=OWNER, mem_bytes_per_task=64 << 20, hosts_only=[second]))
    assert "cannot keep the job to its memory" in job["tasks"][0]["note"]


# who a user is


def test_a_user_with_another_uid_on_the_host_is_refused(cluster: Cluster) -> None:
    first, second = names(cluster)
    job = cluster.wait(cluster.post_job("touch /var/tmp/mismatch", user=MISMATCHED, hosts_only=[second]))
    assert job["state"] == "FAILED"
    assert all(word in job["reason"]["message"] for word in (MISMATCHED, "4242", second))
    assert not cluster.lab.exec(second, ["ls", "/var/tmp/mismatch"]).stdout
    assert cluster.wait(cluster.post_job("true", user=MISMATCHED, hosts_only=[first]))["state"] == "COMPLETED"


def test_the_tasks_of_a_gang_meet_at_a_port_that_its_first_host_chose(cluster: Cluster) -> None:
    ports = set()
    for _ in range(3):
        job = cluster.post_job("echo $MASTER_PORT", user=OWNER, ntasks=2, hosts_min=2)
        assert cluster.wait(job)["state"] == "COMPLETED"
        first, second = (int(cluster.log(job, task)) for task in range(2))
        assert first == second
        assert 20_000 <= first < 32_000
        assert "master_port" not in cluster.job(job)
        ports.add(first)
    assert len(ports) > 1


# last, as it changes the daemon's settings


def test_with_a_tmp_of_its_own_a_job_leaves_nothing_behind(cluster: Cluster) -> None:
    host = names(cluster)[0]
    cluster.config.write_text(
        cluster.config.read_text().replace("[fence]\n", '[fence]\nprivate_tmp = "tmpfs"\n')
    )
    cluster.restart()
    cluster.all_up()
    left = "echo x >/tmp/left.$RM_JOB_ID; echo x >/dev/shm/left.$RM_JOB_ID; ls /tmp/left.* /dev/shm/left.*"
    for user in (STRANGER, OWNER):
        job = cluster.wait(cluster.post_job(left, user=user, hosts_only=[host]))
        assert job["state"] == "COMPLETED"
        mine = [f"/dev/shm/left.{job['id']}", f"/tmp/left.{job['id']}"]
        assert cluster.log(job["id"]).split() == mine
    assert cluster.lab.exec(host, ["sh", "-c", "ls /tmp/left.* /dev/shm/left.*"]).stdout == b""
