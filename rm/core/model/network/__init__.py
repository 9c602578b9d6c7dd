"""Links, fabrics and routes, and how jobs on them are aligned."""
