"""The speed figures: `python -m bench [NAME...] [--quick] [--json FILE]`.

`python -m bench nemesis --help` tells of the benchmark of faults."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import signal
import sys
import time
from pathlib import Path
from typing import Any

from bench.figure import Figure, Settings, missed
from bench.store import sync_ms
from rm.errors import RmError

BENCHMARKS = (
    "submit", "api", "running", "scheduling", "rotation", "loops", "simulator", "scale", "listing", "backlog",
    "store", "usage", "grid", "gaps", "alerts", "playbook", "hostile", "turns", "array",
)  # fmt: skip
BY_NAME = (
    "align",
    "crowd",
    "fidelity",
    "latencybg",
    "modes",
    "never_worse",
    "ring",
    "several_links",
    "soak",
    "solvers",
    "takeover",
    "unmanaged",
)  # long ones
KNOWN = BENCHMARKS + BY_NAME


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    one, five, _ = os.getloadavg()
    return {
        "cpus": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_1min": round(one, 2),
        "load_5min": round(five, 2),
        "sync_ms": round(sync_ms(Path("/var/tmp")), 3),
    }


def main() -> int:
    if sys.argv[1:2] == ["nemesis"]:  # it judges, and has options of its own
        from bench.nemesis import program

        return program.main(sys.argv[2:])
    parser = argparse.ArgumentParser(prog="python -m bench", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of: {', '.join(KNOWN)}")
    parser.add_argument("--quick", action="store_true", help="fewer samples")
    parser.add_argument("--json", metavar="FILE", help="write the figures there too")
    parser.add_argument("--hosts", type=int, default=16, metavar="N", help="lab hosts for `playbook`")
    parser.add_argument(
        "--install-peers",
        action="store_true",
        help="fetch what rm is compared with (pyinfra, solvers), into a cache directory",
    )
    chosen = parser.parse_args()
    if unknown := set(chosen.names) - set(KNOWN):
        parser.error(f"there is no benchmark {', '.join(sorted(unknown))}; known: {', '.join(KNOWN)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that labs and daemons are taken away
    settings = Settings(chosen.quick, chosen.hosts, chosen.install_peers)
    before = machine()
    print(
        f"{before['cpus']} cores, Linux {before['kernel']}, Python {before['python']}, load before "
        f"{before['load_1min']:.2f}, one sync of /var/tmp {before['sync_ms']:.2f} ms"
    )
    results: dict[str, list[Figure]] = {}
    failures: dict[str, str] = {}
    since = time.perf_counter()
    for name in chosen.names or BENCHMARKS:
        began = time.perf_counter()
        try:
            results[name] = importlib.import_module(f"bench.{name}").run(settings)
        except RmError as error:
            failures[name] = str(error)
        print(f"\n{name} ({time.perf_counter() - began:.0f} s)")
        if name in failures:
            print(f"  could not be measured: {failures[name]}")
        for figure in results.get(name, ()):
            print("\n".join(figure.lines()))
    after = machine()
    short = missed(figure for figures in results.values() for figure in figures)
    print(f"\nAll in {time.perf_counter() - since:.0f} s; load afterwards {after['load_1min']:.2f}.")
    print(f"Targets not reached: {'; '.join(f.what for f in short) or 'none'}.")
    if chosen.json:
        report = {
            "version": 1, "machine": {"before": before, "after": after}, "failures": failures,
            "figures": {name: [f.to_json() for f in figures] for name, figures in results.items()},
        }  # fmt: skip
        Path(chosen.json).write_text(json.dumps(report, indent=1) + "\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
