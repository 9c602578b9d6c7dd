"""The composition root: the only place that chooses adapters and wires the daemon together."""
