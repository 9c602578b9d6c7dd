"""Measurements: when, between which hosts, and with which results."""
