"""Alerts as they are found, sent and silenced, and the hosts that are drained by them."""
