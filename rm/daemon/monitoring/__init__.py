"""Measurements: when, by whom, and what came of them."""
