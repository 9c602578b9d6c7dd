"""Who calls, what they may do, and what they may see."""
