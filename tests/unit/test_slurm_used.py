"""What jobs used and held, as sacct, seff and rmx show tell it."""

from __future__ import annotations

from dataclasses import replace

from rm.core.model.used import HostUsed, Used
from tests.command_line import Rmx
from tests.fake_service import Daemon
from tests.slurm_program import Slurm
from tests.unit.test_slurm_accounting import jobs, told  # noqa: F401

GIB = 1 << 30
USED = Used(2_500_000, 750_000, 5224 << 10, 6 << 20, 24_013, 3 << 20)


def test_what_a_job_used_is_said_in_slurms_formats(slurm: Slurm, daemon: Daemon) -> None:
    daemon.service.put(1, used=(HostUsed("h1", -1, USED),))
    times = told(slurm, 1, "JobID,TotalCPU,UserCPU,SystemCPU,MaxRSS")
    assert times == [
        ["1", "00:03.250", "00:02.500", "00:00.750", ""],
        ["1.batch", "00:03.250", "00:02.500", "00:00.750", "5224K"],
    ]
    fields = "AveRSS,AveCPU,MaxDiskRead,MaxDiskWrite,MaxRSSNode,MaxRSSTask,TRESUsageInTot,TRESUsageOutTot"
    assert told(slurm, 1, fields)[1] == [
        "5224K", "00:00:03", "24013", "3M", "h1", "0",
        "cpu=00:00:03,energy=0,fs/disk=24013,mem=5224K", "energy=0,fs/disk=3M",
    ]  # fmt: skip


def test_seff_says_what_part_of_what_it_held_a_job_used(slurm: Slurm, daemon: Daemon) -> None:
    minute_us = 60_000_000
    used = replace(USED, user_us=2 * minute_us, system_us=30_000_000, mem_bytes=3 << 29, gpu_us=4 * minute_us,
                   gpu_busy_us=minute_us)  # fmt: skip
    spec = replace(daemon.service.table[1].spec, ntasks=2, cpus_per_task=2, mem_bytes_per_task=2 * GIB,
                   mem_bytes_per_host=0)  # fmt: skip
    times = {"started_us": minute_us, "ended_us": 11 * minute_us}
    daemon.service.put(1, spec=spec, used=(HostUsed("h1", -1, used),), **times)
    (user,) = {job.spec.user for job in daemon.service.table.values()}
    said = slurm("seff", "1").out.splitlines()
    assert said[2].startswith(f"User/Group: {user}/")
    assert said[:2] + said[3:] == [
        "Job ID: 1", "Cluster: rm", "State: FAILED (exit code 3)", "Nodes: 1", "Cores per node: 4",
        "CPU Utilized: 00:02:30", "CPU Efficiency: 6.25% of 00:40:00 core-walltime",
        "Job Wall-clock time: 00:10:00", "Memory Utilized: 1.50 GB",
        "Memory Efficiency: 37.50% of 4.00 GB (1.00 GB/core)",
        "GPU Efficiency: 25.00% of 00:04:00 GPU-walltime",
    ]  # fmt: skip
    two = (HostUsed("h1", -1, used), HostUsed("h2", -1, used))
    daemon.service.put(1, spec=replace(spec, mem_bytes_per_task=0), used=two)
    said = slurm("seff", "1").out.splitlines()
    assert "Memory Utilized: 3.00 GB (estimated maximum)" in said
    assert not any(line.startswith("Memory Efficiency") for line in said)


def test_seff_of_a_job_that_waits_runs_or_is_an_element(slurm: Slurm) -> None:
    assert slurm("seff", "5").out.splitlines()[-2:] == [
        "State: PENDING", "Efficiency not available for jobs in the PENDING state."
    ]  # fmt: skip
    running = slurm("seff", "2")
    assert running.out.splitlines()[3:6] == ["State: RUNNING", "Nodes: 1", "Cores per node: 2"]
    assert "`sstat -a -j 2` says what it uses so far" in running.err
    assert slurm("seff", "4").out.splitlines()[:2] == ["Job ID: 4", "Array Job ID: 3_1"]
    for words in ((), ("1", "2")):
        refused = slurm("seff", *words)
        assert (refused.code, refused.out) == (1, "")
        assert "Name one job" in refused.err


def test_what_no_host_has_told_is_empty(slurm: Slurm) -> None:
    for line in told(slurm, 1, "TotalCPU,MaxRSS,MaxRSSNode,MaxDiskRead,TRESUsageInTot,ConsumedEnergy"):
        assert line == ["00:00:00", "", "", "", "", ""]


def test_the_largest_of_several_tasks_is_named(slurm: Slurm, daemon: Daemon) -> None:
    tasks = tuple(
        replace(daemon.service.table[2].tasks[0], rank=rank, host=f"h{rank // 2}") for rank in range(4)
    )
    small, large = replace(USED, mem_bytes=1 << 20), replace(USED, mem_bytes=3 << 20, user_us=3_600_000_000)
    of_tasks = tuple(HostUsed(f"h{rank // 2}", rank, large if rank == 2 else small) for rank in range(4))
    whole = (HostUsed("h0", -1, replace(USED, mem_bytes=GIB)), HostUsed("h1", -1, large))
    daemon.service.put(2, tasks=tasks, used=(*of_tasks, *whole))
    fields = "TotalCPU,MaxRSS,AveRSS,MaxRSSNode,MaxRSSTask,MinCPU,MinCPUTask"
    assert told(slurm, 2, fields) == [
        ["01:00:04", "", "", "", "", "", ""],
        ["01:00:04", "3M", "1536K", "h1", "2", "00:00:03", "0"],
    ]


def test_the_line_of_a_script_that_runs_once_is_its_own(slurm: Slurm, daemon: Daemon) -> None:
    job = daemon.service.table[2]
    spec = replace(job.spec, launch="batch")
    script, whole = replace(USED, user_us=10_000, system_us=0), replace(USED, energy_mj=2_048_000)
    used = (HostUsed(job.tasks[0].host, 0, script), HostUsed(job.tasks[0].host, -1, whole))
    daemon.service.put(2, spec=spec, used=used)
    lines = told(slurm, 2, "JobID,TotalCPU,ConsumedEnergy,ConsumedEnergyRaw")
    assert lines == [["2", "00:03.250", "2K", "2048"], ["2.batch", "00:00.010", "2K", "2048"]]


def test_gpus_are_resources_of_what_was_used(slurm: Slurm, daemon: Daemon) -> None:
    of_gpus = replace(USED, gpu_us=8_000_000, gpu_busy_us=2_480_000, gpu_mem_bytes=2 * GIB, energy_mj=9_999)
    daemon.service.put(1, used=(HostUsed("h1", -1, of_gpus),))
    assert told(slurm, 1, "TRESUsageInTot")[1] == [
        "cpu=00:00:03,energy=9,fs/disk=24013,gres/gpumem=2G,gres/gpuutil=31,mem=5224K"
    ]


def test_show_says_how_much_of_what_it_held_a_job_used(rmx: Rmx, daemon: Daemon) -> None:
    daemon.service.put(1, used=(HostUsed("h1", -1, replace(USED, mem_bytes=GIB // 4, system_us=0)),))
    (line,) = [line for line in rmx("show", "1").out.splitlines() if line.startswith("Used:")]
    # 2.5 s of the 4 s for which it held one processor
    assert line.split(maxsplit=1)[1] == (
        "256 MiB of 1 GiB of memory, processors busy 62 %, read 23.4 KiB, wrote 3 MiB"
    )
    daemon.service.put(1, used=())
    assert "Used:" not in rmx("show", "1").out


def test_show_names_the_host_with_the_most_and_those_that_told_nothing(rmx: Rmx, daemon: Daemon) -> None:
    task = daemon.service.table[2].tasks[0]
    tasks = tuple(replace(task, rank=rank, host=f"h{rank}") for rank in range(3))
    gpus = replace(USED, gpu_us=100, gpu_busy_us=12)
    used = (HostUsed("h0", -1, USED), HostUsed("h1", -1, replace(gpus, mem_bytes=GIB)))
    daemon.service.put(2, tasks=tasks, used=used)
    (line,) = [line for line in rmx("show", "2").out.splitlines() if line.startswith("Used:")]
    assert "1 GiB of memory on h1" in line
    assert "GPUs busy 12 %" in line
    assert line.endswith("not told by h2")
