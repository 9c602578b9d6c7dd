"""The CASSINI scenario: its testbed, models and traces, the schedulers it compares, what they reach."""
