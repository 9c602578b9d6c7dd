"""One pass: which job is next, where it goes, what it waits for."""
