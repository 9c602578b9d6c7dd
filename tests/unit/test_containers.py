"""Jobs in containers: their options, the hosts that can run them, and how a host's runtime is started."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rm import containers
from rm.core.jobs.room import capacity
from rm.core.model.acceptance import accept
from rm.core.model.asked.demand import Shape
from rm.errors import UsageError
from rm.policies.placement.steps.filters import refusal
from rm.submission.specification import build
from tests.agent_process import AGENTS, agents, until
from tests.builders import host, job, snapshot, spec
from tests.unit.test_agent_lease import gone

sys.path.insert(0, str(AGENTS))
rm_container = importlib.import_module("rm_container")
rm_facts = importlib.import_module("rm_facts")
rm_srun_container = importlib.import_module("rm_srun_container")
rm_named_container = importlib.import_module("rm_named_container")
root = pytest.mark.skipif(os.getuid() != 0, reason="needs root")
ENVIRON = {"A": "b", "PATH": "/usr/bin", "HOME": "/home/ann", "BASH_FUNC_x%%": "() { :; }"}
OWN = [("/spool/1", "/spool/1", "rw")]


def built(**values: str) -> dict[str, Any]:
    return build(values, {}, "/home/ann", lambda: datetime(2026, 1, 1, tzinfo=UTC))


def words(runtime: str, image: str = "nvcr.io#nvidia/pytorch:24.01", directory: bool = False,
          gpus: tuple[str, ...] = (), **more: Any) -> list[str]:  # fmt: skip
    container = {"image": image, "mounts": [("/data", "/mnt", "ro+rprivate")], "workdir": "/work", **more}
    found = rm_container.command(
        runtime, f"/opt/{runtime}", container, "rm-1-1-0", OWN, ["/spool/1/script", "x y"], ENVIRON, gpus,
        directory,
    )  # fmt: skip
    assert found[-2:] == ["/spool/1/script", "x y"]
    return list(found)


def test_podman_runs_it_in_the_group_and_passes_what_the_image_does_not_decide() -> None:
    found = words("podman", gpus=("GPU-1", "GPU-2"))
    assert found[3:6] == ["sh", "/opt/podman", "/opt/podman"]
    assert found[6:8] == ["--cgroup-manager=cgroupfs", "run"]
    assert found[-3] == "nvcr.io/nvidia/pytorch:24.01"
    assert "--cgroups=disabled" in found
    assert [found[i + 1] for i, word in enumerate(found) if word == "--env"] == ["A"]
    volumes = [found[i + 1] for i, word in enumerate(found) if word == "--volume"]
    assert volumes == ["/dev/shm:/dev/shm", "/data:/mnt:ro,rprivate", "/spool/1:/spool/1:rw"]
    devices = [found[i + 1] for i, word in enumerate(found) if word == "--device"]
    assert devices == ["nvidia.com/gpu=GPU-1", "nvidia.com/gpu=GPU-2"]
    assert found[found.index("--workdir") + 1] == "/work"
    assert words("podman", "/images/root", True)[-4:-2] == ["--rootfs", "/images/root"]
    assert words("podman", "/images/a.tar")[-3] == "docker-archive:/images/a.tar"
    assert "--workdir" not in words("podman", workdir="")


def test_podman_starts_it_by_runc_where_control_groups_are_of_both_versions(tmp_path: Path) -> None:
    container = {"image": "a", "mounts": [], "workdir": ""}
    found = rm_container.command("podman", "/opt/podman", container, "n", [], ["x"], {}, (), runc="/bin/runc")
    assert found[5:10] == ["/opt/podman", "--runtime", "/bin/runc", "--cgroup-manager=cgroupfs", "run"]
    assert "--cgroups=disabled" not in found
    assert rm_container.runc(str(tmp_path)) == ""
    (tmp_path / "sys/fs/cgroup/unified").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/unified/cgroup.controllers").write_text("")
    assert rm_container.runc(str(tmp_path)) == rm_facts.program("runc")


def test_podman_finds_no_systemd_of_the_users_to_move_to(tmp_path: Path) -> None:
    podman = tmp_path / "podman"
    podman.write_text('#!/bin/sh\necho "$1 $DBUS_SESSION_BUS_ADDRESS" >>"$0.said"\n')
    podman.chmod(0o755)
    container, environ = {"image": "a", "mounts": [], "workdir": ""}, {"DBUS_SESSION_BUS_ADDRESS": "unix:x"}
    words = rm_container.command("podman", str(podman), container, "n", [], ["x"], environ, ())
    subprocess.run(words, env={"PATH": os.environ["PATH"], **environ}, check=True)
    said = Path(f"{podman}.said").read_text().splitlines()
    assert [line.split()[1] for line in said] == ["unix:path=/dev/null"] * 2  # its look at its books, and it
    assert said[-1].startswith("--cgroup-manager=cgroupfs ")
    assert "DBUS_SESSION_BUS_ADDRESS" not in words  # nor is the address known inside


def test_apptainer_becomes_it() -> None:
    found = words("apptainer")
    assert found[:2] == ["/opt/apptainer", "exec"]
    assert found[-3] == "docker://nvcr.io/nvidia/pytorch:24.01"
    assert "/data:/mnt:ro" in found
    assert "--nv" not in found
    assert "--nv" in words("apptainer", gpus=("0",))
    assert words("apptainer", "/images/a.sif")[-3] == "/images/a.sif"


def test_enroot_makes_a_file_of_an_image_first() -> None:
    found = words("enroot", gpus=("0", "1"), workdir="")
    assert found[:2] == ["/bin/sh", "-c"]
    file = "/home/ann/.cache/rm-images/nvcr.io+nvidia+pytorch+24.01.sqsh"
    assert found[4:7] == [file, "docker://nvcr.io#nvidia/pytorch:24.01", "/opt/enroot"]
    assert found[-3] == file
    assert "NVIDIA_VISIBLE_DEVICES=0,1" in found
    assert "/data:/mnt:none:x-create=auto,rbind,ro,rprivate" in found
    assert words("enroot", "/images/a.sqsh")[4:6] == ["/images/a.sqsh", ""]


@pytest.mark.parametrize(
    ("runtime", "image", "directory"),
    [
        ("podman", "/images/a.sqsh", False),
        ("podman", "ann@nvcr.io#nvidia/pytorch", False),
        ("apptainer", "ann@nvcr.io#nvidia/pytorch", False),
        ("enroot", "/images/root", True),
    ],
)
def test_what_a_runtime_cannot_do_is_a_sentence(runtime: str, image: str, directory: bool) -> None:
    with pytest.raises(rm_container.ContainerError, match=r"[a-z]+ (runs|takes) .*"):
        words(runtime, image, directory)


def test_mounts_are_written_as_pyxis_has_them() -> None:
    assert containers.mounts("/a,/b:/c,/d:/e:ro+rslave") == (
        ("/a", "/a", ""), ("/b", "/c", ""), ("/d", "/e", "ro+rslave"),
    )  # fmt: skip
    for bad in ("a:/b", "/a:b", "/a:/b:no", "/a:/b:ro:x", "/a:/b:ro+", "/a\n/b:/c"):
        with pytest.raises(UsageError):
            containers.mounts(bad)


@pytest.mark.parametrize("name", ["--privileged", "docker://--privileged", "docker://docker://--privileged"])
def test_no_image_is_an_option_of_the_runtime(name: str) -> None:
    with pytest.raises(UsageError, match="is no image"):
        containers.image(name)
    with pytest.raises(ValueError, match="no option"):
        rm_container.checked({"image": name})


def test_options_become_the_specification() -> None:
    found = built(container_image="./a.sqsh", container_mounts="/data:/data:ro", container_workdir="/data")
    assert found["container_image"] == "/home/ann/a.sqsh"
    assert (found["container_mounts"], found["container_workdir"]) == ("/data:/data:ro", "/data")
    assert built(container_image="a", container_name="env")["container_name"] == "env"
    for bad in (
        {"container_mounts": "/a:/b"},
        {"container_image": "-v"},
        {"container_image": "a", "container_workdir": "b"},
        {"container_image": "a", "container_name": "b:exec"},
        {"container_name": "b"},
        {"container_image": "a", "container_mounts": "b"},
    ):
        with pytest.raises(UsageError, match="--container-"):
            built(**bad)


@pytest.mark.parametrize(
    "fields",
    [
        {"container_image": "a b"},
        {"container_image": "a", "container_mounts": "x"},
        {"container_image": "a", "container_workdir": "x"},
        {"container_image": "a", "container_name": "a/b"},
        {"container_image": "a", "container_name": "a:exec"},
        {"container_workdir": "/x"},
        {"container_name": "x"},
    ],
)
def test_bad_containers_are_not_accepted(fields: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="container"):
        accept(spec(**fields))


def test_only_hosts_with_a_runtime_are_candidates() -> None:
    shape: Shape = job(container_image="pytorch").spec.demand.shape
    with_one, without = host("h1", containers="podman"), host("h2")
    free = snapshot(with_one, without).free
    assert capacity(with_one, free["h1"], shape) > 0
    assert refusal(with_one, free["h1"], shape) is None
    assert capacity(without, free["h2"], shape) == 0
    no = refusal(without, free["h2"], shape)
    assert no is not None
    assert "no runtime for the job's container" in no.message


# stands in for podman: notes the words it was started with, and runs the command behind the image's name
STAND_IN = """#!/bin/sh
[ "$1" = unshare ] && exit
echo "$@" > {notes}
while [ "$1" != pytorch ]; do shift; done
shift
trap 'kill -TERM $child; wait $child; exit $?' TERM
"$@" &
child=$!
wait $child
"""


def test_the_agent_starts_the_runtime_that_it_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="rm-runtime-") as folder:
        _start_the_runtime(Path(folder), monkeypatch)


def _start_the_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes, programs = tmp_path / "notes", tmp_path / "bin"
    programs.mkdir()
    tmp_path.chmod(0o777)
    (programs / "podman").write_text(STAND_IN.format(notes=notes))
    (programs / "podman").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/sbin:/usr/bin:/sbin:/bin")
    with agents() as start:
        agent = start()
        assert agent.hello["features"]["containers"] == "podman"
        container = {"image": "pytorch", "mounts": [["/srv", "/data", "ro"]], "workdir": "/data"}
        reply = agent.launch("#!/bin/sh\nexit 5\n", container=container)
        assert reply["ok"], reply
        end = agent.event("exit", job=1)
        assert (end["code"], end["signal"]) == (5, 0)
        assert "/srv:/data:ro" in notes.read_text()
        script = f"#!/bin/sh\ntrap 'exit 7' TERM\ntouch {tmp_path}/ready\nwhile :; do sleep 0.1; done\n"
        assert agent.launch(script, job=2, container=container)["ok"]
        until((tmp_path / "ready").exists, "the task is at its script")
        assert agent.call("stop", job=2, attempt=1, why="cancel", grace_us=60_000_000) == {}
        end = agent.event("exit", job=2)
        assert (end["code"], end["signal"], end["why"]) == (7, 0, "cancel")
        bad = agent.launch("#!/bin/sh\n", job=3, container={"image": "x", "mounts": [["a", "/b", ""]]})
        assert bad["code"] == "bad-request"


def test_a_step_asks_for_a_container_in_the_words_of_pyxis() -> None:
    asked = rm_srun_container.asked_of
    values = {
        "container-image": "./a.tar",
        "container-mounts": "/data:/mnt:ro,/home",
        "container-workdir": "/w",
    }
    mounts = [["/data", "/mnt", "ro"], ["/home", "/home", ""]]
    assert asked(values, "/scratch") == {"image": "/scratch/a.tar", "workdir": "/w", "mounts": mounts}
    assert asked({}, "/") == {}
    assert rm_container.checked(asked(values, "/scratch"))["image"] == "/scratch/a.tar"


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"container-workdir": "/w"}, "--container-workdir needs --container-image"),
        ({"container-image": "--privileged"}, "is no image"),
        ({"container-image": "x", "container-workdir": "w"}, "an absolute path of the container"),
        ({"container-image": "x", "container-mounts": "data:/mnt"}, "'data:/mnt' is no mount"),
        ({"container-image": "x", "container-mounts": "/a:/b:suid"}, "The flag 'suid' of the mount"),
        ({"container-image": "x", "container-mounts": "/a," * 65}, "65 mounts are too many"),
        ({"container-image": "x", "mpi": "pmi2"}, "--mpi=pmi2 does not reach"),
    ],
)
def test_what_is_no_container_of_a_step_is_said(values: dict[str, str], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        rm_srun_container.asked_of(values, "/")


def test_podman_passes_a_tasks_input_and_terminal() -> None:
    container = {"image": "x", "mounts": [], "workdir": ""}

    def run(streams: str) -> list[str]:
        made = rm_container.command(
            "podman", "/opt/podman", container, "rm-1-1-0-0", [], ["cat"], {}, (), False, "", streams
        )
        return list(made[made.index("run") + 1 :][:2])

    assert run("input") == ["--interactive", "--rm"]
    assert run("terminal") == ["--interactive", "--tty"]
    assert run("") == ["--rm", "--replace"]


PODMAN = """#!/bin/sh
echo "$*" >>{folder}/asked
case $1 in
info) echo {folder}/store ;;
unshare) shift; exec "$@" ;;
create) echo made ;;
inspect) case "$*" in *Env*) printf 'CUDA=12\\n\\n' ;; *) echo /workspace ;; esac ;;
export) tar -cf - -C {folder}/image . ;;
esac
"""


def test_a_named_container_is_made_once_and_kept_for_later_steps(tmp_path: Path) -> None:
    podman, image, attempt = tmp_path / "podman", tmp_path / "image", tmp_path / "spool/job_7_1"
    podman.write_text(PODMAN.format(folder=tmp_path))
    podman.chmod(0o755)
    image.mkdir()
    attempt.mkdir(parents=True)
    (image / "word").write_text("of the image")
    left = (
        tmp_path / "store/rm" / os.uname().nodename / "job_6_1"
    )  # whose attempt is not on this host any more
    left.mkdir(parents=True)
    elsewhere = tmp_path / "store/rm/another-host/job_9_1"
    elsewhere.mkdir(parents=True)
    folder, environ = SimpleNamespace(path=str(attempt)), dict(os.environ, HOME=str(tmp_path))

    def filled(**more: str) -> Any:
        container = {"image": "", "mounts": [], "workdir": "", "name": "tools", **more}
        return rm_named_container.filled("podman", str(podman), container, folder, environ)

    with pytest.raises(ValueError, match="container tools cannot be had"):
        filled()  # nobody has made it
    made, options = filled(image="registry#team/image:1")
    home = tmp_path / "store/rm" / os.uname().nodename / "job_7_1"  # hosts may share the user's files
    at = home / "tools"
    assert (made["image"], made["workdir"]) == (str(at), "/workspace")
    assert options == ["--env-file", f"{home}/.tools.env"]
    assert (home / ".tools.env").read_text() == "CUDA=12\n"
    assert nobody_else_enters(home.parent)
    assert (at / "word").read_text() == "of the image"
    assert (left.exists(), elsewhere.exists()) == (False, True)
    (at / "word").write_text("changed by a step")
    asked = (tmp_path / "asked").read_text()
    assert "create registry/team/image:1 true" in asked
    again, _ = filled(image=str(image), workdir="/else")  # it is there: the image is not looked at
    assert (again["image"], again["workdir"]) == (str(at), "/else")
    assert (at / "word").read_text() == "changed by a step"
    assert (tmp_path / "asked").read_text().count("create ") == asked.count("create ") == 1
    other, none = filled(name="other", image=str(image))
    assert ((Path(other["image"]) / "word").read_text(), none) == ("of the image", [])
    for name in ("tools.lock", "tools.env", "tools.dir", "tools.new"):  # names as any other
        made, _ = filled(name=name, image=str(image))
        assert (Path(made["image"]) / "word").read_text() == "of the image"
    assert filled()[1] == options


def nobody_else_enters(folder: Path) -> bool:
    """Who could open a lock there would hold it, and keep the user's containers from starting."""
    return folder.is_dir() and folder.stat().st_mode & 0o077 == 0


APPTAINER = """#!/bin/sh
echo "$*" >>{folder}/asked
[ "$1 $2" = "build --sandbox" ] && cp -R {folder}/image "$3"
"""
ENROOT = """#!/bin/sh
echo "$*" >>{folder}/asked
cd {folder}/containers
case $1 in
list) ls ;;
import) : >"$3" ;;
create) [ -e "$5" ] && cp -R {folder}/image "$3" ;;
remove) rm -r "$3" ;;
esac
"""


@pytest.mark.parametrize(("runtime", "program"), [("apptainer", APPTAINER), ("enroot", ENROOT)])
def test_apptainer_and_enroot_keep_named_containers_too(tmp_path: Path, runtime: str, program: str) -> None:
    path, attempt, here = tmp_path / runtime, tmp_path / "spool/job_7_1", os.uname().nodename
    path.write_text(program.format(folder=tmp_path))
    path.chmod(0o755)
    for made in ("image", "containers", "spool/job_7_1"):
        (tmp_path / made).mkdir(parents=True)
    (tmp_path / "image/word").write_text("of the image")
    folder, environ = SimpleNamespace(path=str(attempt)), dict(os.environ, HOME=str(tmp_path))
    environ.pop("APPTAINER_CACHEDIR", None)
    if runtime == "enroot":
        home, names = tmp_path / "containers", [f"rm+{here}+{job}+tools" for job in ("job_7_1", "job_6_1")]
        elsewhere = home / "rm+another+job_6_1+tools"
    else:
        home, names = tmp_path / f".apptainer/cache/rm/{here}", ["job_7_1/tools", "job_6_1/tools"]
        elsewhere = home.parent / "another/job_6_1/tools"
    for left in (home / names[1], elsewhere):  # the attempt of the first one is on this host no more
        left.mkdir(parents=True)

    def filled(image: str = "") -> Any:
        container = {"image": image, "mounts": [], "workdir": "", "name": "tools"}
        made, options = rm_named_container.filled(runtime, str(path), container, folder, environ)
        assert options == []
        return rm_container.command(runtime, str(path), made, "n", [], ["true"], {}, ())

    with pytest.raises(ValueError, match="container tools cannot be had"):
        filled()
    words = filled("registry#team/image:1")
    at = home / names[0]
    assert words[-2:] == [str(at) if runtime == "apptainer" else names[0], "true"]
    assert ("--writable" in words) is (runtime == "apptainer")
    assert nobody_else_enters(home if runtime == "apptainer" else tmp_path / ".cache/rm-images")
    assert (at / "word").read_text() == "of the image"
    assert [(home / names[1]).exists(), elsewhere.exists()] == [False, True]
    (at / "word").write_text("changed by a step")
    assert filled("another#image") == filled() == words
    assert (at / "word").read_text() == "changed by a step"
    subprocess.run(rm_named_container.removal(runtime, str(path), str(attempt)), check=True, env=environ)
    assert [at.exists(), elsewhere.exists()] == [False, True]


def test_the_home_directory_is_a_mount(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    values = {"container-image": "x", "container-mount-home": ""}
    assert rm_srun_container.asked_of(values, "/")["mounts"] == [["/home/ann", "/home/ann", ""]]


# as podman, which starts what the user's settings name, and leaves a process that keeps its namespaces
LEAVES = """#!/bin/sh
cat /proc/self/cgroup /proc/self/status >{folder}/seen
setsid sleep 600 </dev/null >/dev/null 2>&1 &
echo $! >{folder}/left
echo {folder}/store
"""


@pytest.mark.parametrize(
    "cgroups", ["as they are", pytest.param("v2", marks=root), pytest.param("none", marks=root)]
)
def test_what_removes_containers_with_a_name_has_no_more_rights_than_the_job_and_ends(
    cgroups: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="rm-named-") as name:
        folder = Path(name)
        folder.chmod(0o777)
        (folder / "podman").write_text(LEAVES.format(folder=folder))
        (folder / "podman").chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:/usr/sbin:/usr/bin:/sbin:/bin")
        with agents() as start:
            agent = start(cgroups)
            fence = {"no_new_privs": True}
            script = f"#!/bin/sh\ncat /proc/self/cgroup >{folder}/own\nread x <{folder}/go\n"
            os.mkfifo(folder / "go")
            (folder / "go").chmod(0o666)
            assert agent.launch(script, fence=fence)["ok"]
            (agent.state / "jobs/1.1" / rm_named_container.MARK).touch()
            (folder / "go").write_text("\n")
            assert agent.event("exit", job=1)["code"] == 0
            seen = (folder / "seen").read_text()
            assert seen.startswith((folder / "own").read_text())
            assert "NoNewPrivs:\t1\n" in seen
            assert gone(int((folder / "left").read_text()))


def test_the_words_of_a_named_container() -> None:
    asked = rm_srun_container.asked_of
    assert asked({"container-name": "tools"}, "/")["name"] == "tools"
    for name in ("../x", "-v", "a:exec", "a b", "x" * 65):
        with pytest.raises(ValueError, match="--container-name is"):
            asked({"container-name": name}, "/")
    container = {"image": "/store/tools", "mounts": [], "workdir": ""}
    words = rm_container.command(
        "podman", "/opt/podman", container, "n", [], ["x"], {}, (), True, options=["--env-file", "e"]
    )
    assert words[words.index("run") + 1 :][:2] == ["--env-file", "e"]


@root
@pytest.mark.parametrize("exchanged", [False, True])
def test_the_folder_of_podman_gives_a_user_nothing_of_roots(
    exchanged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where /tmp is the user's own, what root has just made there can be exchanged."""
    user = SimpleNamespace(uid=54_321, gid=54_322)
    with tempfile.TemporaryDirectory() as top:
        of_root, mkdir = f"{top}/of-root", os.mkdir
        mkdir(of_root, 0o700)
        os.chown(top, user.uid, user.gid)
        folder = f"{top}/podman-run-{user.uid}"

        def made(path: str, mode: int) -> None:
            mkdir(path, mode)
            if exchanged:
                os.rename(path, f"{top}/aside")
                os.rename(of_root, path)

        monkeypatch.setattr(rm_container, "RUN", f"{top}/podman-run-%d")
        monkeypatch.setattr(rm_container.os, "mkdir", made)
        rm_container.keep_folder(user)
        about = os.stat(folder)
        owner = (0, 0) if exchanged else (user.uid, user.gid)
        assert (about.st_uid, about.st_gid, about.st_mode & 0o777) == (*owner, 0o700)
        assert (os.geteuid(), os.getegid()) == (0, 0)


def test_srun_loads_nothing_of_what_runs_containers() -> None:
    """It is a process for each step: half of its start was that."""
    loads = f"import sys; sys.path.insert(0, {str(AGENTS)!r}); import rm_srun; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-S", "-E", "-c", loads], capture_output=True, text=True, check=True
    )
    assert not {"ctypes", "subprocess", "rm_container", "rm_become"} & set(done.stdout.split())
