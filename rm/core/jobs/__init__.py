"""Jobs and hosts as they change: events, transitions, the state, actions, reconciliation."""
