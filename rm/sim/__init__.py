"""The simulator: a virtual clock, a modelled network and modelled hosts under the daemon's own cycle."""
