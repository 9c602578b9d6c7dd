"""From tasks to steps, and from answers to what is next."""
