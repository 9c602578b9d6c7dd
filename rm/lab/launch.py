"""Bringing a lab up: keys, slot, keeper, the way to it, and the files that describe it."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rm.errors import ConfigError, Conflict, RmError, Unreachable, UsageError
from rm.lab import cgroups, fabric, inventory, requirements
from rm.lab.lab import Lab, discard, holds_lab
from rm.lab.spec import LabHost, LabSpec, network, plan_hosts

SLOTS = 128
Progress = Callable[[str], None]


def up(spec: LabSpec, directory: str | os.PathLike[str], progress: Progress = lambda line: None) -> Lab:
    """Makes a lab and returns when every host's sshd answers.

    Whatever goes wrong on the way (Ctrl-C included), nothing of it stays. `directory` must be empty or new.
    """
    requirements.check()
    path = Path(directory).absolute()
    _check_share(spec)
    created = _claim(path)
    keeper: subprocess.Popen[str] | None = None
    try:
        with _slot() as (slot, lock):
            hosts = plan_hosts(spec, slot)
            mode = requirements.mode()
            progress(f"making keys for {len(hosts)} hosts")
            _keys(path, hosts)
            (path / "mnt").mkdir()
            inventory.write(path, spec, hosts)
            state = _state(spec, slot, path, mode)
            inventory.save_state(path, state)
            if mode == "user":
                progress(requirements.ONE_ID)
            progress(f"starting {len(hosts)} hosts in {spec.zones} zones ({_how(mode)})")
            log = os.open(path / "keeper.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            keeper = subprocess.Popen(
                [sys.executable, "-P", "-m", "rm.lab.door"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,  # a Ctrl-C is ours to handle
                pass_fds=[lock.fileno()],
                env={**os.environ, "PATH": fabric.SEARCH},
            )
            os.close(log)
            _follow(keeper, state, path)
    except BaseException:
        if keeper is not None:
            _await_end(keeper)
        discard(path, remove_directory=created)
        raise
    progress(f"{len(hosts)} hosts answer; inventory: {path / 'inventory.yml'}")
    return Lab.load(path)


def _await_end(keeper: subprocess.Popen[str]) -> None:
    """Returns when nothing is left of a keeper that was asked to end or whose number was not yet known."""
    assert keeper.stdin is not None
    assert keeper.stdout is not None
    with contextlib.suppress(BrokenPipeError):
        keeper.stdin.close()  # one that still waits for its `go` ends by this
    keeper.kill()
    keeper.wait()
    keeper.stdout.read()  # its forked processes held the other end


def _how(mode: str) -> str:
    return {
        "root": "as root",
        "users": "in a user namespace with subordinate ids",
        "user": "in a user namespace with one id",
    }[mode]


def _check_share(spec: LabSpec) -> None:
    for path in spec.share:
        if not os.path.isabs(path) or not os.path.exists(path):
            raise UsageError(
                f"{path} cannot be shared with the lab's hosts.", "Name an existing absolute path."
            )


def _claim(path: Path) -> bool:
    """Makes the directory; returns whether it was new."""
    if holds_lab(path):
        raise Conflict(
            f"A lab is up in {path} already.", "`rmx lab down` takes it down; `--dir` names another place."
        )
    if (path / "lab.json").exists():  # of a lab that died with its machine
        discard(path, remove_directory=False)
    new = not path.exists()
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.chmod(path, 0o700)
        found = os.listdir(path)
    except OSError as error:
        raise UsageError(f"The lab's directory {path} cannot be used: {error.strerror}.") from error
    if found:
        raise UsageError(
            f"The directory {path} holds other things than a lab.", "Name an empty or a new one."
        )
    return new


@contextlib.contextmanager
def _slot() -> Iterator[tuple[int, socket.socket]]:
    """A free range of addresses, held by a socket in the kernel's own name space that the keeper inherits."""
    taken = fabric.routes()
    lock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    with lock:
        for slot in range(SLOTS):
            if any(target.startswith(f"{network(slot)}.") for target in taken):
                continue
            try:
                lock.bind(f"\0rm-lab-slot-{slot}")
            except OSError:  # another lab's
                continue
            yield slot, lock
            return
    raise Conflict(
        f"All {SLOTS} address ranges for labs are in use on this machine.", "Take a lab down first."
    )


def _keys(path: Path, hosts: list[LabHost]) -> None:
    keys = path / "keys"
    keys.mkdir()
    running = [
        subprocess.Popen(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"rm-lab-{name}", "-f", str(keys / name)],
            stdin=subprocess.DEVNULL,
        )
        for name in ["client", *(host.name for host in hosts)]
    ]
    codes = [process.wait() for process in running]
    if any(codes):
        raise ConfigError(f"ssh-keygen could not write keys into {keys}.", "Is the disk full?")
    os.rename(keys / "client", path / "id_ed25519")
    shutil.copy(keys / "client.pub", path / "id_ed25519.pub")


def _state(spec: LabSpec, slot: int, path: Path, mode: str) -> dict[str, Any]:
    group = cgroups.mount_point() if mode == "root" else None
    # not the slot: what a dead lab left must not be taken for its successor's
    name = f"rmlab-{secrets.token_hex(4)}"
    return {
        "version": 1,
        "slot": slot,
        "directory": str(path),
        "mode": mode,
        "spec": spec.to_json(),
        "keeper": 0,
        "keeper_started": 0,
        "control": name if mode == "root" else "",
        "cgroup": str(group / name) if group else "",
        "sshd_as": f"{os.getuid()}:{os.getgid()}" if mode == "user" else "root",
        "python": sys.executable,
    }


def _follow(keeper: subprocess.Popen[str], state: dict[str, Any], path: Path) -> None:
    """Speaks with the keeper until all its hosts are up."""
    assert keeper.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # then its answer says why
        keeper.stdin.write(json.dumps(state) + "\n")
        keeper.stdin.flush()
    pid = _answer(keeper, path)["keeper"]
    state.update(keeper=pid, keeper_started=inventory.started(pid))
    inventory.save_state(path, state)
    keeper.wait()
    try:
        if state["control"]:
            _connect(state, pid)
        with contextlib.suppress(BrokenPipeError):
            keeper.stdin.write("go\n")
            keeper.stdin.flush()
        _answer(keeper, path)
        assert keeper.stdout is not None
        keeper.stdout.close()
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        raise
    finally:
        keeper.stdin.close()


def _answer(keeper: subprocess.Popen[str], path: Path) -> dict[str, Any]:
    assert keeper.stdout is not None
    line = keeper.stdout.readline()
    if not line:
        log = (path / "keeper.log").read_text(errors="replace").strip().splitlines()
        raise Unreachable(f"The lab's keeper ended: {log[-1] if log else 'it said nothing'}.")
    answer: dict[str, Any] = json.loads(line)
    if "error" in answer:
        raise UsageError(f"The lab could not be made: {answer['error']}", answer["hint"])
    return answer


def _connect(state: dict[str, Any], pid: int) -> None:
    """The link between this machine and the lab's routers."""
    device, net = state["control"], network(state["slot"])
    try:
        fabric.ip(
            [
                f"link add {device} type veth peer name control netns {pid}",
                f"addr add {net}.0.1/30 dev {device}",
                f"link set {device} up",
                f"route add {net}.0.0/16 via {net}.0.2 dev {device}",
            ]
        )
    except fabric.FabricError as error:
        raise RmError(f"This machine's link to the lab could not be made: {error}.") from error
