"""The stores of state, history and logs; backups; the database's schema and upgrades."""
