"""Sends the weekly digests of accounts by mail, each once to each address.

What was sent is a document of the store, written when the mail server has taken the letter: a restart, or
another leader, goes on from there. That a letter is about to be sent is written before, which a daemon cannot
that does not lead any more: so one that stood still sends nothing beside the next leader. Where a daemon ends
before it could write that the server took a letter, the letter is sent again, with the same Message-ID.

A clock that is ahead for a while has a week mailed before it is over. When the clock has come back and the
week is over, it is mailed again, unless nothing changed in it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

from rm.core.alerts.channel import NotTold
from rm.core.ports import Clock
from rm.core.scheduling.cycle import Cycle
from rm.core.sharing.accounts import Accounts
from rm.core.sharing.digest import SENT, Mailed, digest, mark_of, week_before
from rm.core.sharing.usage_query import Asked
from rm.core.store import Store
from rm.errors import ConfigError
from rm.units import HOUR_US

log = logging.getLogger(__name__)
PREFIX = "digest/"  # of the names of documents
KEEP_S = 30.0
HOURS = 24
CORRECTED = "This letter takes the place of one that was sent before the week was over.\n\n"


class Letters(Protocol):
    def send_letter(self, to: str, subject: str, text: str, name: str) -> None: ...


class Leading(Protocol):
    """The leader."""

    def ask(self, question: Callable[[Cycle, int], Any]) -> Future[Any]: ...

    def keep(self, documents: tuple[tuple[str, dict[str, Any] | None], ...]) -> Future[Any]: ...


def addresses_of(lines: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """account -> addresses, of `physics = head@example.org, ops@example.org`.

    Raises:
        ConfigError: a line says something else, or names an account again.
    """
    found: dict[str, tuple[str, ...]] = {}
    for line in lines:
        account, equals, rest = line.partition("=")
        account, to = account.strip(), tuple(word.strip() for word in rest.split(",") if word.strip())
        if not (account and equals and to) or any(" " in one or "@" not in one for one in to):
            raise ConfigError(
                f"sharing.digest has '{line:.100}', which names no account with addresses.",
                'Write "physics = head@example.org, ops@example.org".',
            )
        if account in found:
            raise ConfigError(f"sharing.digest names the account {account} twice.", "Keep one line of it.")
        found[account] = to
    return found


class Digests:
    """`to`: account -> addresses; `hour`: of Monday, UTC, from which on the week before is sent; `stored` are
    the documents of the last life."""

    def __init__(
        self,
        *,
        store: Store,
        leader: Leading,
        clock: Clock,
        letters: Letters,
        cluster: str,
        to: Mapping[str, Sequence[str]],
        hour: int,
        stored: Iterable[tuple[str, Mapping[str, Any]]],
    ) -> None:
        self._store, self._leader, self._clock, self._letters = store, leader, clock, letters
        self._cluster, self._to, self._hour_us = cluster, to, hour * HOUR_US
        self._missed = set[str]()  # accounts that are none, of which the log tells
        self._sent = {name: _mailed(body) for name, body in stored if name.startswith(PREFIX)}

    def send(self) -> None:
        """What is due; what a server refuses for now is tried again the next time."""
        since_us, until_us = week_before(self._clock.now_us() - self._hour_us)
        self._note_clock(until_us)
        unknown = self._unknown()
        for account, addresses in self._to.items():
            due = [to for to in addresses if self._mailed_to(account, to).may_miss(until_us)]
            if not due:
                continue
            asked = Asked(("user",), since_us, until_us, (("account", account),))
            lines = [(heap.user, sums) for heap, sums in self._store.usage(asked)]
            if account in unknown and not lines:
                continue
            text = digest(account, since_us, until_us, lines)
            for to in due:
                if not lines and self._mailed_to(account, to).is_older(until_us):
                    continue  # a clock that begins in 1970 asks for letters of then
                self._send(account, to, until_us, text)

    def _note_clock(self, until_us: int) -> None:
        """Write down which weeks were mailed that this clock has not reached."""
        for name, known in list(self._sent.items()):
            if (now := known.at(until_us)) != known:
                self._keep(name, now)

    def _mailed_to(self, account: str, to: str) -> Mailed:
        return self._sent.get(_name(account, to), Mailed())

    def _unknown(self) -> set[str]:
        """Those of which digests are to be sent and that are no accounts; where there are none at all, a name
        is a mere word of jobs."""
        there: Accounts = self._leader.ask(lambda cycle, now_us: cycle.state.accounts).result(KEEP_S)
        unknown = self._to.keys() - there.by_name.keys() if there.accounts else set[str]()
        for account in sorted(unknown - self._missed):
            log.warning(
                "sharing.digest names '%s', which is no account: nothing is mailed of a week in which "
                "nothing was used for it; `rmx account show` lists the accounts",
                account,
            )
        self._missed = unknown
        return unknown

    def _send(self, account: str, to: str, until_us: int, text: str) -> None:
        subject = f"[{self._cluster}] {text.partition(chr(10))[0]}"
        name = _name(account, to)
        mailed = self._mailed_to(account, to)
        after = mailed.with_week(until_us, text)
        if mailed.has(until_us, text):
            self._keep(name, after)
            return
        self._keep(name, mailed, begun_us=until_us)
        letter = f"{self._cluster} digest {account} {to} {until_us}"
        if mailed.corrects(until_us):
            text, letter = CORRECTED + text, f"{letter} {mark_of(text)}"
        try:
            self._letters.send_letter(to, subject, text, letter)
        except NotTold as error:
            if error.again:
                log.warning("the digest of %s to %s: %s", account, to, error)
                return
            log.error("the digest of %s is not sent to %s: %s", account, to, error)
        self._keep(name, after)

    def _keep(self, name: str, mailed: Mailed, **more: int) -> None:
        weeks = {str(week): mark for week, mark in mailed.weeks.items()}
        body = {"weeks": weeks, "early": sorted(mailed.early), **more}
        self._leader.keep(((name, body),)).result(KEEP_S)
        self._sent[name] = mailed


def _mailed(body: Mapping[str, Any]) -> Mailed:
    """What a row says: of an earlier version's the last week alone, of a damaged one nothing."""
    try:
        weeks = {int(week): str(mark) for week, mark in body.get("weeks", {}).items()}
        early = frozenset(map(int, body.get("early", ())))
        if "weeks" not in body and (until_us := int(body.get("until_us", 0))) > 0:
            weeks = {until_us: SENT}
    except (AttributeError, TypeError, ValueError, OverflowError):
        return Mailed()
    return Mailed(weeks, early)


def _name(account: str, to: str) -> str:
    return f"{PREFIX}{account}/{to}"
