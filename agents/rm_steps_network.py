"""`network_pair`: one side of a test between two hosts, which measure both ways at the same time.

Both sides reflect. The one that leads measures the loss of each direction on the quiet path, then sends as
fast as it goes; the other begins to send as soon as that reaches it. Links are full duplex, so the two
streams share no direction.
"""

import json
import os
import select
import time

from rm_steps_base import StepFailed

QUIET_US = 1_500_000  # a reflector ends when nothing came for so long


def do_network_pair(run, args):
    """{answered, throughput_bps} of what this side sent; the one that leads reports both losses, too."""
    news = _reflector(args)
    try:
        return dict(_lead(args) if args["leads"] else _follow(args, news), changed=False)
    finally:
        os.close(news)


def _reflector(args):
    """Start to answer the peer, in a process that outlasts this step until the peer is done; a pipe that
    reports, by one JSON line each, that it listens and that the peer sends."""
    import rm_probe

    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.fork() == 0:
                os.setsid()
                null = os.open(os.devnull, os.O_RDWR)
                for number in range(3):
                    os.dup2(null, number)
                os.closerange(3, writing)
                os.closerange(writing + 1, 1024)

                def tell(what):
                    os.write(writing, json.dumps(what).encode() + b"\n")

                request = {"port": args["port"], "duration_us": args["longest_us"], "idle_us": QUIET_US}
                try:
                    rm_probe.reflect(dict(request, notify=tell, tell_sink=True))
                except OSError as problem:
                    tell({"error": problem.strerror or str(problem)})
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    first = _news(reading, args["patience_s"])
    if "error" in first or not first:
        os.close(reading)
        raise StepFailed("Cannot reflect on port %d: %s." % (args["port"], first.get("error", "it died")))
    return reading


def _news(pipe, within_s):
    """The next report of the reflector; {} when nothing came in time."""
    if not select.select([pipe], [], [], within_s)[0]:
        return {}
    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(pipe, 1)
        if not piece:
            return {}
        line += piece
    return json.loads(line)


def _lead(args):
    import rm_probe

    end = time.monotonic() + args["patience_s"]
    where = {"address": args["address"], "port": args["port"]}
    while not rm_probe.probe(dict(where, kind="rtt", count=3, interval_us=2000))["received"]:
        if time.monotonic() > end:
            return {"answered": False, "throughput_bps": 0}
        time.sleep(0.05)
    probes = {"count": args["count"], "interval_us": args["interval_us"], "size_bytes": args["size_bytes"]}
    found = rm_probe.probe(dict(where, kind="oneway", **probes))
    return {
        "loss_forward_pct": found["loss_forward_pct"],
        "loss_backward_pct": found["loss_backward_pct"] or 0.0,
        **_send(where, args),
    }


def _follow(args, news):
    """Send as soon as the peer does; it has first to find us, and to measure the loss."""
    end = time.monotonic() + args["patience_s"] + args["count"] * args["interval_us"] / 1e6 + 5.0
    while time.monotonic() < end:
        if _news(news, end - time.monotonic()).get("event") == "sinking":
            return _send({"address": args["address"], "port": args["port"]}, args)
    return {"answered": False, "throughput_bps": 0}


def _send(where, args):
    import rm_probe

    how = {"kind": "throughput", "duration_us": args["duration_us"], "rate_bps": args["rate_bps"]}
    try:
        rate = rm_probe.probe(dict(where, **how))
    except rm_probe.KernelRefused as refusal:
        return {"answered": True, "throughput_bps": 0, "error": str(refusal)}
    return {"answered": True, "throughput_bps": rate["throughput_bps"]}
