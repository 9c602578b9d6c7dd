"""From a name, options and answers to a run: what is wrong is said before anything is recorded."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rm.adapters.playbook.catalogue import Catalogue, Listed
from rm.core.playbook_runs import PlaybookRun, RunOptions
from rm.core.ports import Clock
from rm.daemon.playbooks.runner import Runner
from rm.errors import UsageError

if TYPE_CHECKING:  # the engine is loaded when somebody first asks for a playbook
    from rm.playbook.read.questions import Answers, Question

# of hosts and groups, without `@FILE`, which would read a file of the daemon's machine
PATTERN = re.compile(r"[A-Za-z0-9_.:,!&*?\[\]~^$|()+-]*", re.ASCII)
TAG = re.compile(r"[\w.:-]{1,100}")
LIMIT_MOST, TAGS_MOST = 4_096, 50


class Starting:
    """For any thread. Private answers live in the memory of this process until the run's own has them,
    and nowhere else."""

    def __init__(
        self, *, catalogue: Catalogue, runner: Runner, clock: Clock, vault_password_file: str = ""
    ) -> None:
        self._catalogue, self._runner, self._clock = catalogue, runner, clock
        self._password_file = vault_password_file

    def listed(self) -> Sequence[Listed]:
        return self._catalogue.listed()

    def survey(self, name: str) -> tuple[Listed, Sequence[Question]]:
        """Raises NotFound, Forbidden and UsageError."""
        from rm.adapters.playbook.files import LocalFiles
        from rm.adapters.playbook.secrets import masked_text
        from rm.adapters.playbook.vault import Vault, read_password

        found = self._catalogue.find(name)
        file = self._password_file
        vault = Vault([read_password(file)] if file else ())
        asked = self._catalogue.questions(found, LocalFiles(vault))
        # what the vault has opened is shown to nobody, also not as a default
        return found, [
            replace(one, private=True, text=masked_text(one.text, vault.secrets))
            if _holds(one, vault.secrets)
            else one
            for one in asked
        ]

    def asked(self, name: str, options: RunOptions, given: Mapping[str, Any]) -> tuple[Listed, Answers]:
        """The playbook and what the answers become; raises as `survey`."""
        from rm.adapters.playbook.matching import Fits
        from rm.playbook.read.questions import answered

        check_options(options)
        found, questions = self.survey(name)
        with Fits() as fits:
            return found, answered(questions, given, fits)

    def start(
        self, name: str, options: RunOptions, given: Mapping[str, Any], by: str, schedule: int = 0
    ) -> PlaybookRun:
        """Raises as `survey`, and LimitReached, Conflict and StoreError."""
        found, answers = self.asked(name, options, given)
        run = PlaybookRun(
            found.name, by, self._clock.now_us(), options=options, answers=answers.shown,
            private=answers.private, schedule=schedule,
        )  # fmt: skip
        orders = {
            "path": str(found.path.resolve()),
            "limit": options.limit,
            "tags": list(options.tags),
            "skip_tags": list(options.skip_tags),
            "check": options.check,
            "diff": options.diff,
            "prompted": dict(answers.prompted),
            "extra": dict(answers.extra),
            "defaults": list(answers.defaults),
            "secrets": list(answers.secrets),
            "vault_password_file": self._password_file,
        }
        return self._runner.add(run, orders)


def _holds(one: Question, secrets: Iterable[str]) -> bool:
    shown = f"{one.default} {one.choices} {one.text}"
    return any(secret in shown for secret in secrets)


def check_options(options: RunOptions) -> None:
    """Raises UsageError."""
    if len(options.limit) > LIMIT_MOST or not PATTERN.fullmatch(options.limit):
        raise UsageError(
            f"The limit '{options.limit:.100}' is no pattern of hosts and groups.",
            "Write names with commas, such as z1h1,gpus:!z1h2; no files.",
        )
    for tag in (*options.tags, *options.skip_tags):
        if not TAG.fullmatch(tag):
            raise UsageError(f"'{tag:.100}' is no tag.", "Write tags with commas.")
    if len(options.tags) > TAGS_MOST or len(options.skip_tags) > TAGS_MOST:
        raise UsageError(f"A run takes {TAGS_MOST} tags.")
