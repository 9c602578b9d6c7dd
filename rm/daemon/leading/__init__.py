"""The leader: its loop, its lease, what it acknowledged, what it forgets."""
