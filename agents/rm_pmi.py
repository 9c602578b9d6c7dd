"""PMI-1, by which ranks of MPI that srun started find each other: the answers to what they ask. Pure.

Each rank says lines `cmd=NAME KEY=VALUE ...` on a socket of its own, whose number is in PMI_FD. Source: the
wire protocol of PMI 1.1 as MPICH's src/pmi speaks it, with its attribute PMI_process_mapping.
"""

import re

LINE_BYTES = 16 << 10
KEYS, VALUES_BYTES = 1 << 20, 256 << 20  # of a step
CODE = re.compile(r"[0-9]{1,10}\Z", re.ASCII)
NAME = "step"  # of the space in which the ranks put what they tell each other


class Wrong(Exception):
    """A rank said what PMI-1 does not know; the message is a sentence."""


def mapping(hosts):
    """Which rank is on which host, by the number of the host of each rank: `(vector,(0,2,3))` are two ranks
    on each of three hosts, after one another."""
    blocks = []  # [host, hosts, ranks on each]
    runs = []
    for host in hosts:
        if runs and runs[-1][0] == host:
            runs[-1][1] += 1
        else:
            runs.append([host, 1])
    for host, ranks in runs:
        last = blocks[-1] if blocks else None
        if last and last[2] == ranks and last[0] + last[1] == host:
            last[1] += 1
        else:
            blocks.append([host, 1, ranks])
    return "(vector,%s)" % ",".join("(%d,%d,%d)" % tuple(block) for block in blocks)


class Pmi:
    """`hosts` is for each rank the number of its host."""

    def __init__(self, hosts):
        self.size = len(hosts)
        self.values = {"PMI_process_mapping": mapping(hosts)}
        self.held_bytes = 0  # that the values have, and those before them
        self.inboxes = {}  # rank -> the beginning of a line
        self.waiting = set()  # ranks that are at the barrier
        self.aborted = None  # the code with which a rank wants all to end

    def hear(self, rank, data):
        """What a rank says; [(rank, what to answer it)]."""
        *lines, rest = (self.inboxes.get(rank, b"") + data).split(b"\n")
        if len(rest) > LINE_BYTES:
            raise Wrong("a line of PMI is longer than %d bytes" % LINE_BYTES)
        self.inboxes[rank] = rest
        return [answer for line in lines if line for answer in self._answers(rank, line.decode("latin-1"))]

    def _answers(self, rank, line):
        words = dict(word.partition("=")[::2] for word in line.split())
        asked = words.get("cmd", "")
        if asked == "barrier_in":
            self.waiting.add(rank)
            if len(self.waiting) < self.size:
                return []
            self.waiting = set()
            return [(other, b"cmd=barrier_out rc=0\n") for other in range(self.size)]
        if asked == "abort":
            code = words.get("exitcode", "")
            self.aborted = (int(code) & 255 if CODE.match(code) else 0) or 1  # 256 is a failure, too
            return []
        return [(rank, self._answer(asked, words).encode("latin-1") + b"\n")]

    def _answer(self, asked, words):
        if asked == "init":
            rc = 0 if words.get("pmi_version") == "1" else -1
            return "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=%d" % rc
        if asked == "get_maxes":
            return "cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=4096"
        if asked == "get_appnum":
            return "cmd=appnum rc=0 appnum=0"
        if asked == "get_my_kvsname":
            return "cmd=my_kvsname rc=0 kvsname=" + NAME
        if asked == "get_universe_size":
            return "cmd=universe_size rc=0 size=%d" % self.size
        if asked == "put":
            key, value = words.get("key", ""), words.get("value", "")
            self.held_bytes += len(key) + len(value)
            if len(self.values) >= KEYS or self.held_bytes > VALUES_BYTES:
                return "cmd=put_result rc=-1 msg=too_many_keys"
            self.values[key] = value
            return "cmd=put_result rc=0 msg=success"
        if asked == "get":
            value = self.values.get(words.get("key", ""))
            if value is None:
                return "cmd=get_result rc=-1 msg=key_not_found value=unknown"
            return "cmd=get_result rc=0 msg=success value=" + value
        if asked == "finalize":
            return "cmd=finalize_ack rc=0"
        if asked in ("spawn", "publish_name", "unpublish_name", "lookup_name"):
            return "cmd=%s_result rc=-1 msg=not_supported" % asked
        raise Wrong("%r is no request of PMI-1" % asked)
