"""Limits of accounts, users, QOS, partitions and licences: refused at submission, or waited for."""
