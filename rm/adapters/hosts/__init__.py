"""The way to hosts: SSH, its settings and routes, the fleet of agents' channels."""
