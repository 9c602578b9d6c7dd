"""Ansible's names of a vault's passwords."""

from __future__ import annotations


def split_vault_id(text: str) -> tuple[str, str]:
    """(NAME, FILE) of `NAME@FILE`, or of FILE alone. Source: `split_vault_id` of ansible-core 2.19."""
    name, at, file = text.partition("@")
    return (name, file) if at else ("", text)
