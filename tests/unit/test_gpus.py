"""GPUs and their errors: what nvidia-smi and the kernel's log say, up to the sentences of the alert."""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rm.core.alerts.gpu_errors import RECENT_S, gpu_errors
from rm.daemon.alerts.facts import facts_of
from rm.protocol.hosts import HostFacts
from tests import recorded_gpu

sys.path.insert(0, str(Path(__file__).parents[2] / "agents"))
import rm_gpus

Driver = Callable[..., str]


@pytest.fixture
def driver(tmp_path: Path) -> Driver:
    """A nvidia-smi that prints rows (by the queried names) in the real one's form, and refuses some names."""

    def make(*gpus: dict[str, str], refuses: tuple[str, ...] = (), code: int = 0, says: str = "") -> str:
        path = tmp_path / "nvidia-smi"
        path.write_text(f"""#!{sys.executable}
import sys
asked = next(one for one in sys.argv if one.startswith("--query-gpu=")).partition("=")[2].split(",")
assert "--format=csv,noheader,nounits" in sys.argv
for name in asked:
    if name in {refuses!r}:
        print(f'Field "{{name}}" is not a valid field to query.\\n')
        sys.exit(2)
for gpu in {gpus!r}:
    print(", ".join(gpu.get(name, "[N/A]") for name in asked))
sys.stdout.write({says!r})
sys.exit({code})
""")
        path.chmod(0o755)
        return str(path)

    return make


def gpu(index: int) -> dict[str, str]:
    bus = f"00000000:{index + 0x3B:02X}:00.0"
    return {"index": str(index), "uuid": f"GPU-{index}", "name": "NVIDIA H100 80GB HBM3",
            "memory.total": "81559", "pci.bus_id": bus, "retired_pages.pending": "No"}  # fmt: skip


def read(**told: Any) -> HostFacts:
    """The facts as the channel reads them."""
    return msgspec.convert(told, HostFacts)


def test_a_good_gpu_and_one_with_errors(driver: Driver) -> None:
    bad = {"ecc.errors.uncorrected.volatile.total": "3", "ecc.errors.uncorrected.aggregate.total": "17",
           "pcie.link.width.current": "8", "pcie.link.width.max": "16", "remapped_rows.failure": "1",
           "remapped_rows.pending": "0", "retired_pages.pending": "Yes"}  # fmt: skip
    good = {"ecc.errors.uncorrected.volatile.total": "0", "pcie.link.width.current": "16",
            "pcie.link.width.max": "16", "remapped_rows.failure": "0"}  # fmt: skip
    good["utilization.gpu"] = "0"
    first, second = rm_gpus.gpus(driver({**gpu(0), **good}, {**gpu(1), **bad}))
    assert (first["busy_pct"], second["busy_pct"]) == (0, None)
    assert (first["model"], first["mem_bytes"], first["bus"]) == (
        "NVIDIA H100 80GB HBM3", 81559 << 20, "0000:3b:00",
    )  # fmt: skip
    assert (first["ecc_uncorrected"], first["ecc_uncorrected_ever"]) == (0, None)
    assert (second["ecc_uncorrected"], second["ecc_uncorrected_ever"]) == (3, 17)
    facts = facts_of(read(gpus=[first, second], disk_free_bytes=5), 9)
    assert (facts.at_us, facts.disk_free_bytes, facts.gpus) == (9, 5, 2)
    assert facts.gpu_errors == (
        "GPU 1 has 3 uncorrected memory errors",
        "GPU 1 cannot replace its bad memory any more",
        "GPU 1 has bad memory and needs a reset to leave it out",
        "GPU 1 runs its PCIe link at x8 of x16",
    )


def test_what_a_real_driver_says(driver: Driver, tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    log.write_text(f"4,1,233732163,-;{recorded_gpu.XID}\n")
    (one,) = rm_gpus.gpus(driver(recorded_gpu.ANSWERS))
    assert one == {
        "index": 0, "uuid": recorded_gpu.UUID, "model": recorded_gpu.MODEL, "mem_bytes": 81559 << 20,
        "bus": "0000:00:06", "ecc_uncorrected": 0, "ecc_uncorrected_ever": 0, "retirement_pending": None,
        "remapping_pending": False, "remapping_failed": False, "link_width": 16, "link_width_max": 16,
        "busy_pct": 0,
    }  # fmt: skip
    (xid,) = rm_gpus.xids(str(log))
    assert (xid["bus"], xid["code"], xid["count"]) == (one["bus"], 31, 1)
    assert xid["said"].startswith("pid=3340, name=python3, channel 0x0000000a, intr 00000000. MMU Fault")
    assert gpu_errors(read(gpus=[one], gpu_xids=[xid])) == ()  # the program's fault
    assert rm_gpus.UNKNOWN.findall(recorded_gpu.UNKNOWN_FIELD) == ["nonsense"]


def test_what_a_gpu_or_driver_does_not_tell_is_no_error(driver: Driver) -> None:
    (plain,) = rm_gpus.gpus(driver(gpu(0)))
    assert plain["ecc_uncorrected"] is None
    assert gpu_errors(read(gpus=[plain])) == ()
    old = ("remapped_rows.pending", "remapped_rows.failure", "pcie.link.width.max")
    (told,) = rm_gpus.gpus(driver({**gpu(0), "ecc.errors.uncorrected.volatile.total": "2"}, refuses=old))
    assert "remapping_failed" not in told
    assert told["ecc_uncorrected"] == 2


def test_a_lost_gpu_does_not_hide_the_others(driver: Driver) -> None:
    lost = "Unable to determine the device handle for GPU0000:3C:00.0: GPU is lost.  Reboot the system\n"
    found = rm_gpus.gpus(driver(gpu(0), says=lost, code=15))
    assert [one["uuid"] for one in found] == ["GPU-0"]
    assert rm_gpus.gpus(driver(says="No devices were found\n")) == []
    failed = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n"
    assert rm_gpus.gpus(driver(says=failed, code=9)) == []
    assert rm_gpus.gpus("/nonexistent/nvidia-smi") == []


def test_errors_in_the_kernels_log_are_told_once_a_kind(driver: Driver, tmp_path: Path) -> None:
    def ago(seconds: float) -> int:
        return round((time.clock_gettime(time.CLOCK_MONOTONIC) - seconds) * 1e6)

    log = tmp_path / "kmsg"
    lost = "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
    log.write_text(
        f"6,1,100,-;Linux version 6.1\n"
        f"3,7,{ago(50)},-;NVRM: GPU at PCI:0000:3b:00: GPU-0\n"
        f"3,8,{ago(50)},-;{lost}\n SUBSYSTEM=pci\n DEVICE=+pci:0000:3b:00.0\n"
        f"3,9,{ago(40)},-;{lost}\n"
        f"3,10,{ago(30)},-;NVRM: Xid (PCI:0000:3c:00): 31, pid=77, name=python, Ch 00000010, MMU Fault\n"
        f"3,11,{ago(20)},-;NVRM: Xid (PCI:0000:ff:00): 48, An uncorrectable double bit error\n"
    )
    found = rm_gpus.xids(str(log))
    assert [(one["bus"], one["code"], one["count"]) for one in found] == [
        ("0000:ff:00", 48, 1),
        ("0000:3c:00", 31, 1),
        ("0000:3b:00", 79, 2),
    ]
    assert "fallen off" in found[2]["said"]
    facts = read(gpus=rm_gpus.gpus(driver(gpu(0), gpu(1))), gpu_xids=found)
    assert gpu_errors(facts) == (
        "the GPU at 0000:ff:00 reports Xid 48 (uncorrected memory error)",
        "GPU 0 reports Xid 79 (it has fallen off the bus), 2 times",
    )
    assert gpu_errors(read(gpu_xids=[{**found[0], "ago_s": RECENT_S + 1}])) == ()
    assert rm_gpus.xids(str(tmp_path / "none")) == []


def test_the_kernels_own_log_can_be_read_or_not() -> None:
    assert isinstance(rm_gpus.xids(), list)
