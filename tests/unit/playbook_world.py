"""A playbook of several files, run on made-up hosts in one process: no SSH, no clock, no disk."""

import fnmatch
import posixpath

from rm.playbook.model.problems import BadArgument
from rm.playbook.read.parse import parse_playbook
from rm.playbook.run.conduct import Part
from rm.playbook.run.crew import Options
from rm.playbook.template.variables import HostState


class Shelf:
    """Files by path, all below /p/."""

    decrypt = None

    def __init__(self, files):
        self.files = {posixpath.join("/p", name): text for name, text in files.items()}

    def read(self, path, decrypt=True):
        if path not in self.files:
            raise BadArgument(f"the local file {path} cannot be read")
        return self.files[path].encode()

    def glob(self, pattern):
        if "*" not in pattern:
            return [pattern] if pattern in self.files else []
        deep = pattern.endswith("/**")
        return sorted(
            p for p in self.files if (fnmatch.fnmatchcase(p, pattern) if deep else _one_level(p, pattern))
        )

    def exists(self, path):
        path = posixpath.normpath(path)
        return path in self.files or any(p.startswith(path + "/") for p in self.files)

    def mode(self, path):
        return 0o644


def _one_level(path, pattern):
    one, two = path.split("/"), pattern.split("/")
    return len(one) == len(two) and all(map(fnmatch.fnmatchcase, one, two))


class World:
    """Runs a play on hosts; `answer(host, step)` says what a step comes to (default: changed).

    `log` holds (host, op, what) in the order in which steps were sent, `results` the results by host.
    """

    def __init__(self, text, hosts=("a", "b", "c"), files=None, answer=None, inventory=None, groups=None,
                 max_fail=None, **options):  # fmt: skip
        self.shelf = Shelf(files or {})
        self.plays = parse_playbook(text, "/p/site.yml", self.shelf).plays
        self.states = {name: HostState(name, (inventory or {}).get(name, {})) for name in hosts}
        self.answer, self.max_fail = answer or (lambda host, step: {}), max_fail
        self.log, self.results, self.delays = [], {name: [] for name in hosts}, []
        magic = {"groups": {"all": list(hosts), **(groups or {})}}
        names = {"ansible_play_hosts": tuple(hosts), "ansible_play_batch": tuple(hosts)}
        self.options = Options("/p", magic=magic, active=names, **options)

    def run(self):
        for play in self.plays:
            alive = [name for name, state in self.states.items() if not state.failed]
            part = Part(play, alive, self.states, self.shelf, self.options, self.max_fail)
            for _ in range(1000):
                ready = list(part.ready())
                for result in part.settled():
                    self.results[result.host].append(result)
                if part.done:
                    break
                assert ready, "the hosts wait for each other"
                for name, batch in reversed(ready):  # another order than the hosts'
                    self._carry_out(part, name, batch)
            for result in part.settled():
                self.results[result.host].append(result)
        return self

    def _carry_out(self, part, name, batch):
        answers, stop = [], None
        if batch.delay_s:
            self.delays.append(batch.delay_s)
        for step in batch.steps:
            if stop not in (None, step.task):
                break
            what = step.args.get("argv") or step.args.get("path") or step.op
            where = batch.target or name
            self.log.append((where, " ".join(what) if isinstance(what, list) else what))
            said = self.answer(where, step)
            if said is None:
                part.lost(name, "gone")
                return
            said = {"changed": True, "rc": 0, **said, "id": step.id}
            answers.append(said)
            if said.get("failed") and not step.ignore_errors:
                stop = step.task
        part.record(name, answers)

    def told(self, host="a"):
        """task: status or, of debug, its message."""
        return [
            f"{r.task}: {r.message}" if r.module == "debug" and r.status == "ok" else f"{r.task}: {r.status}"
            for r in self.results[host]
        ]


def play(tasks, head="", **given):
    return World("- hosts: all\n  gather_facts: false\n" + head + "  tasks:\n" + tasks, **given).run()
