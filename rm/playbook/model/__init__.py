"""Plays, tasks, keywords, tags, steps; text with its lines."""
