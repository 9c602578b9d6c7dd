"""`scontrol`: what it shows of every kind, and what it changes."""
