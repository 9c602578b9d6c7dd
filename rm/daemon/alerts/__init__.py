"""Alerts as they are found, told and silenced, and the hosts that are drained by them."""
