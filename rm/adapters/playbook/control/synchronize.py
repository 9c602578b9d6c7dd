"""`synchronize`: rsync on this machine, over the SSH settings with which rm reaches the host.

The command is Ansible's (ansible.posix at e114652, `plugins/modules/synchronize.py`), but for
host keys: rsync's ssh accepts those that rm accepts, and no others.
"""

from __future__ import annotations

import os
import selectors
import shlex
import shutil
import subprocess
from contextlib import suppress
from typing import Any

from rm.adapters.playbook.control import ControlFailed, Hands

MARKER = "<<CHANGED>>"
# argument -> option, where `archive` alone does not say it; without "archive" the option switches it on
OF_ARCHIVE = ("recursive", "links", "perms", "times", "owner", "group")
LOOK_S = 0.5
ERROR_LINES = 20
ERROR_BYTES = 64 << 10  # the last ones
OUT_BYTES = 64 << 20  # of some 600,000 changes
READ_BYTES = 64 << 10


def carry_out(hands: Hands, step: dict[str, Any]) -> dict[str, Any]:
    args = step["args"]
    user = str(step.get("user") or ("root" if hands.become else ""))
    if shutil.which("rsync") is None:
        raise ControlFailed(
            "rsync is not installed on this machine, which synchronize needs. Install it here."
        )
    command = ["rsync", *options(args, bool(step.get("check")))]
    source, destination = (_no_option(args[end]) for end in ("src", "dest"))
    if hands.local:
        command = [*(["sudo", "-n", "-u", user] if user else []), *command]
    else:
        if user and hands.passwords.become:
            raise ControlFailed("sudo asks for a password here, which rsync cannot be given.")
        if hands.passwords.login:
            raise ControlFailed(
                "The host is reached with a password, which rsync cannot be given: use a key."
            )
        command += remote(hands, args, user)
        end = hands.host.address if ":" not in hands.host.address else f"[{hands.host.address}]"
        end = f"{hands.host.login}@{end}" if args["set_remote_user"] and hands.host.login else end
        if args["mode"] == "push":
            destination = f"{end}:{args['dest']}"
        else:
            source = f"{end}:{args['src']}"
    command += [*args["rsync_opts"], f"--out-format={MARKER}%i %n%L", source, destination]
    code, out, err = _ran(hands, command)
    said = shlex.join(command)
    if code:
        return {"failed": True, "rc": code, "cmd": said, "msg": _why(hands, code, err)}
    # with link_dest rsync is verbose, and an item that stays as it was begins with a dot
    changed = f"{MARKER}." not in out if args["link_dest"] else MARKER in out
    text = out.replace(MARKER, "")
    lines = [line for line in text.split("\n") if line]
    return {"changed": changed, "rc": 0, "cmd": said, "msg": text, "stdout_lines": lines}


def _no_option(path: str) -> str:
    """The path of a file, also where its name begins as an option does, as one of a host's facts may."""
    return f"./{path}" if path.startswith("-") else path


def options(args: dict[str, Any], check: bool) -> list[str]:
    """Those that do not depend on the host."""
    found = ["--delay-updates", "-F"] if args["delay_updates"] else []
    found += ["--compress"] if args["compress"] else []
    found += [f"--timeout={args['rsync_timeout']}"] if args["rsync_timeout"] else []
    found += ["--dry-run"] if check else []
    found += ["--delete-after"] if args["delete"] else []
    found += ["--existing"] if args["existing_only"] else []
    found += ["--checksum"] if args["checksum"] else []
    found += ["--copy-links"] if args["copy_links"] else []
    if args["archive"]:
        found += ["--archive", *(f"--no-{name}" for name in OF_ARCHIVE if args[name] is False)]
    else:
        found += [f"--{name}" for name in OF_ARCHIVE if args[name] is True]
    found += ["--dirs"] if args["dirs"] else []
    found += ["--partial"] if args["partial"] else []
    if args["link_dest"]:
        found += ["-H", "-vv", *(f"--link-dest={os.path.abspath(path)}" for path in args["link_dest"])]
    return found


def remote(hands: Hands, args: dict[str, Any], user: str) -> list[str]:
    """How rsync reaches the host, and what it runs there. Raises RmError for settings that cannot be used."""
    path = args["rsync_path"] or (f"sudo -n -u {shlex.quote(user)} rsync" if user else "")
    rsync = [f"--rsync-path={path}"] if path else []
    if any("--rsh" in option for option in args["rsync_opts"]):
        return rsync
    return [f"--rsh={shlex.join(ssh_command(hands, args))}", *rsync]


def ssh_command(hands: Hands, args: dict[str, Any]) -> list[str]:
    from rm.adapters.hosts.identity import identities
    from rm.adapters.hosts.route import arguments, route_to

    host, settings = hands.host, hands.settings
    assert settings is not None
    route = route_to(host, settings)
    keys = identities(host, settings, route)
    known = [str(settings.known_hosts)]
    if settings.users_known_hosts:
        known += [os.path.expanduser("~/.ssh/known_hosts"), *map(str, route.known_hosts)]
    quoted = " ".join(f'"{file}"' for file in dict.fromkeys(known))
    command = ["ssh", *(["-F", settings.config] if settings.config else [])]
    command += [] if args["ssh_connection_multiplexing"] else ["-S", "none"]
    for option in (
        "BatchMode=yes",
        f"ConnectTimeout={max(1, round(settings.connect_timeout_s))}",
        "StrictHostKeyChecking=yes",
        f"UserKnownHostsFile={quoted}",
        f"Port={args['dest_port'] or host.port}",
    ):
        command += ["-o", option]
    command += [] if settings.users_known_hosts else ["-o", "GlobalKnownHostsFile=/dev/null"]
    files = [args["private_key"]] if args["private_key"] else map(str, keys.files)
    for file in files:
        command += ["-i", os.path.expanduser(file)]
    command += ["-o", "IdentitiesOnly=yes"] if args["private_key"] or not keys.agent else []
    return [*command, *arguments(host, settings)]


def _ran(hands: Hands, command: list[str]) -> tuple[int, str, str]:
    """It ends with the run. What the host's rsync says takes no more memory than is kept of it."""
    with (
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process,
        selectors.DefaultSelector() as selector,
    ):
        assert process.stdout is not None
        assert process.stderr is not None
        out, err = bytearray(), bytearray()
        selector.register(process.stdout, selectors.EVENT_READ, out)
        selector.register(process.stderr, selectors.EVENT_READ, err)
        try:
            while selector.get_map():
                for key, _ in selector.select(LOOK_S):
                    if data := os.read(key.fd, READ_BYTES):
                        key.data.extend(data)
                    else:
                        selector.unregister(key.fileobj)
                del err[:-ERROR_BYTES]
                if len(out) > OUT_BYTES:
                    said = f"rsync lists more than {OUT_BYTES >> 20} MiB of changes"
                    raise ControlFailed(f"{said}, and was ended. Synchronize the tree in parts.")
                _go_on(hands)
            while process.poll() is None:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(LOOK_S)
                _go_on(hands)
        except ControlFailed:
            process.kill()
            raise
        return process.returncode, out.decode(errors="replace"), err.decode(errors="replace")


def _go_on(hands: Hands) -> None:
    if hands.stopping.is_set():
        raise ControlFailed("The run was ended while rsync ran. Run the playbook again.")


def _why(hands: Hands, code: int, err: str) -> str:
    said = "\n".join(err.strip().splitlines()[-ERROR_LINES:]) or f"rsync ended with code {code}"
    if code == 127 or "command not found" in said or "rsync: not found" in said:
        return f"rsync is not installed on host {hands.host.name}: {said}"
    return said
