"""`rm_burn_in`: load a host's processors, memory, disk and GPUs, check what they compute, and measure.

Each test says what it measured and whether anything came out wrong: a digest that differs between
processors, a memory page or a disk block that reads back differently, a GPU with errors, the kernel's
machine check counters. The network between hosts is tested by pairs, from the control side
(rm_steps_network.py).
"""

import contextlib
import hashlib
import os
import time

from rm_step_bounds import end_first
from rm_steps_base import StepFailed, asks, find_tool

BLOCK = 1 << 20


def do_rm_burn_in(run, args):
    if run.check:
        said = "would load %s for %d s each" % (", ".join(args["tests"]), args["seconds"])
        return {"changed": False, "skipped": True, "might_run": True, "msg": said}
    before, found, faults = machine_checks(), {}, []
    tests = {"cpu": _cpu, "memory": _memory, "disk": _disk, "gpu": _gpu}
    for name in args["tests"]:
        found[name] = tests[name](args)
        faults += ["%s: %s" % (name, fault) for fault in found[name].pop("faults")]
    after = machine_checks()
    for name in sorted(after):
        if after[name] > before.get(name, 0):
            faults.append("%s: %d new hardware errors" % (name, after[name] - before.get(name, 0)))
    found.update(changed=False, failed=bool(faults), faults=faults)
    said = "; ".join(faults) if faults else "%s held" % ", ".join(args["tests"])
    return dict(found, msg=said)


def machine_checks():
    """The kernel's counters of hardware errors: machine check events, memory controllers (EDAC)."""
    found = {}
    with contextlib.suppress(OSError), open("/proc/interrupts") as file:
        for line in file:
            words = line.split()
            if words and words[0] == "MCE:":
                found["machine checks"] = sum(int(word) for word in words[1:] if word.isdigit())
    top = "/sys/devices/system/edac/mc"
    with contextlib.suppress(OSError):
        for name in os.listdir(top):
            for kind in ("ue_count", "ce_count"):
                with contextlib.suppress(OSError, ValueError), open(os.path.join(top, name, kind)) as file:
                    found["%s %s" % (name, kind)] = int(file.read())
    return found


def _children(count, work):
    """Run `work(number, write)` in that many children; what they wrote, None for one that died."""
    pipes = []
    for number in range(count):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.close(reading)
                os.nice(5)  # the agent has to stay reachable
                os.write(writing, repr(work(number)).encode())
            finally:
                os._exit(0)
        os.close(writing)
        pipes.append((child, reading))
    texts = []
    for child, reading in pipes:
        with os.fdopen(reading, "rb") as file:
            text = file.read()
        _, status = os.waitpid(child, 0)
        texts.append(text.decode() if status == 0 and text else None)
    return texts


def _cpu(args):
    """Every processor computes the same digests for a time; a different one is a broken processor."""
    import ast

    usable = sorted(os.sched_getaffinity(0))
    seconds = args["seconds"]

    def work(number):
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, {usable[number]})
        block, end, rounds, wrong = bytes(range(256)) * 4096, time.monotonic() + seconds, 0, 0
        expected = None
        while time.monotonic() < end:
            digest = hashlib.sha512(hashlib.sha256(block).digest() + block).hexdigest()
            expected = expected or digest
            wrong += digest != expected
            rounds += 1
        return rounds, wrong, expected

    results = [text and ast.literal_eval(text) for text in _children(len(usable), work)]
    told = [one for one in results if one]
    faults = ["the test on processor %d died" % usable[i] for i, one in enumerate(results) if not one]
    usual = max({one[2] for one in told}, key=[one[2] for one in told].count) if told else None
    for i, one in enumerate(results):
        if one and (one[1] or one[2] != usual):
            faults.append("processor %d computed a wrong digest" % usable[i])
    rounds = sorted(one[0] for one in told) or [0]
    return {
        "processors": len(usable),
        "slowest_rounds": rounds[0],
        "median_rounds": rounds[len(rounds) // 2],
        "faults": faults,
    }


def _available():
    with open("/proc/meminfo") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return 0


def _memory(args):
    """Fill a share of the free memory with patterns and read it back, over and over."""
    import ast
    import mmap

    size = _available() * args["memory_percent"] // 100
    if args["memory_mb"]:
        size = min(size, args["memory_mb"] << 20)
    workers = max(1, min(len(os.sched_getaffinity(0)), size // (64 * BLOCK)))
    share = max(BLOCK, size // workers // BLOCK * BLOCK)
    end = time.monotonic() + args["seconds"]

    def work(number):
        end_first()  # others may want meanwhile what is free when the test begins
        wrong = passes = 0
        with mmap.mmap(-1, share) as memory:
            while passes == 0 or time.monotonic() < end:
                for pattern in (b"\x00", b"\xff", b"\x55", b"\xaa"):
                    block = bytes([pattern[0] ^ (passes & 0xFF)]) * BLOCK
                    for at in range(0, share, BLOCK):
                        memory[at : at + BLOCK] = block
                    for at in range(0, share, BLOCK):
                        wrong += memory[at : at + BLOCK] != block
                    if passes and time.monotonic() >= end:
                        break
                passes += 1
        return passes, wrong

    results = [text and ast.literal_eval(text) for text in _children(workers, work)]
    faults = ["a test was killed (out of memory?)" for one in results if not one]
    wrong = sum(one[1] for one in results if one)
    faults += ["%d blocks of 1 MiB read back differently than written" % wrong] if wrong else []
    passes = min([one[0] for one in results if one] or [0])
    return {"bytes": share * workers, "passes": passes, "faults": faults}


def _disk(args):
    """Write, sync and read back a file; its rates, and whether it came back as written."""
    folder = args["disk_path"]
    if not os.path.isdir(folder):
        raise StepFailed("The directory %s for the disk test does not exist." % folder)
    free = os.statvfs(folder)
    size = min(args["disk_mb"] * BLOCK, free.f_bavail * free.f_frsize // 2) // BLOCK * BLOCK
    if size < BLOCK:
        return {"bytes": 0, "faults": ["%s has no space for the test" % folder]}
    path = os.path.join(folder, ".rm-burn-in.%d" % os.getpid())
    seed, digest, back, faults = os.urandom(BLOCK), hashlib.sha1(), hashlib.sha1(), []
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(fd, "w+b", 0) as file:
            began = time.monotonic()
            for number in range(size // BLOCK):
                block = number.to_bytes(8, "big") + seed[8:]
                digest.update(block)
                file.write(block)
            os.fsync(file.fileno())
            written = time.monotonic() - began
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)  # read from the disk, if it can
            file.seek(0)
            began = time.monotonic()
            for block in iter(lambda: file.read(BLOCK), b""):
                back.update(block)
            read = time.monotonic() - began
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    if digest.digest() != back.digest():
        faults.append("%s reads back differently than written" % folder)
    rate = {"write_mbps": int(size / written / 1e6), "read_mbps": int(size / read / 1e6), "bytes": size}
    for name in ("write", "read"):
        wanted = args["min_disk_%s_mbps" % name]
        if rate[name + "_mbps"] < wanted:
            faults.append("%s of %s at %d MB/s, less than %d" % (name, folder, rate[name + "_mbps"], wanted))
    return dict(rate, faults=faults)


def _gpu(args):
    """Ask the driver about errors; load the GPUs with DCGM's diagnostic where it is installed."""
    from rm_gpus import gpus as answering
    from rm_gpus import xids

    program = find_tool("nvidia-smi")
    gpus, before = answering(program) if program else [], _xid_counts(xids())
    faults = [] if program or not args["expect_gpus"] else ["there is no nvidia-smi"]
    if args["expect_gpus"] is not None and program and len(gpus) != args["expect_gpus"]:
        faults.append("%d GPUs answer, %d should" % (len(gpus), args["expect_gpus"]))
    dcgmi, loaded = find_tool("dcgmi"), False
    if dcgmi and gpus:
        code, out = asks([dcgmi, "diag", "-r", "2"], timeout_s=max(600, args["seconds"]))
        loaded = True
        if code != 0 or "Fail" in out:
            bad = [" ".join(line.replace("|", " ").split()) for line in out.splitlines() if "Fail" in line]
            faults.append("dcgmi diag: %s" % ("; ".join(bad) or "exit code %d" % code))
        gpus = answering(program)
    for one in gpus:
        faults += ["GPU %d %s" % (one["index"], said) for said in _gpu_faults(one)]
    for (bus, code), count in sorted(_xid_counts(xids()).items()):
        if count > before.get((bus, code), 0):
            faults.append("the GPU at %s reported Xid %d during the test" % (bus, code))
    told = [{"index": one["index"], "uuid": one["uuid"], "model": one["model"]} for one in gpus]
    return {"gpus": told, "diagnostic": loaded, "faults": faults}


def _gpu_faults(one):
    if one.get("ecc_uncorrected"):
        yield "has %d uncorrected memory errors" % one["ecc_uncorrected"]
    if one.get("remapping_failed"):
        yield "cannot replace its bad memory any more"
    if one.get("retirement_pending") or one.get("remapping_pending"):
        yield "waits for a reset to leave bad memory out"
    width, widest = one.get("link_width"), one.get("link_width_max")
    if width and widest and width < widest:
        yield "runs its PCIe link at x%d of x%d" % (width, widest)


def _xid_counts(told):
    return {(one["bus"], one["code"]): one["count"] for one in told}
