"""`client.accounts`: the caller, tokens for the HTTPS door, and the audit log."""

from __future__ import annotations

from rm.api.accounts import Act, Acts, NewToken, OneToken, Token, TokenRequest, Tokens, TokenScope
from rm.api.people import Me
from rm.client.asking import Asking


class Accounts:
    def __init__(self, ask: Asking) -> None:
        self._ask = ask

    def me(self) -> Me:
        """The caller, with its role."""
        return self._ask.get(Me, "me")

    def tokens(self, user: str = "") -> list[Token]:
        """The caller's tokens; for administrators those of `user`, `*` all."""
        return list(self._ask.get(Tokens, "tokens", user=user).tokens)

    def create_token(
        self, scope: TokenScope, expires_s: float, *, name: str = "", user: str = ""
    ) -> NewToken:
        """A new token, for oneself, or for administrators for `user`; its `text` is shown this once."""
        body = TokenRequest(scope=scope, expires_s=expires_s, name=name, user=user)
        return self._ask.post(NewToken, "tokens", body=body)

    def revoke_token(self, token: str) -> Token:
        """Let the token count no longer."""
        return self._ask.delete(OneToken, "tokens", token).token

    def audit(self, *, after: int = 0, since_us: int = 0, user: str = "", limit: int = 1000) -> list[Act]:
        """Entries of the audit log, oldest first; the next `after` is the last `seq`."""
        answer = self._ask.get(Acts, "audit", after=after, since_us=since_us, user=user, limit=limit)
        return list(answer.acts)
