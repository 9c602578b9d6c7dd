"""Faults of all kinds against daemons, hosts and database under load, judged by an oracle of its own:
`python -m bench nemesis --minutes 20`."""
