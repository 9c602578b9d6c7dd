"""The ways to a daemon: the door at an address, and which daemon leads."""
