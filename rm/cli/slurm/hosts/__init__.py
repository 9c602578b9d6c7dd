"""Hosts, partitions and reservations as `sinfo` and `scontrol` show them."""
