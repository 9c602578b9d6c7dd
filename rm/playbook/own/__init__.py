"""Modules that a playbook, a role or an installed collection brings along, found and packed for the hosts."""
