"""The wire between the daemon and the hosts' agents: one frozen type for each message, and nothing else.

Requests are in `attempts`, `hosts`, `network`, `probes`, `steps` and `streams`, each beside its answer; what
agents say unasked is in `notifications`. `line` makes lines of them and reads lines; what does not fit its
type is a `Misfit`. The tables of docs/agent-protocol.md are made from these types (`tables`).
"""
