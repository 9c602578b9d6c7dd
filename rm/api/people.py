"""`/v1/me`: who asks, as the daemon sees it."""

from __future__ import annotations

from typing import Literal

from rm.api.answer import Answer

# of a client that asks for somebody else: an account, or "" for an anonymous caller, who may only look
ACTING_FOR = "Rm-Acting-For"
VIA = "Rm-Via"  # through which program the request comes: `page`
FROM = "Rm-From"  # and from which address, for the audit log; of root and the daemon's own user only


class Me(Answer, frozen=True, kw_only=True):
    """`user` "" is an anonymous caller."""

    user: str
    role: Literal["nobody", "user", "operator", "admin"]
