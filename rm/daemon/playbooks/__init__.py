"""Playbooks that the daemon runs for people who start them from the page or the API."""
