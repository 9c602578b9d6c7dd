"""The use cases that the HTTP API offers."""
