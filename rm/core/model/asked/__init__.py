"""What a job asks for: its demand, its traffic, its array, what it waits for."""
