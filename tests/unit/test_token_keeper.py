"""Tokens in memory: what was used is written down, also after the database was away."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import Any, cast

import pytest

from rm.core.people.rights import Scope
from rm.core.people.token import Token
from rm.daemon.leading.leader import Leader
from rm.daemon.services.token_keeper import ENDED_MOST, TokenKeeper
from rm.errors import StoreUnavailable
from tests.fakes import ManualClock


class Lead:
    """Keeps tokens, unless the database is `away`."""

    def __init__(self) -> None:
        self.away = False
        self.kept: list[tuple[Token, ...]] = []
        self.removed: list[str] = []

    def keep_tokens(self, tokens: tuple[Token, ...], removed: tuple[str, ...] = ()) -> Future[Any]:
        done: Future[Any] = Future()
        if self.away:
            done.set_exception(StoreUnavailable("The database is away."))
        else:
            self.kept.append(tokens)
            self.removed += removed
            done.set_result(None)
        return done


def test_a_use_that_could_not_be_written_down_is_written_the_next_time() -> None:
    lead, clock = Lead(), ManualClock()
    token = Token("t1", "ann", 1000, Scope.READ, "digest", 0, "ann", 10 * clock.us)
    keeper = TokenKeeper(cast(Leader, lead), clock, [token])
    keeper.use("t1", "127.0.0.1")
    lead.away = True
    with pytest.raises(StoreUnavailable):
        keeper.write_down()
    lead.away = False
    keeper.write_down()
    keeper.write_down()  # nothing is left
    ((written,),) = lead.kept
    assert (written.id, written.used_from, written.used_us) == ("t1", "127.0.0.1", clock.us)


def test_who_makes_and_revokes_tokens_without_end_keeps_the_last_of_them() -> None:
    """They stayed for 30 days, and each new one looked at all: 25 a second are two million a day."""
    lead, clock = Lead(), ManualClock()
    anns = Token("t1", "ann", 1000, Scope.READ, "digest", 0, "ann", 10**15, revoked_us=0)
    keeper = TokenKeeper(cast(Leader, lead), clock, [anns])

    async def main() -> list[str]:
        made = []
        for _ in range(2 * ENDED_MOST):
            clock.us += 1
            token, _ = await keeper.create("bob", 1001, Scope.READ, 10**9, "", "bob")
            await keeper.revoke(token.id, "bob")
            made.append(token.id)
        return made

    made = asyncio.run(main())
    assert [token.id for token in keeper.tokens("bob")] == made[-ENDED_MOST - 1 :]
    assert lead.removed == made[: ENDED_MOST - 1]
    assert keeper.tokens("ann") == [anns]
