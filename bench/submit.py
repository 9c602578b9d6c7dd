"""`rmx submit` and `rmx queue` as processes, beside the least that a command line with click can need; and by
`RM_DAEMON=ssh://`, through a connection that is kept, to an sshd of this machine."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Mapping

from bench import peers
from bench.cluster import RMX, cluster
from bench.figure import Figure, Settings
from bench.processor import processor_s
from rm.errors import RmError
from tests.ssh_server import ssh_server

TARGET_MS, SSH_TARGET_MS = 35.0, 150.0


def cost_ms(argv: list[str], environment: Mapping[str, str]) -> tuple[float, float]:
    """Wall and processor time of a command."""
    since, before = time.perf_counter(), processor_s()
    subprocess.run(argv, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=True)
    return 1000 * (time.perf_counter() - since), 1000 * (processor_s() - before)


def run(settings: Settings) -> list[Figure]:
    count = 10 if settings.quick else 30
    with cluster() as made:
        script = made.directory / "job.sh"
        script.write_text("#!/bin/sh\n#SBATCH --cpus-per-task=1\ntrue\n")
        commands = [[RMX, "submit", str(script)], [RMX, "queue"], [sys.executable, "-c", "import click"]]
        with ssh_server(made.directory / "ssh") as server:
            far = {**server.environment, "RM_DAEMON": f"ssh://root@control{made.socket}"}
            ways = [(argv, made.environment) for argv in commands] + [(commands[1], far)]
            for way in ways:  # the first run reads the files from the disk, and connects
                cost_ms(*way)
            logins = server.logins()
            runs = [[part for way in ways for part in cost_ms(*way)] for _ in range(count)]
            if server.logins() != logins:
                raise RmError("The connection over SSH was not kept.")
    medians = map(statistics.median, zip(*runs, strict=True))
    mine, mine_used, queue, queue_used, click, click_used, ssh, ssh_used = medians
    return [
        Figure(
            "rmx submit as a process, median",
            mine,
            "ms",
            f"of {count}; {mine_used:.0f} ms of processor",
            TARGET_MS,
            peer=peers.SUBMIT_PROCESS,
        ),
        Figure("rmx queue as a process, median", queue, "ms", f"{queue_used:.0f} ms of processor", TARGET_MS),
        Figure(
            "rmx queue with RM_DAEMON=ssh://, median",
            ssh,
            "ms",
            f"connection kept; {ssh_used:.0f} ms of processor; {ssh - queue:.0f} ms more than by the socket",
            SSH_TARGET_MS,
        ),
        Figure(
            "python -c 'import click', median",
            click,
            "ms",
            f"in turn with them; {click_used:.0f} ms of processor; rmx submit: {mine / click:.2f} times that",
        ),
    ]
