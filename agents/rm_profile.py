"""From a job's byte counter to its traffic profile: period and communication phases. Pure.

Input: samples (time in microseconds, bytes sent so far), a few milliseconds apart. The counter is cut
into bursts by a threshold with hysteresis; autocorrelation of the rate finds the period, and so how many
bursts make one iteration; medians over the iterations give offsets, durations and rates, so that jitter
and a few disturbed iterations do not matter.
"""

MIN_SHARE = 0.08  # of the peak rate: what counts as communicating
ALIKE = 0.15  # an iteration that is longer or sends more by this share than the profile says is another one
OFTEN = 8  # iterations show the profile, one or two disturbed ones among them or not
RISE_US = 4_000  # shorter bursts are noise (control traffic, a lone acknowledgement)


def rates(samples, step_us):
    """The counter resampled to equal steps: bytes per step, by linear interpolation."""
    if len(samples) < 2:
        return []
    values, index = [], 0
    begin, end = samples[0][0], samples[-1][0]
    before = samples[0][1]
    for n in range(1, int((end - begin) // step_us) + 1):
        at = begin + n * step_us
        while index + 2 < len(samples) and samples[index + 1][0] < at:
            index += 1
        (t0, b0), (t1, b1) = samples[index], samples[index + 1]
        now = b0 + (b1 - b0) * (at - t0) / (t1 - t0) if t1 > t0 else b1
        values.append(max(0.0, now - before))
        before = now
    return values


def autocorrelation(values, longest):
    """Normalised autocorrelation for lags 0 … longest (biased, so that long lags do not win by chance)."""
    mean = sum(values) / len(values)
    centred = [v - mean for v in values]
    energy = sum(v * v for v in centred) or 1.0
    return [sum(map(_product, centred, centred[lag:])) / energy for lag in range(longest + 1)]


def _product(a, b):
    return a * b


def period_steps(values):
    """(lag of the period, strength 0…1); (0, 0.0) when nothing repeats.

    The shortest lag whose peak comes near the best one: multiples of the period peak as well.
    """
    longest = len(values) // 2
    if longest < 4:
        return 0, 0.0
    found = autocorrelation(values, longest)
    unbiased = [c * len(values) / (len(values) - lag) for lag, c in enumerate(found)]
    low = next((lag for lag, c in enumerate(unbiased) if c <= 0.0), longest)
    peaks = [
        lag for lag in range(max(low, 2), longest) if unbiased[lag - 1] <= unbiased[lag] > unbiased[lag + 1]
    ]
    if not peaks:
        return 0, 0.0
    best = max(unbiased[lag] for lag in peaks)
    if best <= 0.1:
        return 0, 0.0
    # Jitter lowers and shifts each peak: take the highest point around the first high one.
    first = next(lag for lag in peaks if unbiased[lag] >= 0.8 * best)
    near = [lag for lag in peaks if lag <= first * 1.15 and lag >= first]
    lag = max(near, key=lambda peak: unbiased[peak])
    return lag, min(1.0, max(0.0, unbiased[lag]))


def bursts(values, step_us, gap_us=8_000):
    """Communication phases in the resampled counter: [(first step, step after, bytes)].

    Starts above MIN_SHARE of the high rate, ends when it stays below for `gap_us`.
    """
    busy = sorted(v for v in values if v > 0)
    if not busy:
        return []
    threshold = busy[int(0.9 * (len(busy) - 1))] * MIN_SHARE
    patience, found, start, last = max(1, int(gap_us // step_us)), [], None, 0
    for n, value in enumerate([*values, *([0.0] * (patience + 1))]):
        if value > threshold:
            if start is None:
                start = n
            last = n
        elif start is not None and n - last > patience:
            found.append((start, last + 1, sum(values[start : last + 1])))
            start = None
    heavy = max((b for _, _, b in found), default=0.0)
    return [b for b in found if (b[1] - b[0]) * step_us >= RISE_US and b[2] >= 0.03 * heavy]


def _length(values, burst):
    """Length of a burst in steps; the steps at its edges count by how full they are."""
    start, end, _ = burst
    if end - start < 4:
        return float(end - start)
    first, last = values[start] / (values[start + 1] or 1.0), values[end - 1] / (values[end - 2] or 1.0)
    return end - start - 2 + min(1.0, first) + min(1.0, last)


def median(values):
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def estimate(samples, step_us=2_000):
    """The profile of a byte counter: {period_us, phases, iterations, confidence, origins}.

    Phases are [offset_us, duration_us, rate_bps]; offset 0 is the start of the communication phase that
    follows the longest silence, and `origins` lists when that happened (microseconds, as sampled).
    Confidence 0…1: how strongly the traffic repeats times how many of the iterations agree in length and
    in what they send; 0 with period 0 when no period was found in at least three iterations.
    """
    nothing = {"period_us": 0, "phases": [], "iterations": 0, "confidence": 0.0, "origins": []}
    values = rates(samples, step_us)
    found = bursts(values, step_us)
    lag, strength = period_steps(_smooth(values, max(1, int(10_000 // step_us))))
    if lag == 0 or len(found) < 3:
        return nothing
    spacing = (found[-1][0] - found[0][0]) / (len(found) - 1)
    each = max(1, int(lag / spacing + 0.5))  # bursts per iteration
    if len(found) < 3 * each:
        return nothing
    # The iteration begins after the longest silence.
    silence = [
        median([found[i][0] - found[i - 1][1] for i in range(max(1, k), len(found), each) if i >= 1] or [0])
        for k in range(each, 2 * each)
    ]
    anchor = silence.index(max(silence)) % each
    starts = [found[i][0] for i in range(anchor, len(found), each)]
    lengths = [starts[n + 1] - starts[n] for n in range(len(starts) - 1)]
    sent = [sum(b for _, _, b in found[i : i + each]) for i in range(anchor, len(found), each)]
    period = median(lengths)
    usable = list(range(anchor, len(found) - each + 1, each))
    phases, explained = [], 0.0  # bytes
    for k in range(each):
        offset = median([found[i + k][0] - found[i][0] for i in usable])
        duration = median([_length(values, found[i + k]) for i in usable])
        volume = median([found[i + k][2] for i in usable])
        explained += volume
        rate = volume * 8 * 1e6 / (duration * step_us)
        phases.append([int(offset * step_us), int(duration * step_us), int(rate)])
    alike = [length for length in lengths if _alike(length, period)]
    agree = sum(
        _alike(length, period) and _alike(volume, explained)
        for length, volume in zip(lengths, sent)  # noqa: B905 - the last iteration has no end
    )
    exact = sum(alike) / len(alike) if alike else period
    return {
        "period_us": int(exact * step_us + 0.5),
        "phases": phases,
        "iterations": len(lengths),
        "confidence": round(max(0.0, min(1.0, strength)) ** 0.5 * agree / len(lengths), 3),
        "origins": [int(samples[0][0] + start * step_us) for start in starts],
    }


def _alike(value, usual):
    return abs(value - usual) <= ALIKE * usual


def estimate_of_all(samples, step_us, most):
    """The profile of samples of which the first `most` are `step_us` apart, and later ones may be rarer.

    A period that the first ones show often enough is the period; else all samples are gone over, in no more
    than `most` steps, since finding a period takes the square of their number.
    """
    fine = estimate(samples[:most], step_us)
    span_us = samples[-1][0] - samples[0][0] if samples else 0
    if len(samples) <= most or (fine["iterations"] >= OFTEN and fine["confidence"] > 0.5):
        return fine
    coarse = estimate(samples, max(step_us, span_us // most))
    return coarse if coarse["period_us"] else fine


def _smooth(values, width):
    """Moving sum over `width` steps: jitter of a few milliseconds still correlates."""
    total, result = 0.0, []
    for n, value in enumerate(values):
        total += value - (values[n - width] if n >= width else 0.0)
        result.append(total)
    return result
