"""The journal: what was recorded and decided, as plain values, and how a state begins from it."""
