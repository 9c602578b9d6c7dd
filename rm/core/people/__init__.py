"""Roles, tokens, privacy, the audit log."""
