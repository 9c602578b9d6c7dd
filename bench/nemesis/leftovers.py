"""What jobs left behind on hosts after all of them have ended."""

from __future__ import annotations

import time
from collections.abc import Iterator

from bench.nemesis.faults import is_supervisor, processes, words
from bench.nemesis.site import Site

PATIENCE_S = 20.0
FILES = (
    "ls -A /var/lib/rm/jobs 2>/dev/null; find /sys/fs/cgroup -maxdepth 4 -type d -name 'job_*' 2>/dev/null"
)


def leftovers(site: Site) -> list[str]:
    """Processes, folders and control groups of jobs; what goes by itself soon is waited for."""
    deadline = time.monotonic() + PATIENCE_S
    while (found := list(_look(site))) and time.monotonic() < deadline:
        time.sleep(1.0)
    return found


def _look(site: Site) -> Iterator[str]:
    for host in site.lab.hosts:
        for process in processes(site, host.name):
            if is_supervisor(process) or str(site.notes) in words(process):
                yield f"{host.name}: process {' '.join(words(process))[:80]}"
        said = site.lab.exec(host.name, ["sh", "-c", FILES]).stdout.decode(errors="replace")
        for line in said.split():
            yield f"{host.name}: {line}"
