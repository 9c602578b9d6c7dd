"""Which hosts and tasks a step gets: pure functions over the job's allocation and what its steps hold of it.

A step holds processors and GPUs of its hosts until it ends, as a step of Slurm does since 20.11: all of a
host's processors, or with `exact` what its tasks ask for; with `overlap` none. Source:
srun(1) of Slurm 22.05.
"""

import re

import rm_gpu_bind

PART = re.compile(r"\s*([^,\[\]\s]*(?:\[[0-9,\- ]+\][^,\[\]\s]*)*)\s*")
RANGES = re.compile(r"\[([^\]]*)\]")
HOSTS_MAX = TASKS_MAX = 1 << 16
HOST_BYTES = 255  # of a host's name


class Refused(Exception):
    """The step can never run; the message is a sentence."""


class Busy(Exception):
    """It can run when other steps of the job have ended."""


def expanded(text):
    """`gpu[01-03,7],login` as a list of names. ValueError for what is no list of hosts."""
    names, piece = [], re.compile(r"(?:[^,\[]|\[[^\]]*\])+")
    if piece.sub("", text).strip(", "):
        raise ValueError("%r is not a list of hosts" % text)
    for part in piece.findall(text):
        found = PART.fullmatch(part)
        if not found or not part.strip():
            raise ValueError("%r is not a list of hosts" % text)
        some = [""]
        for at, words in enumerate(RANGES.split(found.group(1))):  # texts and ranges in turn
            words = _numbers(words, text) if at % 2 else [words]
            if len(some) * len(words) > HOSTS_MAX:
                raise ValueError("%r is not a list of hosts" % text)
            some = [head + word for head in some for word in words]
        names += some
    return names


def _numbers(ranges, text):
    """Those of `01-03,07`, as they are written."""
    numbers = []
    for piece in ranges.replace(" ", "").split(","):
        low, dash, high = piece.partition("-")
        high = high if dash else low
        if not (low.isdecimal() and high.isdecimal()) or int(high) - int(low) >= HOSTS_MAX:
            raise ValueError("%r is not a list of hosts" % text)
        numbers += ["%0*d" % (len(low), n) for n in range(int(low), int(high) + 1)]
    return numbers


def folded(numbers):
    """Slurm's short form of a number for each host: 2 2 1 is `2(x2),1`."""
    runs = []
    for number in numbers:
        if runs and runs[-1][0] == number:
            runs[-1][1] += 1
        else:
            runs.append([number, 1])
    return ",".join("%d(x%d)" % (n, times) if times > 1 else str(n) for n, times in runs)


def folded_hosts(names):
    """`gpu[01-03,07],login`: neighbours that differ in a last number of one width are written together."""
    runs = []  # [head, width, [[low, high]...]], or a name alone
    for name in names:
        head = name.rstrip("0123456789")
        digits = name[len(head) :]
        number = int(digits) if digits else None
        last = runs[-1] if runs else None
        if number is None:
            runs.append([name, 0, None])
        elif last and last[2] is not None and (last[0], last[1]) == (head, len(digits)):
            if last[2][-1][1] == number - 1:
                last[2][-1][1] = number
            else:
                last[2].append([number, number])
        else:
            runs.append([head, len(digits), [[number, number]]])
    return ",".join(map(_shown_run, runs))


def _shown_run(run):
    head, width, ranges = run
    if ranges is None:
        return head
    parts = ["%0*d" % (width, a) if a == b else "%0*d-%0*d" % (width, a, width, b) for a, b in ranges]
    alone = len(parts) == 1 and ranges[0][0] == ranges[0][1]
    return head + (parts[0] if alone else "[%s]" % ",".join(parts))


def checked(asked, allocation):
    """What a program of the user asks for, of a job with these hosts; ValueError for what no srun says."""
    found, hosts = {}, {host["host"] for host in allocation}
    asked = dict({"relative": 0, "plane": 0, "each_on": []}, **asked)  # which older programs do not say
    numbers = ("ntasks", "hosts", "ntasks_per_node", "cpus_per_task", "gpus_per_task", "gpus_per_host",
               "relative", "plane")  # fmt: skip
    for key in numbers:
        value = asked[key]
        if value is None and key == "gpus_per_host":
            found[key] = None
        elif type(value) is int and 0 <= value <= TASKS_MAX:
            found[key] = value
        else:
            raise ValueError("%s is not a number from 0 to %d" % (key, TASKS_MAX))
    for key in ("nodelist", "exclude"):
        names = dict.fromkeys(_called(map(str, asked[key]), allocation))
        unknown = next((name for name in names if name not in hosts), None)  # the first one is spoken of
        found[key] = [name for name in names if name in hosts or name == unknown]
    found["each_on"] = [str(name)[:HOST_BYTES] for name in asked["each_on"]]
    if len(found["each_on"]) > TASKS_MAX:
        raise ValueError("more than %d tasks are listed" % TASKS_MAX)
    for key in ("overlap", "exact", "overcommit", "pack"):
        found[key] = asked.get(key) is True
    return dict(found, distribution=str(asked["distribution"])[:64], gpu_bind=str(asked["gpu_bind"])[:256])


def layout(asked, allocation, held):
    """The step's hosts, in the order of its ranks: [{"place", "host", "ranks", "gpus", "holds"}].

    asked: what srun was told (rm_srun_options.py); 0, "" and None are not said.
    allocation: the job's hosts, [{"host", "tasks", "cpus", "gpus"}].
    held: place in the allocation -> (processors, positions of GPUs) that its other steps hold.

    Raises Refused or Busy. `gpus` is for each task the positions of the GPUs on its host that it sees,
    `holds` (processors, positions of GPUs) of what the step takes.
    """
    places = _candidates(asked, allocation)
    per_host, ntasks = asked["ntasks_per_node"], asked["ntasks"]
    listed = _listed(asked, allocation, places)
    hosts = asked["hosts"] or (min(len(places), ntasks) if ntasks else len(places))
    hosts = len(set(listed)) or hosts
    if hosts > len(places):
        raise Refused("It asks for %d hosts, and the job has %d that it may use." % (hosts, len(places)))
    if ntasks and asked["hosts"] > ntasks:
        hosts = ntasks  # as Slurm: no host without a task
    each = asked["cpus_per_task"] or 1
    if not asked["overcommit"]:
        widest = max((allocation[place] for place in places), key=lambda host: host["cpus"])
        if each > widest["cpus"]:
            raise Refused(_too_many(each, widest))
    _check_gpus(asked, [allocation[place] for place in places], hosts)
    free = [place for place in places if not _lacks(asked, allocation[place], each, held.get(place, (0, ())))]
    chosen = sorted(free[:hosts])
    if listed:
        if not set(listed) <= set(free):
            raise Busy()
        chosen = sorted(set(listed))
        ranks = [[rank for rank, other in enumerate(listed) if other == place] for place in chosen]
        counts = _checked_counts(asked, [allocation[place] for place in chosen], list(map(len, ranks)), each)
    else:
        counts = _counts(asked, [allocation[place] for place in chosen or places[:hosts]], each)
        if len(free) < hosts:
            raise Busy()
        ranks = _ranks(asked, counts)
    step = []
    for n, place in enumerate(chosen):
        count, mine = counts[n], ranks[n]
        if per_host and count > per_host:
            raise Refused("%d tasks on a host are more than --ntasks-per-node=%d." % (count, per_host))
        taken = held.get(place, (0, ()))
        gpus, holds = _gpus(asked, allocation[place], count, taken[1])
        cpus = 0 if asked["overlap"] else count * each if asked["exact"] else allocation[place]["cpus"]
        if asked["exact"] and not asked["overlap"] and taken[0] + cpus > allocation[place]["cpus"]:
            if cpus > allocation[place]["cpus"] and not asked["overcommit"]:
                raise Refused(_too_many(cpus, allocation[place]))
            if not asked["overcommit"]:
                raise Busy()
        step.append({"place": place, "host": allocation[place]["host"], "ranks": mine, "gpus": gpus,
                     "holds": (cpus, holds)})  # fmt: skip
    return step


def _candidates(asked, allocation):
    """Places in the allocation that the step may use; those that --nodelist names come first."""
    names = [host["host"] for host in allocation]
    asked = dict(asked, **{key: _called(asked[key], allocation) for key in ("nodelist", "exclude")})
    for key in ("nodelist", "exclude"):
        unknown = [name for name in asked[key] if name not in names]
        if unknown and key == "nodelist":
            raise Refused("%s is not a host of this job; it has %s." % (unknown[0], ", ".join(names)))
    first = asked.get("relative", 0)
    if first and first + max(1, asked["hosts"]) > len(names):
        raise Refused("--relative=%d names a host behind the %d that the job has." % (first, len(names)))
    places = [place for place, name in enumerate(names) if name not in asked["exclude"] and place >= first]
    if not asked["nodelist"]:
        return places
    named = [place for place in places if names[place] in asked["nodelist"]]
    if asked["hosts"] <= len(named):
        return named
    return named + [place for place in places if place not in named]


def _listed(asked, allocation, places):
    """The place of each task in turn, where a list says it (Slurm's arbitrary distribution)."""
    names = [host["host"] for host in allocation]
    found = []
    for name in _called(asked.get("each_on", ()), allocation):
        if name not in names:
            raise Refused("%s is not a host of this job; it has %s." % (name, ", ".join(names)))
        found.append(names.index(name))
        if found[-1] not in places:
            raise Refused("%s is listed for a task, and other options exclude it." % name)
    ntasks = asked["ntasks"] or len(found)
    if found and ntasks > len(found):
        raise Refused("It asks for %d tasks, and %d hosts are listed for them." % (ntasks, len(found)))
    return found[:ntasks]


def _called(words, allocation):
    """The job's hosts by their names here, also where they were called by address or with a domain, as files
    of hosts for mpirun call them."""
    names = {host["host"] for host in allocation}
    by_address = {host["address"]: host["host"] for host in allocation if host.get("address")}
    found = []
    for word in words:
        short = word.partition(".")[0]
        found.append(word if word in names else by_address.get(word, short if short in names else word))
    return found


def _lacks(asked, host, each, taken):
    """Do other steps hold what the step needs of the host, for one task at least?"""
    if asked["overlap"]:
        return False
    cpus, gpus = taken
    if _asked_gpus(asked) and host["gpus"] - len(gpus) < 1:
        return True
    if asked["exact"]:
        return cpus + each > host["cpus"] and not asked["overcommit"]
    return cpus > 0


def _counts(asked, hosts, each):
    """How many tasks each host gets: what the job has there, or as Slurm's block distribution counts."""
    ntasks, per_host = asked["ntasks"], asked["ntasks_per_node"]
    if not ntasks:
        counts = [per_host or host["tasks"] for host in hosts]
        return _checked_counts(asked, hosts, counts, each) if asked["cpus_per_task"] else counts
    room = [max(1, host["cpus"] // each) for host in hosts]
    if per_host:
        room = [min(one, per_host) if not asked["overcommit"] else per_host for one in room]
    if ntasks > sum(room) and not (asked["overcommit"] or asked["overlap"]):
        raise Refused(
            "%d tasks of %d processors need more than the %d processors on %d hosts that the step may use; "
            "--overcommit starts them all the same."
            % (ntasks, each, sum(h["cpus"] for h in hosts), len(hosts))
        )
    counts = [0] * len(hosts)
    left, full = ntasks, False
    while left:
        before = left
        for n in range(len(hosts)):
            # a host leaves one task for each that comes after it, as no host is to have none
            most = left - sum(1 for count in counts[n + 1 :] if not count)
            most = most if asked.get("pack") else min(most, asked.get("plane") or 1)
            more = max(0, most if full else min(most, room[n] - counts[n]))
            counts[n] += more
            left -= more
        full = full or left == before
    return counts


def _checked_counts(asked, hosts, counts, each):
    if not (asked["overcommit"] or asked["overlap"]):
        for n, host in enumerate(hosts):
            if counts[n] * each > host["cpus"]:
                raise Refused(_too_many(counts[n] * each, host))
    return counts


def _ranks(asked, counts):
    """Host by host, or `plane` tasks (1 for cyclic) to each host in turn."""
    if asked["distribution"] not in ("cyclic", "plane"):
        return [list(range(sum(counts[:n]), sum(counts[: n + 1]))) for n in range(len(counts))]
    at_once = asked["plane"] if asked["distribution"] == "plane" else 1
    ranks, rank = [[] for _ in counts], 0
    while rank < sum(counts):
        for n, count in enumerate(counts):
            more = min(at_once, count - len(ranks[n]))
            ranks[n] += range(rank, rank + more)
            rank += more
    return ranks


def _check_gpus(asked, hosts, number):
    """A host on which the job has no GPU gets none when other steps end: the step would wait for ever."""
    having = sum(host["gpus"] > 0 for host in hosts)
    if _asked_gpus(asked) and having < number:
        if not having:
            raise Refused("It asks for GPUs, and the job has none on the hosts that the step may use.")
        raise Refused("It asks for GPUs on %d hosts, and the job has some on %d." % (number, having))


def _asked_gpus(asked):
    return asked["gpus_per_task"] or asked["gpus_per_host"]


def _gpus(asked, host, count, taken):
    """(the GPUs that each task sees, those that the step holds), by their positions on the host."""
    everything = list(range(host["gpus"]))
    wanted = asked["gpus_per_task"] * count or asked["gpus_per_host"]
    if not wanted:
        shown = [] if asked["gpus_per_host"] == 0 else everything
        return _bound(asked, host, shown, count), []
    if wanted > len(everything):
        raise Refused(
            "It asks for %d GPUs on %s, where the job has %d." % (wanted, host["host"], len(everything))
        )
    free = everything if asked["overlap"] else [gpu for gpu in everything if gpu not in taken]
    if wanted > len(free):
        raise Busy()
    mine = free[:wanted]
    each = asked["gpus_per_task"]
    if not each or asked["gpu_bind"] == "none":
        shown = _bound(asked, host, mine, count)
    else:
        shown = [mine[n * each : (n + 1) * each] for n in range(count)]
    return shown, [] if asked["overlap"] else mine


def _bound(asked, host, gpus, count):
    try:
        return rm_gpu_bind.chosen(asked["gpu_bind"], gpus, count)
    except ValueError as error:
        raise Refused("--gpu-bind=%s: %s on %s." % (asked["gpu_bind"], error, host["host"])) from None


def _too_many(cpus, host):
    return "It asks for %d processors on %s, where the job has %d; --overcommit starts it all the same." % (
        cpus, host["host"], host["cpus"],
    )  # fmt: skip
