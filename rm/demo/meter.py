"""Samples the byte counters of the shared links' hosts, through the agents' own program over SSH."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Sequence

from rm.demo.stage import Stage
from rm.errors import RmError

INTERVAL_US = 10_000
DURATION_US = 3_600_000_000
Sample = tuple[int, int]  # (at, in microseconds of the host's clock; bytes sent so far)


class LinkMeter:
    """One sampler per watched host; its samples stay when the stage has gone."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._samples: dict[str, list[Sample]] = {}

    def watch(self, hosts: Sequence[str]) -> None:
        """Sample these hosts from now until the stage is taken down."""
        for host in hosts:
            if host not in self._samples:
                self._start(host)

    def _start(self, host: str) -> None:
        program = ["python3", "-S", "-E", "/opt/rm/agents/rm_shape.py"]
        process = self._stage.keep(self._stage.lab.ssh_command(host, program))
        samples = self._samples[host] = []
        assert process.stdin is not None
        request = {"op": "watch", "interface": "eth0", "interval_us": INTERVAL_US, "duration_us": DURATION_US}
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()
        threading.Thread(target=_read, args=(process, samples), name=f"meter-{host}", daemon=True).start()

    def between(self, host: str, begin_us: int, end_us: int) -> list[Sample]:
        """The samples within a span of time."""
        found = [s for s in list(self._samples.get(host, ())) if begin_us <= s[0] <= end_us]
        if len(found) < 2:
            raise RmError(f"The link of {host} was not measured: its counters could not be read.")
        return found

    def covers(self, host: str, begin_us: int) -> bool:
        """Whether the host was watched from the beginning of a span."""
        samples = self._samples.get(host)
        return samples is not None and len(samples) > 0 and samples[0][0] <= begin_us

    def mean_mbps(self, host: str, begin_us: int, end_us: int) -> float:
        """What the host sent within a span, in Mbit/s."""
        found = self.between(host, begin_us, end_us)
        return 8 * (found[-1][1] - found[0][1]) / (found[-1][0] - found[0][0])


def _read(process: subprocess.Popen[bytes], samples: list[Sample]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        try:
            message = json.loads(line)
        except ValueError:  # cut off by the end
            return
        if message.get("event") == "counters":
            samples.append((message["now_us"], message["tx_bytes"]))
