"""The ways from a command to a daemon, and the client."""
