"""Inventories, patterns of hosts, surveys of new ones."""
