"""What each event does: to a job in each of its states, to hosts, arrays and reservations."""
