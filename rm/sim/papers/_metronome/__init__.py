"""The Metronome scenario: its testbed, its snapshots, the schedulers it compares, and what they reach."""
