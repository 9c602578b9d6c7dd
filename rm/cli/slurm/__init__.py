"""Slurm's commands: programs of their names on the same client, as scripts call and read them."""
