"""The ways from a program to a daemon, and the connection."""
