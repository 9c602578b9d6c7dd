"""Keeping jobs in their slots: schedules, pauses, shaping, profiles."""
