"""Roles of people and scopes of tokens; each includes those before it."""

from __future__ import annotations

from enum import StrEnum


class Role(StrEnum):
    """What somebody is on this cluster. Slurm's operator, and its administrator."""

    NOBODY = "nobody"  # anyone who looks at an open page
    USER = "user"
    OPERATOR = "operator"
    ADMIN = "admin"

    @property
    def rank(self) -> int:
        return _RANKS[self]

    def __ge__(self, other: str) -> bool:
        return _RANKS[self] >= _RANKS[other]

    def __lt__(self, other: str) -> bool:
        return not self >= other


_RANKS: dict[str, int] = {role: rank for rank, role in enumerate(Role)}


class Scope(StrEnum):
    """What a token allows, within its owner's rights."""

    READ = "read"  # to see what its owner may see
    SUBMIT = "submit"  # and submit jobs, and change the owner's own
    OPERATE = "operate"  # and what operators do
    ADMIN = "admin"

    @property
    def rank(self) -> int:
        return _SCOPES.index(self)

    @property
    def most(self) -> Role:
        """No role above this one comes from such a token."""
        return {Scope.OPERATE: Role.OPERATOR, Scope.ADMIN: Role.ADMIN}.get(self, Role.USER)


_SCOPES = list(Scope)


def least(a: Role, b: Role) -> Role:
    return b if a >= b else a


def most(a: Role, b: Role) -> Role:
    return a if a >= b else b
