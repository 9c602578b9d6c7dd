"""Flow-level models of the network. None has a clock: time is an argument and never goes back."""
