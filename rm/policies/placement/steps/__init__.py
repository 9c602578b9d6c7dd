"""The small filter and score functions of which the placement policies are built."""
