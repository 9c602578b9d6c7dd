"""What is told of many one-way delays: their spread, jitter and histogram. Pure; microseconds."""

BUCKET_US = 10  # of histograms
BUCKETS = 1_000  # of one, at most; else they become wider


def spread(delays):
    """The least, the median, the 95th percentile and the largest of some delays."""
    ordered = sorted(delays)
    return {
        "min": ordered[0],
        "median": ordered[len(ordered) // 2],
        "p95": ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))],
        "max": ordered[-1],
    }


def jitter(delays):
    """The mean difference between one delay and the next (as in RFC 3550, 6.4.1, without the smoothing)."""
    steps = [abs(delays[n + 1] - delays[n]) for n in range(len(delays) - 1)]
    return sum(steps) // len(steps) if steps else 0


def histogram(delays):
    """How many of the delays fall to each multiple of BUCKET_US, or of ten, a hundred … times that."""
    width = BUCKET_US
    while True:
        found = {}
        for delay in delays:
            bucket = (delay + width // 2) // width * width
            found[bucket] = found.get(bucket, 0) + 1
        if len(found) <= BUCKETS:
            return sorted(found.items())
        width *= 10
