"""Programs that rm is compared with, each in an environment of its own below the user's cache directory."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from bench.figure import Settings

PEERS = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rm-bench"


def peer_program(name: str, program: str, requirements: tuple[str, ...], settings: Settings) -> Path | None:
    """The path of `program` in the environment `name`, made if `settings` asks for it; None without."""
    path = PEERS / name / "bin" / program
    complete = PEERS / name / "complete"  # an interrupted installation leaves an interpreter, too
    if not complete.exists() and settings.install_peers:
        PEERS.mkdir(parents=True, exist_ok=True)
        for argv in (
            [sys.executable, "-m", "venv", str(PEERS / name)],
            [str(path.with_name("pip")), "install", "--quiet", *requirements],
        ):
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
            if done.returncode:
                shutil.rmtree(PEERS / name, ignore_errors=True)
                print(f"  Without {name}, which cannot be installed: {done.stderr.strip()[-300:]}")
                return None
        complete.touch()
    if not complete.exists():
        print(f"  Without {name}: --install-peers installs it into {PEERS}.")
        return None
    return path
